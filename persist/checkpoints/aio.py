"""`tx.checkpoints` of AsyncStore: every verb of the repositories as a coroutine."""

from persist.checkpoints.memories import Memories
from persist.checkpoints.repository import Checkpoints
from persist.checkpoints.states import CheckpointStates
from persist.checkpoints.threads import CheckpointThreads
from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable


class AsyncCheckpointThreads(AsyncRepository[CheckpointThreads]):
    """See CheckpointThreads."""

    list = awaitable(CheckpointThreads.list)
    get = awaitable(CheckpointThreads.get)
    delete = awaitable(CheckpointThreads.delete)
    copy = awaitable(CheckpointThreads.copy)
    keep_latest = awaitable(CheckpointThreads.keep_latest)
    delete_runs = awaitable(CheckpointThreads.delete_runs)


class AsyncCheckpointStates(AsyncRepository[CheckpointStates]):
    """See CheckpointStates."""

    put = awaitable(CheckpointStates.put)
    put_writes = awaitable(CheckpointStates.put_writes)
    find = awaitable(CheckpointStates.find)
    page = awaitable(CheckpointStates.page)
    load = awaitable(CheckpointStates.load)
    values = awaitable(CheckpointStates.values)
    history = awaitable(CheckpointStates.history)


class AsyncMemories(AsyncRepository[Memories]):
    """See Memories."""

    put = awaitable(Memories.put)
    delete = awaitable(Memories.delete)
    get = awaitable(Memories.get)
    list = awaitable(Memories.list)
    namespaces = awaitable(Memories.namespaces)
    embeddings = awaitable(Memories.embeddings)
    refresh = awaitable(Memories.refresh)
    sweep = awaitable(Memories.sweep)


class AsyncCheckpoints:
    """See Checkpoints."""

    def __init__(self, work: AsyncWork) -> None:
        checkpoints = Checkpoints(work.work)
        self.threads = AsyncCheckpointThreads(checkpoints.threads, work)
        self.states = AsyncCheckpointStates(checkpoints.states, work)
        self.memories = AsyncMemories(checkpoints.memories, work)
