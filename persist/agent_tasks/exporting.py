"""What an export of an agent's task contains."""

from persist.agent_tasks.models import pieces, tasks
from persist.db.operations.exporting import Exported, Rows, the_id

TASK = Exported(
    "agent task",
    tasks.c.id,
    (
        Rows(tasks, tasks.c.id == the_id(), (tasks.c.id,)),
        Rows(pieces, pieces.c.task == the_id(), tuple(pieces.primary_key.columns)),
    ),
)
"""An export of one task with its pieces. Webhooks hold secrets and stay behind."""
