"""Workflow runs: creating, listing, and every change from dispatch to end."""

from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Required, TypedDict, Unpack, overload

from sqlalchemy import func, select, update

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.repository import Async, F, NothingToDo, Repository, Sync, writes, writes_if_needed
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice, check_count, check_flag, optional_count, optional_label
from persist.db.values.frozen import construct
from persist.db.values.json import Json
from persist.workflows.models import IS_CHILD, approvals, runs
from persist.workflows.schemas import (
    TERMINAL,
    UNFINISHED,
    Approval,
    ApprovalStatus,
    Children,
    FailureKind,
    JoinUntil,
    Lease,
    RunStatus,
    WorkflowRun,
    allowed,
    check_transition,
)
from persist.workflows.storage import run_rows
from persist.workflows.storage.run_rows import APPROVAL, check_gate, insert_approval
from persist.workflows.verbs import claiming, creating, finishing, limits, phases, recovery
from persist.workflows.verbs.finishing import cancel_run, finish
from persist.workflows.verbs.recovery import fail_executions_of_run
from persist.workflows.verbs.run_reads import RunReads

# A run that pauses at a gate.

_A = approvals.c
_R = runs.c
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
_PAUSE, _PAUSE_AND_LET_GO = Statement(_pause), Statement(_pause.values(run_rows.NO_LEASE))


def pause_at_gate(
    work: UnitOfWork, run: WorkflowRun, question: dict[str, Any], item: dict[str, Any], scratch: Json, *, let_go: bool = False
) -> Approval:
    """Open the gate of a locked run, and pause it: `item` joins its history. `let_go`: its worker holds it no longer."""
    history = run_rows.history_with(work, run.phase_history, item)
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
    limits.announce_freed(work, run)
    assert inserted.result is not None
    return APPROVAL(inserted.result)


def wait_at_gate(work: UnitOfWork, run_id: str, question: dict[str, Any], lease: Lease | None) -> Approval | None:
    """The newest gate of this name, if it was answered; else None, and the run is paused at it."""
    with work.batch() as batch:
        locked = batch.row(run_rows.LOCK_RUN, row_id=run_id)
        newest = batch.row(_NEWEST_OF_GATE, run_id=run_id, gate=question["gate"])
    run = run_rows.found_run(locked.result, run_id)
    run_rows.check_hold(run, lease, work.now())
    approval = APPROVAL.optional(newest.result)
    if approval is not None and approval.status != ApprovalStatus.PENDING:
        return approval
    check_transition(run.id, run.status, RunStatus.PAUSED)
    if approval is None:
        item = run_rows.history_item(work, question["gate"], None, work.now())
        pause_at_gate(work, run, question, item, run.scratch, let_go=lease is not None)
    else:
        work.run_last(
            run_rows.SET_STATUS if lease is None else run_rows.LET_GO, row_id=run.id, to=RunStatus.PAUSED, at=work.now()
        )
        limits.announce_freed(work, run)
    return None


# A run waits for its children: it is paused and released, and the end of the last one lets it go on (storage.families).

_COUNTS = Statement(select(_R.status, func.count()).where(IS_CHILD, _R.parent_run_id == param("parent")).group_by(_R.status))
_JOIN = Statement(
    update(runs)
    .where(_R.id == param("row_id"))
    .values(status=RunStatus.PAUSED, join_until=param("goal"), **run_rows.NO_LEASE, updated_at=param("at"))
)


List = list


class _ClaimOptions(TypedDict, total=False):
    lease: Required[timedelta]
    workflow_name: str | None
    workflow_names: Sequence[str] | None


