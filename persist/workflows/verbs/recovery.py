"""Leases: who holds a run, and what becomes of runs, executions and gates that nobody renews, answers or ends in time."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import and_, null, or_, select, update

from persist.db.changes.batch import Batch, Pending
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable, is_unreadable, number_after
from persist.db.unreadable.conditions import reader_of
from persist.db.values.arguments import check_timedelta
from persist.db.values.clock import as_utc, instant_after
from persist.errors import Conflict, InvalidValue, LeaseLost, PayloadTooLarge, shown
from persist.workflows.models import IS_EXPIRING_GATE, IS_LEASED, IS_PENDING, IS_UNFINISHED, approvals, executions, runs
from persist.workflows.schemas import (
    TERMINAL,
    Approval,
    ApprovalStatus,
    FailureKind,
    Lease,
    OnExpiry,
    RunStatus,
    WorkflowRun,
    check_transition,
)
from persist.workflows.storage import run_rows
from persist.workflows.storage.queue import HAS_INSTANTS, WRITABLE, guard_values, lease_on
from persist.workflows.storage.run_rows import APPROVAL, OPEN_GATE, close_gates
from persist.workflows.verbs import finishing, limits
from persist.workflows.verbs.finishing import announce_finished, finish_values, write_finish

# Gates that nobody answers in time: each is closed as it was asked to be, by whichever process looks first.

_A = approvals.c
_R = runs.c
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
_LOCK_FREE_RUN = Statement(select(*run_rows.RUN.columns).where(_R.id == param("row_id")).with_for_update(skip_locked=True))
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
        gate, run = APPROVAL(due.result), run_rows.RUN.optional(locked.result)
        needed = () if run is None else (run.status, run.lease_owner, run.lease_expires_at, run.lease_token)
        if not any(map(is_unreadable, (*due.result, *needed))):
            expired.append(_expire(work, gate, run, failed))
        else:
            log.warning("%s is left as it is: its row, or that of its run, cannot be read", f"the approval {shown(gate_id)}")
    announce_finished(work, *failed)
    return expired


def _expire(work: UnitOfWork, gate: Approval, run: WorkflowRun | None, failed: list[Pending[Row | None]]) -> Approval:
    """Close a locked gate, and let its locked run go on or fail if it is paused; a run that fails joins `failed`."""
    outcome = gate.on_expiry if gate.on_expiry in (OnExpiry.APPROVED, OnExpiry.RESUMED) else OnExpiry.REJECTED
    to = ApprovalStatus.APPROVED if outcome == OnExpiry.APPROVED else ApprovalStatus.REJECTED
    waits = run is not None and run.status == RunStatus.PAUSED
    ending: dict[str, Any] | None = None
    resumed: dict[str, Any] | None = None
    if run is not None and waits and outcome == OnExpiry.REJECTED:
        error = run_rows.with_error(work, run.context, f"Expired: nobody answered {shown(gate.gate)} in time.")
        ending = finish_values(work, run, RunStatus.FAILED, FailureKind.EXPIRED, context=error)
    elif run is not None and waits:
        resumed = run_rows.resumption(run, work.now())
    with work.batch() as batch:
        closed = batch.returned(_EXPIRE, gate_id=gate.id, to=to, new_response=_ANSWER, at=work.now())
        if ending is not None:
            failed.append(write_finish(work, batch, ending))
        if resumed is not None:
            run_rows.resume_ungated(batch, resumed)
    if run is not None and resumed is not None:
        run_rows.announce_claimable(work, run)
    assert closed.result is not None
    return APPROVAL(closed.result)


# Recovery after a crash: stale executions, the restart count and its cap.

DEFAULT_CAP = 3
"""The restart cap of runs from adopted files, which lack one."""
_E = executions.c
_id = param("row_id")
_held = and_(_R.lease_owner.is_not(None), _R.lease_expires_at > param("at"))
_waits_for_worker = and_(_R.lease_owner.is_(None), _R.lease_expires_at.is_not(None))
_INTERRUPTED = Statement(
    select(*run_rows.RUN.columns)
    .where(_R.status == RunStatus.RUNNING, ~or_(_held, _waits_for_worker))
    .order_by(_R.started_at.desc(), _R.id.desc())  # children, which start later, are locked before their parents
    .with_for_update(),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_FAILED = {"success": False, "error": param("reason"), "finished_at": param("at")}
_FAIL_OF_RUN = Statement(update(executions).where(_E.workflow_run_id == _id, IS_UNFINISHED).values(_FAILED))
_FAIL_OF_TRIGGER = Statement(
    update(executions)
    .where(
        _E.trigger_id == param("of_trigger"),
        IS_UNFINISHED,
        or_(_E.workflow_run_id.is_(None), _E.workflow_run_id.not_in(select(_R.id).where(_held))),
    )
    .values(_FAILED)
)
_COUNT = Statement(
    update(runs)
    .where(_R.id == _id)
    .values(
        restart_count=param("count"),
        lease_owner=null(),
        lease_expires_at=null(),
        lease_token=param("token"),
        updated_at=param("at"),
    )
)
_INCREMENT = Statement(update(runs).where(_R.id == _id).values(restart_count=param("count"), updated_at=param("at")))
_STAMP_QUEUED = Statement(update(runs).where(_R.status == RunStatus.QUEUED).values(updated_at=param("at")))
_RESTART = Statement(
    update(runs)
    .where(_R.id == _id)
    .values(
        status=RunStatus.RUNNING,
        context=param("new_context"),
        max_restarts=param("maximum"),
        restart_count=param("count"),
        lease_expires_at=param("until"),
        attempt=1,
        not_before=null(),
        join_until=null(),
        failure_kind=null(),
        last_error=null(),
        updated_at=param("at"),
        finished_at=null(),
    )
)


def recover(work: UnitOfWork) -> tuple[list[WorkflowRun], list[WorkflowRun]]:
    """See Runs.recover_interrupted."""
    now = work.now()
    interrupted = [run_rows.RUN(row) for row in reversed(work.rows(_INTERRUPTED, at=now))]
    changes = [(run, change) for run in interrupted if (change := _change(work, run, now)) is not None]
    again, failed = [], []
    with work.batch(last=not any(ends and run.parent_run_id is not None for run, (ends, _) in changes)) as batch:
        for run, (ends, values) in changes:
            batch.run(_FAIL_OF_TRIGGER, of_trigger=run.trigger_id, reason="stale: harness restarted", at=now)
            if ends:
                failed.append(write_finish(work, batch, values))
            else:
                batch.run(_COUNT, **values)
                again.append(batch.row(run_rows.GET_RUN, row_id=run.id))
        batch.run(_STAMP_QUEUED, at=now)
    return [run_rows.written_run(row) for row in again], announce_finished(work, *failed)


def _change(work: UnitOfWork, run: WorkflowRun, now: datetime) -> tuple[bool, dict[str, Any]] | None:
    """Whether the run is to end, and the values for that; None, with a warning, for a label that cannot be bound."""
    try:
        for column in (_R.id, _R.trigger_id):
            if (reason := reader_of(column)(getattr(run, column.name))) is not None:
                raise InvalidValue(column.name, f"it is {reason}.")
        work.label("id", run.id)
        if at_cap(run):
            return True, _failure(work, run, FailureKind.RESTARTS, _too_often(run))
        # a worker whose lease ran out is fenced out by a newer token
        token = run.lease_token if run.lease_owner is None else number_after("lease_token", run.lease_token)
        return False, {"row_id": run.id, "count": number_after("restart_count", run.restart_count), "token": token, "at": now}
    except (InvalidValue, PayloadTooLarge) as error:
        log.warning("%s is left as it is: %s", f"the workflow run {shown(run.id)}", error)
        return None


def fail_executions_of_run(work: UnitOfWork, batch: Batch, run: WorkflowRun, reason: str) -> None:
    """Fail the run's unfinished executions, which no worker will finish."""
    batch.run(_FAIL_OF_RUN, row_id=run.id, reason=reason, at=work.now())


