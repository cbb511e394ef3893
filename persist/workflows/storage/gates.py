"""The pending gates of a run, and closing them when the run continues or ends without an answer."""

from sqlalchemy import select, update

from persist.db.changes.batch import Batch
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import Conflict
from persist.workflows.models import IS_PENDING, approvals, runs
from persist.workflows.schemas import ApprovalStatus, WorkflowRun
from persist.workflows.transitions import TERMINAL

_A = approvals.c
_of_run = _A.workflow_run_id == param("run_id")
OPEN_GATE = Statement(select(_A.id, _A.gate).where(_of_run, IS_PENDING).order_by(_A.created_at, _A.id).limit(1))
"""The oldest pending gate of a run, which is locked: (id, gate)."""
_close = (
    update(approvals)
    .where(_of_run, IS_PENDING)
    .values(status=ApprovalStatus.REJECTED, response=param("new_response"), responded_at=param("at"))
)
_CLOSE = Statement(_close)
_ended = select(runs.c.id).where(runs.c.id == param("run_id"), among(runs.c.status, sorted(TERMINAL)))
_CLOSE_OF_ENDED = Statement(_close.where(_ended.exists()))


def close_gates(work: UnitOfWork, batch: Batch, run_id: str, why: str) -> None:
    """Reject every pending gate of a locked run, without a name: people who look for pending approvals must not find it."""
    batch.run(_CLOSE, run_id=run_id, new_response=why, at=work.now())


def close_gates_of_ended(work: UnitOfWork, batch: Batch, run_id: str, why: str) -> None:
    """Reject every pending gate of a run, if the run has ended."""
    batch.run(_CLOSE_OF_ENDED, run_id=run_id, new_response=why, at=work.now())


def check_gate(run: WorkflowRun, found: Row | None) -> None:
    """Raises Conflict if a gate was found pending: a run cannot continue without an answer to it."""
    if found is not None:
        id, gate = found
        raise Conflict(
            f"The workflow run {run.id!r} waits at its gate {gate!r}: answer the approval {id!r}, or resume with force=True.",
            constraint="workflow_approvals",
        )
