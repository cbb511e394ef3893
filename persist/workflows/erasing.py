"""Erasing workflows: runs with an execution of an erased session, the runs they started, and executions without a run."""

from persist.db.operations.erasing import LINK, LOGS, SESSION, Erasable, ErasableRows, found_by, holding
from persist.db.operations.erasing_ways import Lead, Way, equal
from persist.workflows.models import approvals, effects, executions, runs, signals, waits

_R, _E = runs.c, executions.c


class _Runs(ErasableRows):
    derived_from = _R.parent_run_id


ERASABLES: tuple[Erasable, ...] = (
    _Runs(
        runs,
        ("id",),
        {SESSION: equal(_R.id)},
        (
            holding(executions, "workflow_run_id"),
            holding(approvals, "workflow_run_id"),
            holding(effects, "run_id"),
            holding(signals, "run_id"),
            holding(waits, "run_id"),
        ),
        further=[Way(by, equal(_E.session_id), (_E.workflow_run_id,)) for by in (SESSION, LINK)],
        # of the run's other phases only the logs: the session itself may be of somebody else
        leading=(Lead((_E.workflow_run_id,), found_by(LOGS), (_E.session_id,)),),
    ),
    ErasableRows(executions, ("id",), {SESSION: equal(_E.session_id), LINK: equal(_E.session_id)}, own_streams=False),
)