def at_cap(run: WorkflowRun) -> bool:
    """Whether the run has reached its restart cap."""
    return run.restart_count >= (DEFAULT_CAP if run.max_restarts is None else run.max_restarts)


def fail_by_cap(work: UnitOfWork, run: WorkflowRun, reason: str) -> None:
    """End a locked run that crashed too often, and fail its unfinished executions for that reason."""
    fail(work, run, FailureKind.RESTARTS, _too_often(run), reason)


def fail(work: UnitOfWork, run: WorkflowRun, kind: FailureKind, error: str, reason: str) -> None:
    """End a locked run as failed, and fail its unfinished executions for that reason."""
    values = _failure(work, run, kind, error)
    with work.batch() as batch:
        fail_executions_of_run(work, batch, run, reason)
        ended = write_finish(work, batch, values)
    announce_finished(work, ended)


def _failure(work: UnitOfWork, run: WorkflowRun, kind: FailureKind, error: str) -> dict[str, Any]:
    return finish_values(work, run, RunStatus.FAILED, kind, context=run_rows.with_error(work, run.context, error))


def _too_often(run: WorkflowRun) -> str:
    return f"Interrupted again after {run.restart_count} restarts, which is as many as it may have."


def increment(work: UnitOfWork, run: WorkflowRun) -> int:
    """Count a restart of a locked run. Raises Conflict at the cap, which the schema enforces too."""
    if at_cap(run):
        raise Conflict(
            f"The workflow run {run.id!r} was restarted {run.restart_count} times, which is as often as it may be.",
            constraint="ck_workflow_runs_max_restarts",
        )
    work.run_last(_INCREMENT, row_id=run.id, count=number_after("restart_count", run.restart_count), at=work.now())
    return run.restart_count + 1


