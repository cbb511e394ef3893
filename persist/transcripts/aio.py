"""`tx.transcripts` of AsyncStore: every verb of the repositories as a coroutine."""

from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable
from persist.transcripts.entries import TranscriptEntries
from persist.transcripts.repository import Transcripts
from persist.transcripts.sessions import TranscriptSessions


class AsyncTranscriptSessions(AsyncRepository[TranscriptSessions]):
    """See TranscriptSessions."""

    list = awaitable(TranscriptSessions.list)
    get = awaitable(TranscriptSessions.get)
    find = awaitable(TranscriptSessions.find)
    mains = awaitable(TranscriptSessions.mains)
    subpaths = awaitable(TranscriptSessions.subpaths)
    delete = awaitable(TranscriptSessions.delete)


class AsyncTranscriptEntries(AsyncRepository[TranscriptEntries]):
    """See TranscriptEntries."""

    append = awaitable(TranscriptEntries.append)
    list = awaitable(TranscriptEntries.list)
    tail = awaitable(TranscriptEntries.tail)


class AsyncTranscripts:
    """See Transcripts."""

    def __init__(self, work: AsyncWork) -> None:
        transcripts = Transcripts(work.work)
        self.sessions = AsyncTranscriptSessions(transcripts.sessions, work)
        self.entries = AsyncTranscriptEntries(transcripts.entries, work)
