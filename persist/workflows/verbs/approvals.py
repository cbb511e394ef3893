"""Approvals: gates at which a run waits for a person, each resolved once however many people answer."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import select, update

from persist.db.expressions.upsert import taken
from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.repository import F, NothingToDo, Repository, reads, writes, writes_if_needed
from persist.db.transactions.unit_of_work import UnitOfWork, acting
from persist.db.values.arguments import check_choice, check_flag, optional_label
from persist.db.values.json import Json
from persist.db.values.pages import PagedList
from persist.errors import Conflict, TransitionError
from persist.workflows.models import IS_PENDING, approvals, runs
from persist.workflows.schemas import (
    TERMINAL,
    Approval,
    ApprovalKind,
    ApprovalStatus,
    FailureKind,
    Lease,
    RunStatus,
    WorkflowRun,
    check_transition,
)
from persist.workflows.storage import run_rows
from persist.workflows.storage.run_rows import (
    APPROVAL,
    GET,
    INSERT,
    checked_question,
    found_approval,
    get_approval,
    insert_approval,
)
from persist.workflows.verbs import recovery
from persist.workflows.verbs.finishing import announce_finished, finish_values, write_finish
from persist.workflows.verbs.runs import pause_at_gate, wait_at_gate

List = list
Expiry = Literal["rejected", "approved", "resumed"]
_A, _R = approvals.c, runs.c
_id = param("row_id")
_BY_KEY = Statement(
    select(*APPROVAL.columns).where(
        _A.workflow_run_id == param("run_id"), _A.idempotency_key == param("key"), _A.idempotency_key.is_not(None)
    )
)
_LOCK_PENDING = Statement(select(*APPROVAL.columns).where(_A.id == _id, IS_PENDING).with_for_update())
_LOCK_RUN_OF_PENDING = Statement(
    select(*run_rows.RUN.columns)
    .where(_R.id == select(_A.workflow_run_id).where(_A.id == _id, IS_PENDING).scalar_subquery())
    .with_for_update()
)
_OF_RUN = Statement(select(*APPROVAL.columns).where(_A.workflow_run_id == param("run_id")).order_by(_A.created_at, _A.id))
_resolve = (
    update(approvals)
    .where(_A.id == _id, IS_PENDING)
    .values(status=param("to"), responded_by=param("by"), response=param("new_response"), responded_at=param("at"))
)
_RESOLVE = Statement(_resolve)
_RESOLVE_REPLY = Statement(_resolve.where(_A.kind == ApprovalKind.REPLY))
_SET_SCRATCH = Statement(update(runs).where(_R.id == _id).values(scratch=param("value")))
_PENDING = Keyset(
    "workflows.approvals.pending",
    APPROVAL,
    (_A.created_at, _A.id),
    {
        "run_id": _A.workflow_run_id == param("run_id"),
        "trigger_id": _A.workflow_run_id.in_(select(_R.id).where(_R.trigger_id == param("trigger_id"))),
        "of_kind": _A.kind == param("of_kind"),
    },
    where=[IS_PENDING],
    exact=True,
)


class Approvals(Repository[F]):
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
        idempotency_key: str | None = None,
        expires_at: datetime | None = None,
        on_expiry: Expiry | None = None,
    ) -> Approval:
        """Open a gate; the run itself does not change (`pause_for_approval` pauses it).

        If nobody answers it until `expires_at`, `expire_due` closes it as `on_expiry` says: "rejected", the default, fails a run
        that is paused; "approved" approves the gate and "resumed" rejects it, and a paused run goes on.

        Of all calls for a run with one `idempotency_key` the first opens the gate; the others return it, answered or not. Raises
        NotFound for an unknown run, Conflict for one that has ended or for an id that is taken.
        """
        asked = checked_question(
            self._work,
            gate=gate,
            summary=summary,
            kind=kind,
            requested_by=requested_by,
            expires_at=expires_at,
            on_expiry=on_expiry,
        )
        key = asked["idempotency_key"] = optional_label("idempotency_key", idempotency_key)
        row_id = None if id is None else self._work.label("id", id)
        run_id = self._work.label("id", workflow_run_id)
        with self._work.batch() as batch:
            run_row = batch.row(run_rows.LOCK_RUN, row_id=run_id)
            known = None if key is None else batch.row(_BY_KEY, run_id=run_id, key=key)
        run = run_rows.found_run(run_row.result, run_id)
        if known is not None and known.result is not None:
            return APPROVAL(known.result)
        if run.status in TERMINAL:
            raise Conflict(f"The workflow run {run.id!r} has ended ({run.status}): nothing would wait at its gate.")
        with self._work.batch(last=True) as batch:
            inserted = insert_approval(self._work, batch, row_id, workflow_run_id, asked)
        if inserted.result is None:
            assert row_id is not None
            raise taken(INSERT, "approval", row_id)
        return APPROVAL(inserted.result)

    @reads
    def get(self, id: str) -> Approval:
        """The approval. Raises NotFound."""
        return get_approval(self._work, id)

    @reads
    def pending(
        self,
        *,
        workflow_run_id: str | None = None,
        trigger_id: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> PagedList[Approval]:
        """Pending approvals, newest first; without a trigger also those whose run is gone.

        Without a `limit` all of them; with one a page, whose `cursor` is `after` for the next one.
        """
        work = self._work
        values: dict[str, Any] = {}
        if workflow_run_id is not None:
            values["run_id"] = work.label("workflow_run_id", workflow_run_id)
        if trigger_id is not None:
            values["trigger_id"] = work.label("trigger_id", trigger_id)
        if kind is not None:
            values["of_kind"] = check_choice("kind", kind, ApprovalKind)
        return _PENDING.pages(work, limit, after, values)

    @reads
    def list_for_run(self, workflow_run_id: str) -> List[Approval]:
        """Every gate of a run, answered or not, oldest first."""
        run_id = self._work.label("workflow_run_id", workflow_run_id)
        return [APPROVAL(row) for row in self._work.rows(_OF_RUN, run_id=run_id)]

    @writes
    def respond(self, id: str, *, approved: bool, by: str | None = None, response: str | None = None) -> bool:
        """Answer a gate of either kind and leave the run alone; False if it was not pending. `by`: else who acts."""
        work = self._work
        to = ApprovalStatus.APPROVED if check_flag("approved", approved) else ApprovalStatus.REJECTED
        return bool(work.run_last(_RESOLVE, **_answer(work, work.label("id", id), to, by=by, response=response)))

    @writes
    def resolve_reply(self, id: str, *, response: str, by: str | None = None) -> bool:
        """Answer a reply gate with free text; False if it was not pending, or no reply gate."""
        work = self._work
        new_response = work.body("response", response)
        values = _answer(work, work.label("id", id), ApprovalStatus.APPROVED, by=by, response=new_response)
        return bool(work.run_last(_RESOLVE_REPLY, **values))

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
        expires_at: datetime | None = None,
        on_expiry: Expiry | None = None,
    ) -> Approval:
        """In one step: the marker (phase, entry) joins the history, scratch is merged, the gate opens, the run pauses.

        Raises TransitionError unless it runs. A worker that pauses a run then releases it.
        """
        work = self._work
        item = run_rows.history_item(work, *run_rows.marker_of(marker), work.now())
        patch = {} if scratch is None else run_rows.small_values(work, "scratch", scratch)
        question = checked_question(
            work, gate=gate, summary=summary, kind=kind, requested_by=requested_by, expires_at=expires_at, on_expiry=on_expiry
        )
        run = run_rows.held_run(work, workflow_run_id, lease)
        check_transition(run.id, run.status, RunStatus.PAUSED)
        return pause_at_gate(work, run, question, item, _merged(work, run, patch))

    @writes
    def wait(
        self,
        workflow_run_id: str,
        gate: str,
        *,
        summary: str,
        kind: Literal["approve", "reply"] = "approve",
        requested_by: str | None = None,
        lease: Lease | None = None,
        expires_at: datetime | None = None,
        on_expiry: Expiry | None = None,
    ) -> Approval | None:
        """The answer to the run's newest gate of this name; None if there is none yet: the gate is open, and the run is paused.

        For a handler, which returns when it gets None and is called again after the answer. A gate that was closed without an
        answer is returned too: its `status` is rejected. The gate is a phase of the run's history. A `lease` has ended when this
        returns None, so that an answer that comes before the handler has returned finds a run that nobody holds. Raises
        TransitionError unless the run runs.
        """
        work = self._work
        question = checked_question(
            work, gate=gate, summary=summary, kind=kind, requested_by=requested_by, expires_at=expires_at, on_expiry=on_expiry
        )
        return wait_at_gate(work, work.label("id", workflow_run_id), question, lease)

    @writes
    def resolve_and_resume(
        self, id: str, *, by: str | None = None, response: str | None = None, scratch: Mapping[str, Json] | None = None
    ) -> WorkflowRun:
        """In one step: approve, merge scratch, resume the run; while another of its gates is pending, it stays paused.

        Raises Conflict if the gate was not pending, TransitionError if the run is not paused: nothing changes.
        """
        work = self._work
        patch = {} if scratch is None else run_rows.small_values(work, "scratch", scratch)
        answer = _answer(work, id, ApprovalStatus.APPROVED, by=by, response=response)
        run = self._gate(id, RunStatus.RUNNING)
        value, resumed = _merged(work, run, patch), run_rows.resumption(run, work.now())
        with work.batch(last=True) as batch:
            batch.run(_RESOLVE, **answer)
            if patch:
                batch.run(_SET_SCRATCH, row_id=run.id, value=value)
            run_rows.resume_ungated(batch, resumed)
            written = batch.row(run_rows.GET_RUN, row_id=run.id)
        run_rows.announce_claimable(work, run)
        return run_rows.written_run(written)

    @writes
    def resolve_and_fail(self, id: str, *, by: str | None = None, reason: str | None = None) -> WorkflowRun:
        """In one step: reject, and fail the run with `Rejected: …` as its error. Raises Conflict if the gate was not pending."""
        work = self._work
        error = f"Rejected: {work.body('reason', reason or 'no reason given')}"
        run_rows.with_error(work, None, error, path="reason")
        answer = _answer(work, id, ApprovalStatus.REJECTED, by=by, response=reason)
        run = self._gate(id, RunStatus.FAILED)
        values = finish_values(
            work, run, RunStatus.FAILED, FailureKind.REJECTED, context=run_rows.with_error(work, run.context, error)
        )
        with work.batch(last=run.parent_run_id is None) as batch:
            batch.run(_RESOLVE, **answer)
            ended = write_finish(work, batch, values)
        (finished,) = announce_finished(work, ended)
        return finished

    def _nothing_due(self, now: datetime | None = None) -> NothingToDo | None:
        return None if recovery.any_due(self._work, now) else NothingToDo([])

    @writes_if_needed(_nothing_due)
    def expire_due(self, now: datetime | None = None) -> List[Approval]:
        """Close gates that nobody answered in time, now or at the given instant, up to 100 of them: those that this call closed.

        Any process may call it at any time, and workers do. A run that is paused goes on, or fails with the failure kind
        "expired", as `on_expiry` says; a run that is not paused is left alone.
        """
        return recovery.expire_due(self._work, now)

    def _gate(self, id: str, to: RunStatus) -> WorkflowRun:
        """The run of a pending gate, both locked: the run first, as everything does that ends a run and closes its gates."""
        work = self._work
        gate_id = work.label("id", id)
        with work.batch() as batch:
            asked = batch.row(GET, row_id=gate_id)
            found = batch.row(_LOCK_RUN_OF_PENDING, row_id=gate_id)
            pending = batch.row(_LOCK_PENDING, row_id=gate_id)
        approval = found_approval(asked.result, id)
        _check_pending(approval)
        if found.result is not None and pending.result is not None:
            run = run_rows.RUN(found.result)
        else:  # its run is gone, or another caller has just answered it
            run = run_rows.get_run(work, approval.workflow_run_id, lock=True)
            _check_pending(get_approval(work, id, lock=True))
        if to is RunStatus.RUNNING and run.status != RunStatus.PAUSED:  # others begin only by admit, claim and restart
            raise TransitionError(f"workflow run {run.id!r}", str(run.status), str(to))
        check_transition(run.id, run.status, to)
        return run


def _check_pending(approval: Approval) -> None:
    if approval.status != ApprovalStatus.PENDING:
        raise Conflict(f"The approval {approval.id!r} is not pending: it was {approval.status} already.")


def _answer(work: UnitOfWork, id: str, to: ApprovalStatus, *, by: str | None, response: str | None) -> dict[str, Any]:
    new_response = None if response is None else work.body("response", response)
    return {"by": acting(work, "by", by), "new_response": new_response, "row_id": id, "to": to, "at": work.now()}


def _merged(work: UnitOfWork, run: WorkflowRun, patch: dict[str, Any]) -> Json:
    return work.json("scratch", {**(run.scratch or {}), **patch}) if patch else run.scratch
