"""`tx.checkpoints`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, F, on_demand
from persist.framework_state.checkpoints.memories import Memories
from persist.framework_state.checkpoints.states import CheckpointStates, CheckpointThreads


class Checkpoints(Domain[F]):
    """Threads of graph runners, their checkpoints, and memories across threads."""

    threads = on_demand(CheckpointThreads[F])
    states = on_demand(CheckpointStates[F])
    memories = on_demand(Memories[F])
