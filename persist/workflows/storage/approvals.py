"""The row of an approval, and closing the gates of a run that goes on or ends without an answer."""

from datetime import datetime
from typing import Any

from sqlalchemy import select, update

from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.upsert import insert_missing
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork, acting
from persist.db.values.arguments import check_choice
from persist.db.values.clock import as_utc
from persist.errors import Conflict, InvalidValue
from persist.workflows.models import IS_PENDING, approvals, runs
from persist.workflows.schemas import TERMINAL, Approval, ApprovalKind, ApprovalStatus, OnExpiry, WorkflowRun

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


APPROVAL = Values(Approval, approvals)
INSERT = Statement(insert_missing(approvals).returning(*APPROVAL.columns))
GET = Statement(select(*APPROVAL.columns).where(_A.id == param("row_id")))
LOCK = Statement(select(*APPROVAL.columns).where(_A.id == param("row_id")).with_for_update())


def get_approval(work: UnitOfWork, id: str, *, lock: bool = False) -> Approval:
    """The approval. Raises NotFound."""
    return found_approval(work.row(LOCK if lock else GET, row_id=work.label("id", id)), id)


def found_approval(row: Row | None, id: str) -> Approval:
    """The approval in a row that was looked for. Raises NotFound."""
    return APPROVAL.found(row, "approval", id)


def checked_question(
    work: UnitOfWork,
    *,
    gate: str,
    summary: str,
    kind: str,
    requested_by: str | None,
    expires_at: datetime | None = None,
    on_expiry: str | None = None,
) -> dict[str, Any]:
    """The columns that say what a gate asks, and until when."""
    until = None if expires_at is None else as_utc("expires_at", expires_at)
    outcome = None if on_expiry is None else check_choice("on_expiry", on_expiry, OnExpiry)
    if until is None and outcome is not None:
        raise InvalidValue("on_expiry", "only a gate with `expires_at` expires.")
    return {
        "expires_at": until,
        "on_expiry": None if until is None else outcome or OnExpiry.REJECTED,
        "gate": work.label("gate", gate),
        "summary": work.body("summary", summary),
        "kind": check_choice("kind", kind, ApprovalKind),
        "requested_by": acting(work, "requested_by", requested_by),
    }


def insert_approval(
    work: UnitOfWork, batch: Batch, id: str | None, workflow_run_id: str, question: dict[str, Any]
) -> Pending[Row | None]:
    """Insert a pending approval; its row, None if the id is taken."""
    row_id = work.runtime.ids.mint("apr") if id is None else id
    stored = {"id": row_id, "workflow_run_id": workflow_run_id, "status": ApprovalStatus.PENDING, "created_at": work.now()}
    return batch.returned(INSERT, **{**dict.fromkeys(APPROVAL.fields), **question, **stored})
