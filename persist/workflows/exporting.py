"""The rows in the export of a workflow run."""

from persist.db.operations.exporting import Exported, Rows, the_id
from persist.workflows.models import approvals, effects, executions, runs, signals, waits

_E, _A, _F = executions.c, approvals.c, effects.c

RUN = Exported(
    "workflow run",
    runs.c.id,
    (
        Rows(runs, runs.c.id == the_id(), (runs.c.id,)),
        Rows(executions, _E.workflow_run_id == the_id(), (_E.started_at, _E.id)),
        Rows(approvals, _A.workflow_run_id == the_id(), (_A.created_at, _A.id)),
        Rows(effects, _F.run_id == the_id(), (_F.begun_at, _F.key)),
        Rows(signals, signals.c.run_id == the_id(), (signals.c.seq,)),
        Rows(waits, waits.c.run_id == the_id(), (waits.c.run_id,)),
    ),
)