def restart(work: UnitOfWork, run: WorkflowRun) -> None:
    """Restart a locked run that failed or was cancelled. A person asked for it, so the cap is raised if necessary."""
    now, count = work.now(), number_after("restart_count", run.restart_count)
    maximum = None if run.max_restarts is None else max(run.max_restarts, count)
    new_context = None if run.context is None else {key: value for key, value in run.context.items() if key != "error"}
    until = run_rows.handed_over_at(run, now)
    try:
        with work.batch(last=True) as batch:
            batch.run(_RESTART, row_id=run.id, new_context=new_context, count=count, maximum=maximum, until=until, at=now)
            batch.run(run_rows.END_WAIT, run_id=run.id)
    except Exception as error:
        if not isinstance(work.runtime.translate(error), Conflict):
            raise
        work.doomed = not work.joined
        # the only unique index over the status is that of triggers with one unfinished run
        raise Conflict(
            f"The workflow run {run.id!r} cannot be restarted: its trigger {run.trigger_id!r} has another unfinished run.",
            constraint="ix_workflow_runs_unique_trigger",
        ) from error
    run_rows.announce_claimable(work, run)


# Leases: many workers share the runs of one database, and each run has one worker at a time.
#
# A lease ends at its instant (store clock). Its token, which grows with every claim, fences out late writes. A running run that
# waits for a worker because it was resumed or restarted has an expiry but no owner; a run whose worker died has both.

_FOREVER = datetime.max.replace(tzinfo=UTC)
_REQUEUED = "stale: the run was queued again"
_HELD = Statement(
    select(*run_rows.RUN.columns)
    .where(IS_LEASED, _R.lease_expires_at > param("at"), _R.lease_owner == param("worker"))
    .order_by(_R.started_at, _R.id)
)
_RENEW_AT_ONCE = Statement(
    update(runs)
    .where(_R.id == _id, WRITABLE[True], HAS_INSTANTS, ~among(_R.status, sorted(TERMINAL)))
    .values(lease_expires_at=param("until"))
    .returning(*run_rows.RUN.columns)
)
_RENEW = Statement(update(runs).where(_R.id == _id).values(lease_expires_at=param("until")))
_requeue = (
    update(runs)
    .where(_R.id == _id)
    .values(
        status=RunStatus.QUEUED, **run_rows.NO_LEASE, queued_at=param("since"), not_before=param("due"), updated_at=param("at")
    )
)
_REQUEUE = Statement(_requeue)
_RETRY = Statement(_requeue.values(attempt=param("number"), last_error=param("reason")))
_CLEAR_LEASE = Statement(update(runs).where(_R.id == _id).values(**run_rows.NO_LEASE, updated_at=param("at")))


def held_by(work: UnitOfWork, worker: str) -> list[Lease]:
    """See Runs.held_by."""
    owner = work.label("worker", worker)
    return [lease_on(run_rows.RUN(row), owner) for row in work.rows(_HELD, at=work.now(), worker=owner)]


def renew(work: UnitOfWork, lease: Lease, lease_for: timedelta) -> Lease:
    """See Runs.renew."""
    span, now = check_timedelta("lease_for", lease_for, zero=False), work.now()
    held = guard_values(work, run_rows.given_lease(lease).run_id, lease)
    if held is not None and span <= _FOREVER - now:
        row = work.returned(_RENEW_AT_ONCE, row_id=work.label("id", lease.run_id), at=now, until=now + span, **held)
        if row is not None:
            return lease_on(run_rows.RUN(row), lease.worker)
    run = run_rows.held_run(work, lease.run_id, lease)
    if run.status in TERMINAL:
        raise LeaseLost(run.id, lease.token, f"the lease is over: the run is {run.status}.")
    until = instant_after("lease_for", work.now(), span)
    return lease_on(run_rows.changed_run(work, _RENEW, run.id, until=until), lease.worker)


