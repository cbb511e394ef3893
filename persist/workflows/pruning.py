"""Pruning of workflows: runs that ended long ago, and old executions and answered approvals without a run."""

from sqlalchemy import exists

from persist.db.operations.bounded_deletion import Below
from persist.db.operations.pruning import AgedRows, Pruning
from persist.db.statements.prepared import among
from persist.workflows.models import approvals, effects, executions, runs, signals, waits
from persist.workflows.schemas import ApprovalStatus
from persist.workflows.transitions import TERMINAL

_R, _E, _A = runs.c, executions.c, approvals.c

RUNS = AgedRows(
    runs,
    _R.finished_at,
    _R.id,
    may_go=among(_R.status, TERMINAL) & ~exists().where(_E.workflow_run_id == _R.id, _E.finished_at.is_(None)),
    below=(
        Below(executions, lambda ids: _E.workflow_run_id.in_(ids) & _E.finished_at.is_not(None)),
        Below(approvals, lambda ids: _A.workflow_run_id.in_(ids)),
        Below(effects, lambda ids: effects.c.run_id.in_(ids)),
        Below(signals, lambda ids: signals.c.run_id.in_(ids)),
        Below(waits, lambda ids: waits.c.run_id.in_(ids)),
    ),
)
EXECUTIONS = AgedRows(
    executions,
    _E.finished_at,
    _E.id,
    only=_E.workflow_run_id.is_(None) | ~exists().where(_R.id == _E.workflow_run_id),
)
APPROVALS = AgedRows(
    approvals,
    _A.responded_at,
    _A.id,
    only=~exists().where(_R.id == _A.workflow_run_id),
    may_go=_A.status != ApprovalStatus.PENDING,
)

PRUNINGS: tuple[Pruning, ...] = (RUNS, EXECUTIONS, APPROVALS)
