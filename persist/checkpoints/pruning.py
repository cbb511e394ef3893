"""Pruning of checkpoints: threads that nobody used for long, and memories that expired."""

from persist.checkpoints.models import BELOW, memories, threads
from persist.db.pruning import AgedRows, Below, Pruning

THREADS = AgedRows(
    threads,
    threads.c.updated_at,
    threads.c.id,
    below=[Below(table, lambda ids, table=table: table.c.thread_id.in_(ids)) for table in BELOW],  # type: ignore[misc]  # a bound default
)

MEMORIES = AgedRows(memories, memories.c.expires_at, memories.c.namespace, memories.c.key)
"""By when they expired; what never does stays."""

PRUNINGS: tuple[Pruning, ...] = (THREADS, MEMORIES)
