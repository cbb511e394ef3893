"""Approvals: gates at which a run waits for a person, each resolved once however many people answer."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from sqlalchemy import select, update

from persist.db.expressions.upsert import insert_missing, insert_once
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.repository import Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice, check_flag, optional_label
from persist.db.values.frozen import construct
from persist.db.values.json import Json
from persist.errors import Conflict, NotFound, TransitionError
from persist.workflows.models import IS_PENDING, approvals, runs
from persist.workflows.schemas import Approval, ApprovalKind, ApprovalStatus, Lease, RunStatus, WorkflowRun
from persist.workflows.storage.gates import has_open_gate
from persist.workflows.storage.payloads import history_item, history_with, marker_of, small_values, with_error
from persist.workflows.storage.run_rows import get_run, held_run
from persist.workflows.transitions import TERMINAL, check_transition
from persist.workflows.verbs import leases
from persist.workflows.verbs.finishing import finish_run

_A, _R = approvals.c, runs.c
_id = param("row_id")
_FIELDS = tuple(Approval.model_fields)
_COLUMNS = tuple(_A[name] for name in _FIELDS)
_INSERT = Statement(insert_missing(approvals, "id"))
_GET = Statement(select(*_COLUMNS).where(_A.id == _id))
_LOCK = Statement(select(*_COLUMNS).where(_A.id == _id).with_for_update())
_OF_RUN = Statement(select(*_COLUMNS).where(_A.workflow_run_id == param("run_id")).order_by(_A.created_at, _A.id))
_RESOLVE = Statement(
    update(approvals)
    .where(_A.id == _id, IS_PENDING)
    .values(status=param("to"), responded_by=param("by"), response=param("said"), responded_at=param("at"))
)
_PAUSE = Statement(
    update(runs)
    .where(_R.id == _id)
    .values(
        status=RunStatus.PAUSED,
        current_phase=param("phase"),
        phase_history=param("history"),
        scratch=param("value"),
        updated_at=param("at"),
    )
)
_SET_SCRATCH = Statement(update(runs).where(_R.id == _id).values(scratch=param("value")))


@cache
def _pending(*, of_run: bool, triggered: bool, kind: bool) -> Statement:
    query = select(*_COLUMNS).where(IS_PENDING).order_by(_A.created_at.desc(), _A.id.desc())
    if of_run:
        query = query.where(_A.workflow_run_id == param("run_id"))
    if triggered:
        query = query.where(_A.workflow_run_id.in_(select(_R.id).where(_R.trigger_id == param("trigger_id"))))
    if kind:
        query = query.where(_A.kind == param("of_kind"))
    return Statement(query)


class Approvals(Repository):
    """`tx.workflows.approvals`."""

    @writes
    def request(
        self,
        workflow_run_id: str,
        *,
        gate: str,
        summary: str,
        kind: Literal["approve", "reply"] = "approve",
        requested_by: str | None = None,
        id: str | None = None,
    ) -> Approval:
        """Open a gate; the run itself does not change (`pause_for_approval` pauses it).

        NotFound for an unknown run, Conflict for one that has ended or for an id that is taken.
        """
        asked = _asked(self._work, gate=gate, summary=summary, kind=kind, requested_by=requested_by)
        row_id = None if id is None else self._work.label("id", id)
        run = get_run(self._work, workflow_run_id, lock=True)
        if run.status in TERMINAL:
            raise Conflict(f"The workflow run {run.id!r} has ended ({run.status}): nothing would wait at its gate.")
        return _insert(self._work, row_id, workflow_run_id, asked)

    @reads
    def get(self, id: str) -> Approval:
        """The approval; NotFound."""
        return _get(self._work, id)

    @reads
    def pending(
        self, *, workflow_run_id: str | None = None, trigger_id: str | None = None, kind: str | None = None
    ) -> list[Approval]:
        """Pending approvals, newest first; without a trigger also those whose run is gone."""
        work = self._work
        values: dict[str, Any] = {}
        if workflow_run_id is not None:
            values["run_id"] = work.label("workflow_run_id", workflow_run_id)
        if trigger_id is not None:
            values["trigger_id"] = work.label("trigger_id", trigger_id)
        if kind is not None:
            values["of_kind"] = check_choice("kind", kind, ApprovalKind)
        statement = _pending(of_run=workflow_run_id is not None, triggered=trigger_id is not None, kind=kind is not None)
        return [_value(row) for row in work.rows(statement, **values)]

    @reads
    def list_for_run(self, workflow_run_id: str) -> list[Approval]:
        """Every gate of a run, answered or not, oldest first."""
        run_id = self._work.label("workflow_run_id", workflow_run_id)
        return [_value(row) for row in self._work.rows(_OF_RUN, run_id=run_id)]

    @writes
    def respond(self, id: str, *, approved: bool, by: str | None = None, response: str | None = None) -> bool:
        """Answer a gate of either kind and leave the run alone; False if it was not pending."""
        work = self._work
        to = ApprovalStatus.APPROVED if check_flag("approved", approved) else ApprovalStatus.REJECTED
        return _resolve(work, work.label("id", id), to, by=by, response=response)

    @writes
    def resolve_reply(self, id: str, *, response: str, by: str | None = None) -> bool:
        """Answer a reply gate with free text; False if it was not pending, or no reply gate."""
        work = self._work
        said = work.body("response", response)
        row = work.row(_LOCK, row_id=work.label("id", id))
        if row is None or _value(row).kind != ApprovalKind.REPLY:
            return False
        return _resolve(work, id, ApprovalStatus.APPROVED, by=by, response=said)

    @writes
    def pause_for_approval(
        self,
        workflow_run_id: str,
        *,
        gate: str,
        summary: str,
        marker: tuple[str, Json],
        scratch: Mapping[str, Json] | None = None,
        kind: Literal["approve", "reply"] = "approve",
        requested_by: str | None = None,
        lease: Lease | None = None,
    ) -> Approval:
        """In one step: the marker (phase, entry) joins the history, scratch is merged, the gate opens, the run pauses.

        TransitionError unless it runs. A worker that pauses a run then releases it.
        """
        work = self._work
        item = history_item(work, *marker_of(marker), work.now())
        patch = {} if scratch is None else small_values(work, "scratch", scratch)
        asked = _asked(work, gate=gate, summary=summary, kind=kind, requested_by=requested_by)
        run = held_run(work, workflow_run_id, lease)
        check_transition(run.id, run.status, RunStatus.PAUSED)
        history = history_with(work, run.phase_history, item)
        value = _merged(work, run, patch)
        work.run(_PAUSE, row_id=run.id, phase=item["phase"], history=history, value=value, at=work.now())
        return _insert(work, None, run.id, asked)

    @writes
    def resolve_and_resume(
        self, id: str, *, by: str | None = None, response: str | None = None, scratch: Mapping[str, Json] | None = None
    ) -> WorkflowRun:
        """In one step: approve, merge scratch, resume the run; while another of its gates is pending, it stays paused.

        Conflict if the gate was not pending, TransitionError if the run is not paused: nothing changes.
        """
        work = self._work
        patch = {} if scratch is None else small_values(work, "scratch", scratch)
        approval, run = self._gate(id, RunStatus.RUNNING, by=by, response=response)
        value = _merged(work, run, patch)
        _resolve(work, approval.id, ApprovalStatus.APPROVED, by=by, response=response)
        if patch:
            work.run(_SET_SCRATCH, row_id=run.id, value=value)
        if not has_open_gate(work, run.id):
            leases.resume(work, run)
        return get_run(work, run.id)

    @writes
    def resolve_and_fail(self, id: str, *, by: str | None = None, reason: str | None = None) -> WorkflowRun:
        """In one step: reject, and fail the run with `Rejected: …` as its error. Conflict if the gate was not pending."""
        work = self._work
        error = f"Rejected: {work.body('reason', reason or 'no reason given')}"
        with_error(work, None, error, path="reason")
        approval, run = self._gate(id, RunStatus.FAILED, by=by, response=reason)
        _resolve(work, approval.id, ApprovalStatus.REJECTED, by=by, response=reason)
        return finish_run(work, run, RunStatus.FAILED, context=with_error(work, run.context, error))

    def _gate(self, id: str, to: RunStatus, *, by: str | None, response: str | None) -> tuple[Approval, WorkflowRun]:
        """The pending gate and its run, both locked: the run first, as everything does that ends a run and closes its gates."""
        work = self._work
        _answer(work, by=by, response=response)
        _check_pending(asked := _get(work, id))
        run = get_run(work, asked.workflow_run_id, lock=True)
        _check_pending(approval := _get(work, id, lock=True))
        if to is RunStatus.RUNNING and run.status != RunStatus.PAUSED:  # others begin only by admit, claim and restart
            raise TransitionError(f"workflow run {run.id!r}", str(run.status), str(to))
        check_transition(run.id, run.status, to)
        return approval, run


def _check_pending(approval: Approval) -> None:
    if approval.status != ApprovalStatus.PENDING:
        raise Conflict(f"The approval {approval.id!r} is not pending: it was {approval.status} already.")


def _value(row: Row) -> Approval:
    return construct(Approval, dict(zip(_FIELDS, row, strict=True)))


def _get(work: UnitOfWork, id: str, *, lock: bool = False) -> Approval:
    row = work.row(_LOCK if lock else _GET, row_id=work.label("id", id))
    if row is None:
        raise NotFound("approval", id)
    return _value(row)


def _asked(work: UnitOfWork, *, gate: str, summary: str, kind: str, requested_by: str | None) -> dict[str, Any]:
    return {
        "gate": work.label("gate", gate),
        "summary": work.body("summary", summary),
        "kind": check_choice("kind", kind, ApprovalKind),
        "requested_by": optional_label("requested_by", requested_by),
    }


def _insert(work: UnitOfWork, id: str | None, workflow_run_id: str, asked: dict[str, Any]) -> Approval:
    row_id = work.runtime.ids.mint("apr") if id is None else id
    stored = {"id": row_id, "workflow_run_id": workflow_run_id, "status": ApprovalStatus.PENDING, "created_at": work.now()}
    insert_once(work, _INSERT, "approval", {**dict.fromkeys(_FIELDS), **asked, **stored})
    return _get(work, row_id)


def _answer(work: UnitOfWork, *, by: str | None, response: str | None) -> dict[str, str | None]:
    return {"by": optional_label("by", by), "said": None if response is None else work.body("response", response)}


def _resolve(work: UnitOfWork, id: str, to: ApprovalStatus, *, by: str | None, response: str | None) -> bool:
    return bool(work.run(_RESOLVE, row_id=id, to=to, at=work.now(), **_answer(work, by=by, response=response)))


def _merged(work: UnitOfWork, run: WorkflowRun, patch: dict[str, Any]) -> Json:
    return work.json("scratch", {**(run.scratch or {}), **patch}) if patch else run.scratch
