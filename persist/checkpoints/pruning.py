"""Pruning of checkpoints: threads without a new checkpoint for long, and expired memories."""

from persist.checkpoints.models import BELOW, memories, states, threads
from persist.db.operations.bounded_deletion import Below
from persist.db.operations.pruning import AgedRows, Pruning

THREADS = AgedRows(
    threads,
    threads.c.updated_at,
    threads.c.id,
    below=[
        # the newest checkpoints first: older ones are rebuilt from no newer one, and never lack a value
        Below(states, lambda ids: states.c.thread_id.in_(ids), order=(states.c.id.desc(), states.c.namespace)),
        *(Below(table, lambda ids, table=table: table.c.thread_id.in_(ids)) for table in BELOW if table is not states),  # type: ignore[misc]  # a bound default
    ],
)

MEMORIES = AgedRows(memories, memories.c.expires_at, memories.c.namespace, memories.c.key)
"""Memories pruned by the age of their expiry. Memories that never expire are kept."""

PRUNINGS: tuple[Pruning, ...] = (THREADS, MEMORIES)
