"""The gates at which a run waits: which are open, and what becomes of them when the run goes on or ends without an answer."""

from sqlalchemy import select, update

from persist.db.hot import Hot, param
from persist.db.work import Work
from persist.errors import Conflict
from persist.workflows.models import IS_PENDING, approvals
from persist.workflows.schemas import ApprovalStatus, WorkflowRun

_A = approvals.c
_of_run = _A.workflow_run_id == param("run_id")
_OPEN = Hot(select(_A.id, _A.gate).where(_of_run, IS_PENDING).order_by(_A.created_at, _A.id).limit(1))
_CLOSE = Hot(
    update(approvals)
    .where(_of_run, IS_PENDING)
    .values(status=ApprovalStatus.REJECTED, response=param("said"), responded_at=param("at"))
)


def has_open_gate(work: Work, run_id: str) -> bool:
    """Whether a gate of the run, which is locked, waits for an answer."""
    return work.row(_OPEN, run_id=run_id) is not None


def close_gates(work: Work, run_id: str, why: str) -> None:
    """Reject every gate of a locked run that still waits, by nobody: whoever looks for work to approve must not find it."""
    work.run(_CLOSE, run_id=run_id, said=why, at=work.now())


def leave_gates(work: Work, run: WorkflowRun, *, force: bool) -> None:
    """A locked run is about to go on without an answer: Conflict if a gate waits, unless forced."""
    if force:
        close_gates(work, run.id, "The run was resumed without an answer.")
    elif (found := work.row(_OPEN, run_id=run.id)) is not None:
        id, gate = found
        raise Conflict(
            f"The workflow run {run.id!r} waits at its gate {gate!r}: answer the approval {id!r}, or resume with force=True.",
            constraint="workflow_approvals",
        )
