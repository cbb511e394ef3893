"""Leases: many workers share the runs of one database, and each run has one worker at a time.

A lease ends at its instant (store clock). Its token, which grows with every claim, fences out late writes. A running run that
waits for a worker because it was resumed or restarted has an expiry but no owner; a run whose worker died has both.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select, update

from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_timedelta
from persist.db.values.clock import as_utc, instant_after
from persist.db.values.frozen import construct
from persist.errors import InvalidValue, LeaseLost
from persist.workflows.models import IS_LEASED, runs
from persist.workflows.schemas import FailureKind, Lease, RunStatus, WorkflowRun
from persist.workflows.storage.gates import OPEN_GATE, close_gates
from persist.workflows.storage.hold_guard import HAS_INSTANTS, WRITABLE, guard_values
from persist.workflows.storage.payloads import with_error
from persist.workflows.storage.resuming import RESUME, resumption
from persist.workflows.storage.run_rows import (
    GET_RUN,
    LOCK_RUN,
    NO_LEASE,
    RUN,
    announce_claimable,
    check_hold,
    get_run,
    held_run,
    written_run,
)
from persist.workflows.transitions import TERMINAL, check_transition
from persist.workflows.verbs import limiting, recovery

_R = runs.c
_FOREVER = datetime.max.replace(tzinfo=UTC)
_REQUEUED = "stale: the run was queued again"
_id = param("row_id")
_HELD = Statement(
    select(*RUN.columns)
    .where(IS_LEASED, _R.lease_expires_at > param("at"), _R.lease_owner == param("worker"))
    .order_by(_R.started_at, _R.id)
)
_RENEW_AT_ONCE = Statement(
    update(runs)
    .where(_R.id == _id, WRITABLE[True], HAS_INSTANTS, ~among(_R.status, sorted(TERMINAL)))
    .values(lease_expires_at=param("until"))
    .returning(*RUN.columns)
)
_RENEW = Statement(update(runs).where(_R.id == _id).values(lease_expires_at=param("until")))
_requeue = (
    update(runs)
    .where(_R.id == _id)
    .values(
        status=RunStatus.QUEUED,
        **NO_LEASE,
        queued_at=param("since"),
        not_before=param("due"),
        updated_at=param("at"),
    )
)
_REQUEUE = Statement(_requeue)
_RETRY = Statement(_requeue.values(attempt=param("number"), last_error=param("reason")))
_CLEAR_LEASE = Statement(update(runs).where(_R.id == _id).values(**NO_LEASE, updated_at=param("at")))


def held_by(work: UnitOfWork, worker: str) -> list[Lease]:
    """See Runs.held_by."""
    owner = work.label("worker", worker)
    return [lease_on(RUN(row), owner) for row in work.rows(_HELD, at=work.now(), worker=owner)]


def renew(work: UnitOfWork, lease: Lease, lease_for: timedelta) -> Lease:
    """See Runs.renew."""
    span = check_timedelta("lease_for", lease_for, zero=False)
    row = _renew_at_once(work, given_lease(lease), span)
    if row is not None:
        return lease_on(RUN(row), lease.worker)
    run = _own(work, lease)
    until = instant_after("lease_for", work.now(), span)
    with work.batch(last=True) as batch:
        batch.run(_RENEW, row_id=run.id, until=until)
        written = batch.row(GET_RUN, row_id=run.id)
    return lease_on(written_run(written), lease.worker)


def _renew_at_once(work: UnitOfWork, lease: Lease, span: timedelta) -> Row | None:
    """Check and renew in one statement. None, and nothing is written, if that may not be done, or not in this way."""
    held, now = guard_values(work, lease.run_id, lease), work.now()
    if held is None or span > _FOREVER - now:
        return None
    return work.returned(_RENEW_AT_ONCE, row_id=work.label("id", lease.run_id), at=now, until=now + span, **held)


def release(work: UnitOfWork, lease: Lease, retry_in: timedelta | None, error: str | None) -> None:
    """See Runs.release."""
    pause = None if retry_in is None else check_timedelta("retry_in", retry_in)
    due = instant_after("retry_in", work.now(), pause) if pause else None
    with_error(work, None, error)
    run = get_run(work, given_lease(lease).run_id, lock=True)
    if run.status in TERMINAL and run.lease_token == lease.token:
        return
    check_hold(run, lease, work.now())
    if run.status != RunStatus.RUNNING:
        clear_lease(work, run)
    elif pause is None and error is None:
        requeue(work, run)
    elif run.max_attempts is not None and run.attempt >= run.max_attempts:
        why = f"Each of its {run.attempt} attempts failed." if error is None else error
        recovery.fail(work, run, FailureKind.RETRIES, why, "stale: the attempt failed")
    else:
        _requeue_run(work, run, due, _RETRY, number=run.attempt + 1, reason=error)


def sleep_until(work: UnitOfWork, lease: Lease, at: datetime) -> WorkflowRun:
    """See Runs.sleep_until."""
    due = as_utc("at", at)
    run = held_run(work, given_lease(lease).run_id, lease)
    check_transition(run.id, run.status, RunStatus.QUEUED)
    return _requeue_run(work, run, due)


def clear_lease(work: UnitOfWork, run: WorkflowRun) -> WorkflowRun:
    """End the lease of a locked run that waits; the run."""
    with work.batch(last=True) as batch:
        batch.run(_CLEAR_LEASE, row_id=run.id, at=work.now())
        row = batch.row(GET_RUN, row_id=run.id)
    return written_run(row)


def requeue(work: UnitOfWork, run: WorkflowRun) -> None:
    """Return a locked run to the queue without a holder, and fail its unfinished executions. A queued one keeps its place."""
    if run.status == RunStatus.QUEUED:
        with work.batch(last=True) as batch:
            recovery.fail_executions_of_run(work, batch, run, _REQUEUED)
            batch.run(_REQUEUE, row_id=run.id, since=run.queued_at, due=run.not_before, at=work.now())
        announce_claimable(work, run)
    else:
        _requeue_run(work, run, None)


def _requeue_run(
    work: UnitOfWork, run: WorkflowRun, due: datetime | None, statement: Statement = _REQUEUE, **values: Any
) -> WorkflowRun:
    """Put a locked run at the end of the queue, or let it wait until it is due."""
    now = work.now()
    since = now if due is None else max(now, due)
    with work.batch(last=True) as batch:
        recovery.fail_executions_of_run(work, batch, run, _REQUEUED)
        batch.run(statement, row_id=run.id, since=since, due=due, at=now, **values)
        written = batch.row(GET_RUN, row_id=run.id)
    if since == now:
        announce_claimable(work, run)
    limiting.announce_freed(work, run)
    return written_run(written)


def find_with_gate(work: UnitOfWork, id: str) -> tuple[WorkflowRun | None, Row | None]:
    """The run, locked, and its oldest pending gate."""
    run_id = work.label("id", id)
    with work.batch() as batch:
        run, gate = batch.row(LOCK_RUN, row_id=run_id), batch.row(OPEN_GATE, run_id=run_id)
    return RUN.optional(run.result), gate.result


def resume(work: UnitOfWork, run: WorkflowRun, *, force: bool) -> None:
    """paused -> running for a locked run: a worker that still holds it continues, otherwise it waits for one.

    `force`: its pending gates are rejected.
    """
    values = resumption(run, work.now())
    with work.batch(last=True) as batch:
        if force:
            close_gates(work, batch, run.id, "The run was resumed without an answer.")
        batch.run(RESUME, **values)
    announce_claimable(work, run)


def _own(work: UnitOfWork, lease: Lease) -> WorkflowRun:
    run = held_run(work, given_lease(lease).run_id, lease)
    if run.status in TERMINAL:
        raise LeaseLost(run.id, lease.token, f"the lease is over: the run is {run.status}.")
    return run


def given_lease(lease: object) -> Lease:
    """The argument, checked to be a lease."""
    if not isinstance(lease, Lease):
        raise InvalidValue("lease", f"expected a Lease, got {type(lease).__name__}.")
    return lease


def lease_on(run: WorkflowRun, worker: str) -> Lease:
    """The lease of a worker on the run as it has just been claimed or renewed."""
    return construct(
        Lease,
        {"run_id": run.id, "worker": worker, "token": run.lease_token, "expires_at": run.lease_expires_at, "run": run},
    )
