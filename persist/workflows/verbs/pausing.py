"""A run that pauses at a gate."""

from typing import Any

from sqlalchemy import select, update

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.json import Json
from persist.workflows.models import approvals, runs
from persist.workflows.schemas import Approval, ApprovalStatus, Lease, RunStatus, WorkflowRun
from persist.workflows.storage.approval_rows import APPROVAL, insert_approval
from persist.workflows.storage.payloads import history_item, history_with
from persist.workflows.storage.run_rows import LET_GO, LOCK_RUN, NO_LEASE, SET_STATUS, check_hold, found_run
from persist.workflows.transitions import check_transition
from persist.workflows.verbs import limiting

_A, _R = approvals.c, runs.c
_NEWEST_OF_GATE = Statement(
    select(*APPROVAL.columns)
    .where(_A.workflow_run_id == param("run_id"), _A.gate == param("gate"))
    .order_by(_A.created_at.desc(), _A.id.desc())
    .limit(1)
)
_pause = (
    update(runs)
    .where(_R.id == param("row_id"))
    .values(
        status=RunStatus.PAUSED,
        current_phase=param("phase"),
        phase_history=param("history"),
        scratch=param("value"),
        updated_at=param("at"),
    )
)
_PAUSE, _PAUSE_AND_LET_GO = Statement(_pause), Statement(_pause.values(NO_LEASE))


def pause_at_gate(
    work: UnitOfWork,
    run: WorkflowRun,
    question: dict[str, Any],
    item: dict[str, Any],
    scratch: Json,
    *,
    let_go: bool = False,
) -> Approval:
    """Open the gate of a locked run, and pause it: `item` joins its history. `let_go`: its worker holds it no longer."""
    history = history_with(work, run.phase_history, item)
    with work.batch(last=True) as batch:
        batch.run(
            _PAUSE_AND_LET_GO if let_go else _PAUSE,
            row_id=run.id,
            phase=item["phase"],
            history=history,
            value=scratch,
            at=work.now(),
        )
        inserted = insert_approval(work, batch, None, run.id, question)
    limiting.announce_freed(work, run)
    assert inserted.result is not None
    return APPROVAL(inserted.result)


def wait_at_gate(work: UnitOfWork, run_id: str, question: dict[str, Any], lease: Lease | None) -> Approval | None:
    """The newest gate of this name, if it was answered; else None, and the run is paused at it."""
    with work.batch() as batch:
        locked = batch.row(LOCK_RUN, row_id=run_id)
        newest = batch.row(_NEWEST_OF_GATE, run_id=run_id, gate=question["gate"])
    run = found_run(locked.result, run_id)
    check_hold(run, lease, work.now())
    approval = APPROVAL.optional(newest.result)
    if approval is not None and approval.status != ApprovalStatus.PENDING:
        return approval
    check_transition(run.id, run.status, RunStatus.PAUSED)
    if approval is None:
        item = history_item(work, question["gate"], None, work.now())
        pause_at_gate(work, run, question, item, run.scratch, let_go=lease is not None)
    else:
        with work.batch(last=True) as batch:
            batch.run(SET_STATUS if lease is None else LET_GO, row_id=run.id, to=RunStatus.PAUSED, at=work.now())
        limiting.announce_freed(work, run)
    return None
