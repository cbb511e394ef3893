"""`tx.transcripts`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, F, on_demand
from persist.transcripts.entries import TranscriptEntries
from persist.transcripts.sessions import TranscriptSessions


class Transcripts(Domain[F]):
    """Transcripts of agent sessions, and their entries."""

    sessions = on_demand(TranscriptSessions[F])
    entries = on_demand(TranscriptEntries[F])
