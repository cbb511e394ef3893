"""`tx.transcripts`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, on_demand
from persist.transcripts.entries import TranscriptEntries
from persist.transcripts.sessions import TranscriptSessions


class Transcripts(Domain):
    """Transcripts of agent sessions, and their entries."""

    sessions = on_demand(TranscriptSessions)
    entries = on_demand(TranscriptEntries)
