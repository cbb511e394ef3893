"""The row of an approval: reading it, and inserting it."""

from datetime import datetime
from typing import Any

from sqlalchemy import select

from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.upsert import insert_missing
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.actors import acting
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice
from persist.db.values.clock import as_utc
from persist.errors import InvalidValue
from persist.workflows.family_values import OnExpiry
from persist.workflows.models import approvals
from persist.workflows.schemas import Approval, ApprovalKind, ApprovalStatus

_A = approvals.c
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
