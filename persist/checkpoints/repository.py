"""`tx.checkpoints`: the repositories of the domain."""

from persist.checkpoints.memories import Memories
from persist.checkpoints.states import CheckpointStates
from persist.checkpoints.threads import CheckpointThreads
from persist.db.repository import on_demand
from persist.db.work import Work


class Checkpoints:
    """Threads of graph runners, the state of each after every step, and memories across threads."""

    threads = on_demand(CheckpointThreads)
    states = on_demand(CheckpointStates)
    memories = on_demand(Memories)

    def __init__(self, work: Work) -> None:
        self._work = work
