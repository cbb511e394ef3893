"""What an export of a thread holds."""

from persist.checkpoints.models import BELOW, threads
from persist.db.exporting import Exported, Rows, the_id

THREAD = Exported(
    "thread",
    threads.c.id,
    (
        Rows(threads, threads.c.id == the_id(), (threads.c.id,)),
        *(Rows(table, table.c.thread_id == the_id(), tuple(table.primary_key.columns)) for table in BELOW),
    ),
)
"""A thread with its checkpoints, values and writes."""