class Runs(RunReads[F]):
    """`tx.workflows.runs`. Verbs that return a bool return False for an unknown run or a status that does not allow them."""

    @writes
    def create(
        self,
        workflow_name: str,
        *,
        trigger_id: str,
        current_phase: str,
        repo: str | None = None,
        issue_number: int | None = None,
        context: Json = None,
        status: str = "running",
        max_restarts: int = creating.MAX_RESTARTS,
        id: str | None = None,
        idempotency_key: str | None = None,
        unique_trigger: bool = False,
        if_exists: Literal["return", "conflict"] = "return",
        priority: int = 0,
        not_before: datetime | None = None,
        max_attempts: int | None = None,
        parent_run_id: str | None = None,
        concurrency_key: str | None = None,
    ) -> WorkflowRun:
        """Create a run. `context` is an object that never changes again except for its `error`.

        Of all calls for a workflow with one `idempotency_key` the first creates the run, the others return it. With
        `unique_trigger` a run of the workflow and trigger that has not ended is returned instead of creating a second one.
        `if_exists="conflict"` raises Conflict in both cases. Raises Conflict if the id is taken.

        Queued runs of a higher `priority` are claimed first, none before `not_before`. `max_attempts`: see `release`. Runs of all
        workflows with the same `concurrency_key` share its limit, if `limits.set` sets one.

        `parent_run_id`: the parent of the run. Raises NotFound if there is none, Conflict if it has ended.
        """
        work = self._work
        turn = creating.Turn.of(priority, not_before, max_attempts)
        once = creating.Uniqueness.of(idempotency_key, unique_trigger=unique_trigger, if_exists=if_exists)
        now = work.now()
        known = check_choice("status", status, RunStatus)
        fields: dict[str, Any] = {
            **creating.fresh(work, id),
            "workflow_name": work.label("workflow_name", workflow_name),
            "trigger_id": work.label("trigger_id", trigger_id),
            "repo": optional_label("repo", repo),
            "issue_number": optional_count("issue_number", issue_number),
            "current_phase": run_rows.small_label(work, "current_phase", current_phase),
            "status": known,
            "max_restarts": check_count("max_restarts", max_restarts),
            "finished_at": now if known in TERMINAL else None,
            "idempotency_key": once.key,
            "unique_trigger_id": trigger_id if once.unique_trigger else None,
            **turn.fields(known, now),
            "parent_run_id": optional_label("parent_run_id", parent_run_id),
            "concurrency_key": creating.checked_key(concurrency_key),
            "context": run_rows.context_of(work, context),
        }
        return creating.create(work, fields, once, chosen=id is not None)

    @writes
    def append_phase(self, id: str, phase: str, entry: Json = None, *, lease: Lease | None = None) -> WorkflowRun:
        """Append `{"phase", "timestamp", **entry}` to the history; the phase becomes the current one."""
        return phases.append_phase(self._work, id, phase, entry, lease)

    @writes
    def merge_scratch(self, id: str, patch: Mapping[str, Json], *, lease: Lease | None = None) -> WorkflowRun:
        """Set the patch's keys in the run's scratch; other keys stay, and None is a value like any other."""
        return phases.merge_scratch(self._work, id, patch, lease)

    @writes
    def update_node_status(self, id: str, node: str, status: Json, *, lease: Lease | None = None) -> WorkflowRun:
        """Set one node's status; those of other nodes stay."""
        return phases.set_node_status(self._work, id, node, status, lease)

    @writes
    def finish(
        self,
        id: str,
        status: Literal["succeeded", "failed"],
        *,
        error: str | None = None,
        terminal_marker: tuple[str, Json] | None = None,
        lease: Lease | None = None,
    ) -> WorkflowRun:
        """End a run. `error` becomes `context.error`; phase and entry join the history. Raises TransitionError if ended."""
        return finish(self._work, id, status, error, terminal_marker, lease)

    @writes
    def cancel(self, id: str, *, reason: str | None = None, cascade: bool = False) -> bool:
        """Cancel the run, even if a worker holds it; the reason becomes `context.error`.

        With `cascade` all its descendants that have not ended are cancelled too, and the verb returns whether any run was.
        """
        if check_flag("cascade", cascade):
            return finishing.cancel_family(self._work, id, reason)
        return cancel_run(self._work, id, reason, frozenset(RunStatus) - TERMINAL, FailureKind.CANCELLED)

    @writes
    def expire_queued(self, id: str, reason: str) -> bool:
        """queued -> cancelled, with the reason in `context.error`: it waited too long."""
        told = self._work.body("reason", reason)
        return cancel_run(self._work, id, told, frozenset({RunStatus.QUEUED}), FailureKind.EXPIRED)

    @writes
    def pause(self, id: str, *, lease: Lease | None = None) -> bool:
        """running -> paused. A worker that pauses a run then releases it."""
        work = self._work
        run = run_rows.find_run(work, id)
        if run is None:
            return False
        run_rows.check_hold(run, lease, work.now())
        if run.status != RunStatus.RUNNING:
            return False
        work.run_last(run_rows.SET_STATUS, row_id=id, to=RunStatus.PAUSED, at=work.now())
        limits.announce_freed(work, run)
        return True

    @writes
    def resume(self, id: str, *, force: bool = False) -> bool:
        """paused -> running. A run that workers claim waits for a worker, unless its worker still holds it.

        Raises Conflict while a gate of the run is pending; with `force` its gates are rejected without a name instead.
        """
        walk_past = check_flag("force", force)
        run, gate = recovery.find_with_gate(self._work, id)
        if run is None or run.status != RunStatus.PAUSED:
            return False
        if not walk_past:
            check_gate(run, gate)
        recovery.resume(self._work, run, force=walk_past)
        return True

    @writes
    def admit(self, id: str) -> bool:
        """queued -> running, for the caller to run, whatever its limits; `started_at` does not change."""
        run = run_rows.find_run(self._work, id)
        if run is None or run.status != RunStatus.QUEUED:
            return False
        self._work.run_last(run_rows.SET_STATUS, row_id=id, to=RunStatus.RUNNING, at=self._work.now())
        return True

    @writes
    def requeue(self, id: str) -> bool:
        """running -> queued; unfinished executions are failed as stale. A run that is queued already gets a new `updated_at`."""
        work = self._work
        run = run_rows.find_run(work, id)
        if run is None or run.status not in (RunStatus.RUNNING, RunStatus.QUEUED):
            return False
        run_rows.check_hold(run, None, work.now())
        recovery.requeue(work, run)
        return True

    @writes
    def restart(self, id: str) -> bool:
        """failed or cancelled -> running. A person asked for it, so `max_restarts` is increased where necessary.

        Context (but for its error), scratch and history stay; `restart_count` grows by one.
        """
        run = run_rows.find_run(self._work, id)
        if run is None or run.status not in TERMINAL or not allowed(run.status, RunStatus.RUNNING):
            return False
        recovery.restart(self._work, run)
        return True

    @writes
    def increment_restart_count(self, id: str) -> int:
        """Count one more restart. Raises Conflict past the run's cap."""
        return recovery.increment(self._work, run_rows.held_run(self._work, id, None))

    @writes
    def recover_interrupted(self) -> tuple[List[WorkflowRun], List[WorkflowRun]]:
        """After a crash, at boot: (runs to dispatch again, runs that crashed once too often and failed).

        Concerns every running run that no worker holds. Its trigger's unfinished executions are failed as stale, and its
        `restart_count` grows; phases that are done are skipped by `executions.should_run`. Paused runs stay; queued ones
        are stamped as updated now.
        """
        return recovery.recover(self._work)

    def _nothing_to_claim(
        self,
        worker: str,
        *,
        lease: timedelta,
        workflow_name: str | None = None,
        workflow_names: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> NothingToDo | None:
        return claiming.nothing_to_claim(
            self._work, claiming.ClaimRequest.of(self._work, worker, lease, workflow_name, workflow_names, limit)
        )

    @overload
    def claim(self: Repository[Sync], /, worker: str, **wanted: Unpack[_ClaimOptions]) -> Lease | None: ...
    @overload
    def claim(self: Repository[Sync], /, worker: str, *, limit: int, **wanted: Unpack[_ClaimOptions]) -> List[Lease]: ...
    @overload
    def claim(self: Repository[Async], /, worker: str, **wanted: Unpack[_ClaimOptions]) -> Coroutine[Any, Any, Lease | None]: ...
    @overload
    def claim(
        self: Repository[Async], /, worker: str, *, limit: int, **wanted: Unpack[_ClaimOptions]
    ) -> Coroutine[Any, Any, List[Lease]]: ...
    @writes_if_needed(_nothing_to_claim)
    def claim(
        self,
        worker: str,
        *,
        lease: timedelta,
        workflow_name: str | None = None,
        workflow_names: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Any:
        """Claim a run for the time `lease`; None if there is none to claim. With `limit` a list of at most so many.

        First comes a running run that no worker holds: its worker died, or it was resumed or restarted. Then come queued ones, by
        priority and by how long they wait; none before its `not_before`, none of a workflow that was switched off, and none for
        which its `limits` have no room. Many workers may claim at once; each run has one. A dead worker's run has its executions
        failed as stale and counts as restarted; at its cap it fails, and the next one is claimed.
        """
        leases = claiming.claim(
            self._work, claiming.ClaimRequest.of(self._work, worker, lease, workflow_name, workflow_names, limit)
        )
        return leases if limit is not None else leases[0] if leases else None

    @writes
    def renew(self, lease: Lease, *, lease_for: timedelta) -> Lease:
        """Extend the lease to `lease_for` from now. Raises LeaseLost."""
        return recovery.renew(self._work, lease, lease_for)

    @writes
    def complete(self, lease: Lease) -> WorkflowRun:
        """End the work on a run: a running one succeeds, and one that was paused is released and waits for `resume`.

        Raises LeaseLost. A run that the worker has ended itself stays as it is.
        """
        return recovery.complete(self._work, lease)

    @writes
    def release(self, lease: Lease, *, retry_in: timedelta | None = None, error: str | None = None) -> None:
        """Release the run: a running one returns to the end of the queue, a paused one waits for `resume`. Raises LeaseLost.

        With `retry_in` or `error` an attempt of a running run has failed: it is tried again after that time. If it was the last
        of its `max_attempts` the run fails, with the failure kind "retries". Unfinished executions are failed as stale.
        """
        recovery.release(self._work, lease, retry_in, error)

    @writes
    def sleep_until(self, lease: Lease, at: datetime) -> WorkflowRun:
        """Release a running run, which is not claimed again before that instant; no attempt is counted.

        Raises LeaseLost, and TransitionError unless it runs. Unfinished executions are failed as stale.
        """
        return recovery.sleep_until(self._work, lease, at)

    @writes
    def join(self, lease: Lease, until: Literal["all", "first_failure"] = "all") -> Children | None:
        """How many children the run has, by status, if all of them have ended; otherwise None, and the run waits for them.

        For a handler, which returns when it gets None and is called again: the run is paused, and released. The run goes on when
        its last child ends, or with "first_failure" when a child fails or is cancelled; children that are created in the meantime
        count too. A pending gate of the run is not walked past. Unfinished executions are failed as stale. Raises LeaseLost, and
        TransitionError unless the run runs.
        """
        goal = check_choice("until", until, JoinUntil)
        work, run_id, now = self._work, run_rows.given_lease(lease).run_id, self._work.now()
        with work.batch() as batch:
            locked = batch.row(run_rows.LOCK_RUN, row_id=run_id)
            counted = batch.rows(_COUNTS, parent=run_id)
        run = run_rows.found_run(locked.result, run_id)
        run_rows.check_hold(run, lease, now)
        by_status = {str(status): int(count) for status, count in counted.result}
        children = construct(Children, {"total": sum(by_status.values()), "by_status": by_status})
        waits = any(status in by_status for status in UNFINISHED)
        if not waits or (goal is JoinUntil.FIRST_FAILURE and children.failed):
            return children
        check_transition(run.id, run.status, RunStatus.PAUSED)
        with work.batch(last=True) as batch:
            fail_executions_of_run(work, batch, run, "stale: the run waits for its children")
            batch.run(_JOIN, row_id=run.id, goal=goal, at=now)
        limits.announce_freed(work, run)
        return None
