"""`tx.checkpoints`: the repositories of the domain."""

from persist.checkpoints.memories import Memories
from persist.checkpoints.states import CheckpointStates
from persist.checkpoints.threads import CheckpointThreads
from persist.db.transactions.repository import EachVerb, on_demand
from persist.db.transactions.unit_of_work import UnitOfWork


class Checkpoints:
    """Threads of graph runners, their checkpoints, and memories across threads."""

    threads = on_demand(CheckpointThreads)
    states = on_demand(CheckpointStates)
    memories = on_demand(Memories)

    def __init__(self, work: UnitOfWork | EachVerb) -> None:
        self._work = work