def release(work: UnitOfWork, lease: Lease, retry_in: timedelta | None, error: str | None) -> None:
    """See Runs.release."""
    pause = None if retry_in is None else check_timedelta("retry_in", retry_in)
    due = instant_after("retry_in", work.now(), pause) if pause else None
    run_rows.with_error(work, None, error)
    run = run_rows.get_run(work, run_rows.given_lease(lease).run_id, lock=True)
    if run.status in TERMINAL and run.lease_token == lease.token:
        return
    run_rows.check_hold(run, lease, work.now())
    if run.status != RunStatus.RUNNING:
        clear_lease(work, run)
    elif pause is None and error is None:
        requeue(work, run)
    elif run.max_attempts is not None and run.attempt >= run.max_attempts:
        why = f"Each of its {run.attempt} attempts failed." if error is None else error
        fail(work, run, FailureKind.RETRIES, why, "stale: the attempt failed")
    else:
        _requeue_run(work, run, due, _RETRY, number=number_after("attempt", run.attempt), reason=error)


def sleep_until(work: UnitOfWork, lease: Lease, at: datetime) -> WorkflowRun:
    """See Runs.sleep_until."""
    due = as_utc("at", at)
    run = run_rows.held_run(work, run_rows.given_lease(lease).run_id, lease)
    check_transition(run.id, run.status, RunStatus.QUEUED)
    return _requeue_run(work, run, due)


def clear_lease(work: UnitOfWork, run: WorkflowRun) -> WorkflowRun:
    """End the lease of a locked run that waits; the run."""
    return run_rows.changed_run(work, _CLEAR_LEASE, run.id, at=work.now())


def requeue(work: UnitOfWork, run: WorkflowRun) -> None:
    """Return a locked run to the queue without a holder, and fail its unfinished executions. A queued one keeps its place."""
    if run.status == RunStatus.QUEUED:
        with work.batch(last=True) as batch:
            fail_executions_of_run(work, batch, run, _REQUEUED)
            batch.run(_REQUEUE, row_id=run.id, since=run.queued_at, due=run.not_before, at=work.now())
        run_rows.announce_claimable(work, run)
    else:
        _requeue_run(work, run, None)


def _requeue_run(
    work: UnitOfWork, run: WorkflowRun, due: datetime | None, statement: Statement = _REQUEUE, **values: Any
) -> WorkflowRun:
    """Put a locked run at the end of the queue, or let it wait until it is due."""
    now = work.now()
    since = now if due is None else max(now, due)
    with work.batch(last=True) as batch:
        fail_executions_of_run(work, batch, run, _REQUEUED)
        batch.run(statement, row_id=run.id, since=since, due=due, at=now, **values)
        written = batch.row(run_rows.GET_RUN, row_id=run.id)
    if since == now:
        run_rows.announce_claimable(work, run)
    limits.announce_freed(work, run)
    return run_rows.written_run(written)


def find_with_gate(work: UnitOfWork, id: str) -> tuple[WorkflowRun | None, Row | None]:
    """The run, locked, and its oldest pending gate."""
    run_id = work.label("id", id)
    with work.batch() as batch:
        run, gate = batch.row(run_rows.LOCK_RUN, row_id=run_id), batch.row(OPEN_GATE, run_id=run_id)
    return run_rows.RUN.optional(run.result), gate.result


def resume(work: UnitOfWork, run: WorkflowRun, *, force: bool) -> None:
    """paused -> running for a locked run, which its worker continues, or a new one. `force`: reject its pending gates."""
    values = run_rows.resumption(run, work.now())
    with work.batch(last=True) as batch:
        if force:
            close_gates(work, batch, run.id, "The run was resumed without an answer.")
        batch.run(run_rows.RESUME, **values)
    run_rows.announce_claimable(work, run)


def complete(work: UnitOfWork, lease: Lease) -> WorkflowRun:
    """See Runs.complete."""
    ended = finishing.complete(work, run_rows.given_lease(lease))
    if ended is not None:
        return ended
    run = run_rows.get_run(work, lease.run_id, lock=True)
    if run.lease_token == lease.token and (
        run.status in TERMINAL or run.status == RunStatus.QUEUED or (run.lease_owner is None and lease.expires_at > work.now())
    ):
        return run
    run_rows.check_hold(run, lease, work.now())
    if run.status == RunStatus.RUNNING:
        return finishing.finish_run(work, run, RunStatus.SUCCEEDED, None, context=run.context)
    return clear_lease(work, run)
