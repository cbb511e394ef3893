"""`tx.checkpoints`: the repositories of the domain."""

from persist.checkpoints.memories import Memories
from persist.checkpoints.states import CheckpointStates
from persist.checkpoints.threads import CheckpointThreads
from persist.db.transactions.repository import Domain, on_demand


class Checkpoints(Domain):
    """Threads of graph runners, their checkpoints, and memories across threads."""

    threads = on_demand(CheckpointThreads)
    states = on_demand(CheckpointStates)
    memories = on_demand(Memories)
