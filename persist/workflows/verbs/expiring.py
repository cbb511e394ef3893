"""Gates that nobody answers in time: each is closed as it was asked to be, by whichever process looks first."""

import logging
from datetime import datetime
from typing import Any

from sqlalchemy import select, update

from persist.db.changes.batch import Pending
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable, is_unreadable
from persist.db.values.clock import as_utc
from persist.quoting import shown
from persist.workflows.family_values import OnExpiry
from persist.workflows.models import IS_EXPIRING_GATE, IS_PENDING, approvals, runs
from persist.workflows.schemas import Approval, ApprovalStatus, FailureKind, RunStatus, WorkflowRun
from persist.workflows.storage.approval_rows import APPROVAL
from persist.workflows.storage.payloads import with_error
from persist.workflows.storage.resuming import resume_ungated, resumption
from persist.workflows.storage.run_rows import RUN, announce_claimable
from persist.workflows.verbs.finishing import announce_finished, finish_values, write_finish

_A, _R = approvals.c, runs.c
log = logging.getLogger("persist")

_ANSWER = "Nobody answered in time."
_is_due = (IS_EXPIRING_GATE, _A.expires_at <= param("at"))
_DUE = Statement(
    select(_A.id, _A.workflow_run_id).where(*_is_due).order_by(_A.expires_at, _A.id).limit(100),
    unreadable=OnUnreadable.LEAVE_OUT,  # the others expire
)
_ANY_DUE = Statement(select(_A.id).where(*_is_due).limit(1))
_LOCK_DUE = Statement(select(*APPROVAL.columns).where(_A.id == param("row_id"), *_is_due).with_for_update())
_RUN_EXISTS = Statement(select(_R.id).where(_R.id == param("row_id")))
# Who has the run locked may be ending it, and wait for a parent that this transaction has locked: the next call looks again.
_LOCK_FREE_RUN = Statement(select(*RUN.columns).where(_R.id == param("row_id")).with_for_update(skip_locked=True))
_EXPIRE = Statement(
    update(approvals)
    .where(_A.id == param("gate_id"), IS_PENDING)
    .values(status=param("to"), response=param("new_response"), responded_at=param("at"))
    .returning(*APPROVAL.columns)
)


def instant(work: UnitOfWork, now: datetime | None) -> datetime:
    """The instant at which gates are looked for: now, or the given one."""
    return work.now() if now is None else as_utc("now", now)


def any_due(work: UnitOfWork, now: datetime | None) -> bool:
    """Whether a gate is to be closed."""
    return work.row(_ANY_DUE, at=instant(work, now)) is not None


def expire_due(work: UnitOfWork, now: datetime | None) -> list[Approval]:
    """See Approvals.expire_due."""
    at = instant(work, now)
    expired: list[Approval] = []
    failed: list[Pending[Row | None]] = []
    for gate_id, run_id in work.rows(_DUE, at=at):
        with work.batch() as batch:
            locked = batch.row(_LOCK_FREE_RUN, row_id=run_id)
            exists = batch.row(_RUN_EXISTS, row_id=run_id)
            due = batch.row(_LOCK_DUE, row_id=gate_id, at=at)
        if due.result is None or (locked.result is None and exists.result is not None):
            continue
        gate, run = APPROVAL(due.result), RUN.optional(locked.result)
        if _is_readable(due.result, run):
            expired.append(_expire(work, gate, run, failed))
        else:
            log.warning("%s is left as it is: its row, or that of its run, cannot be read", f"the approval {shown(gate_id)}")
    announce_finished(work, *failed)
    return expired


def _is_readable(gate: Row, run: WorkflowRun | None) -> bool:
    needed = () if run is None else (run.status, run.lease_owner, run.lease_expires_at, run.lease_token)
    return not any(map(is_unreadable, (*gate, *needed)))


def _expire(work: UnitOfWork, gate: Approval, run: WorkflowRun | None, failed: list[Pending[Row | None]]) -> Approval:
    """Close a locked gate, and let its locked run go on or fail if it is paused; a run that fails joins `failed`."""
    outcome = gate.on_expiry if gate.on_expiry in (OnExpiry.APPROVED, OnExpiry.RESUMED) else OnExpiry.REJECTED
    to = ApprovalStatus.APPROVED if outcome == OnExpiry.APPROVED else ApprovalStatus.REJECTED
    waits = run is not None and run.status == RunStatus.PAUSED
    ending: dict[str, Any] | None = None
    resumed: dict[str, Any] | None = None
    if run is not None and waits and outcome == OnExpiry.REJECTED:
        error = with_error(work, run.context, f"Expired: nobody answered {shown(gate.gate)} in time.")
        ending = finish_values(work, run, RunStatus.FAILED, FailureKind.EXPIRED, context=error)
    elif run is not None and waits:
        resumed = resumption(run, work.now())
    with work.batch() as batch:
        closed = batch.returned(_EXPIRE, gate_id=gate.id, to=to, new_response=_ANSWER, at=work.now())
        if ending is not None:
            failed.append(write_finish(work, batch, ending))
        if resumed is not None:
            resume_ungated(batch, resumed)
    if run is not None and resumed is not None:
        announce_claimable(work, run)
    assert closed.result is not None
    return APPROVAL(closed.result)
