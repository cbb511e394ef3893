"""The pending gates of a run, and closing them when the run continues or ends without an answer."""

from sqlalchemy import select, update

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import Conflict
from persist.workflows.models import IS_PENDING, approvals
from persist.workflows.schemas import ApprovalStatus, WorkflowRun

_A = approvals.c
_of_run = _A.workflow_run_id == param("run_id")
_OPEN = Statement(select(_A.id, _A.gate).where(_of_run, IS_PENDING).order_by(_A.created_at, _A.id).limit(1))
_CLOSE = Statement(
    update(approvals)
    .where(_of_run, IS_PENDING)
    .values(status=ApprovalStatus.REJECTED, response=param("said"), responded_at=param("at"))
)


def has_open_gate(work: UnitOfWork, run_id: str) -> bool:
    """Whether the run, which is locked, has a pending gate."""
    return work.row(_OPEN, run_id=run_id) is not None


def close_gates(work: UnitOfWork, run_id: str, why: str) -> None:
    """Reject every pending gate of a locked run, without a name: people who look for pending approvals must not find it."""
    work.run(_CLOSE, run_id=run_id, said=why, at=work.now())


def leave_gates(work: UnitOfWork, run: WorkflowRun, *, force: bool) -> None:
    """Before a locked run continues without an answer: Conflict if a gate is pending; with `force` reject its gates."""
    if force:
        close_gates(work, run.id, "The run was resumed without an answer.")
    elif (found := work.row(_OPEN, run_id=run.id)) is not None:
        id, gate = found
        raise Conflict(
            f"The workflow run {run.id!r} waits at its gate {gate!r}: answer the approval {id!r}, or resume with force=True.",
            constraint="workflow_approvals",
        )
