"""`tx.replay_streams` of AsyncStore: every verb of the repositories as a coroutine."""

from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable
from persist.replay_streams.messages import ReplayMessages
from persist.replay_streams.repository import ReplayStreams
from persist.replay_streams.sessions import ReplaySessions


class AsyncReplaySessions(AsyncRepository[ReplaySessions]):
    """See ReplaySessions."""

    list = awaitable(ReplaySessions.list)
    get = awaitable(ReplaySessions.get)
    delete = awaitable(ReplaySessions.delete)


class AsyncReplayMessages(AsyncRepository[ReplayMessages]):
    """See ReplayMessages."""

    append = awaitable(ReplayMessages.append)
    after = awaitable(ReplayMessages.after)
    list = awaitable(ReplayMessages.list)
    newest = awaitable(ReplayMessages.newest)


class AsyncReplayStreams:
    """See ReplayStreams."""

    def __init__(self, work: AsyncWork) -> None:
        streams = ReplayStreams(work.work)
        self.sessions = AsyncReplaySessions(streams.sessions, work)
        self.messages = AsyncReplayMessages(streams.messages, work)
