"""`tx.checkpoints`: the repositories of the domain."""

from persist.checkpoints.memories import Memories
from persist.checkpoints.states import CheckpointStates, CheckpointThreads
from persist.db.transactions.repository import Domain, F, on_demand


class Checkpoints(Domain[F]):
    """Threads of graph runners, their checkpoints, and memories across threads."""

    threads = on_demand(CheckpointThreads[F])
    states = on_demand(CheckpointStates[F])
    memories = on_demand(Memories[F])
