"""What an export of a thread contains."""

from persist.checkpoints.models import BELOW, threads
from persist.db.operations.exporting import Exported, Rows, the_id

THREAD = Exported(
    "thread",
    threads.c.id,
    (
        Rows(threads, threads.c.id == the_id(), (threads.c.id,)),
        *(Rows(table, table.c.thread_id == the_id(), tuple(table.primary_key.columns)) for table in BELOW),
    ),
)
"""An export of one thread with its checkpoints, values, pieces and writes."""
