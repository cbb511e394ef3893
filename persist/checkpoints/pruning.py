"""Pruning of checkpoints: threads without a new checkpoint for long, and expired memories."""

from persist.checkpoints.models import BELOW, memories, threads
from persist.db.operations.pruning import AgedRows, Below, Pruning

THREADS = AgedRows(
    threads,
    threads.c.updated_at,
    threads.c.id,
    below=[Below(table, lambda ids, table=table: table.c.thread_id.in_(ids)) for table in BELOW],  # type: ignore[misc]  # a bound default
)

MEMORIES = AgedRows(memories, memories.c.expires_at, memories.c.namespace, memories.c.key)
"""Memories pruned by the age of their expiry. Memories that never expire are kept."""

PRUNINGS: tuple[Pruning, ...] = (THREADS, MEMORIES)
