"""Leases: many workers share the runs of one database, and each run has one worker at a time.

A lease ends at its instant (store clock). Its token, which grows with every claim, fences out late writes. A running run that
waits for a worker because it was resumed or restarted has an expiry but no owner; a run whose worker died has both.
"""

from datetime import datetime, timedelta

from sqlalchemy import null, select, update

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.first_readable import FirstReadable
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_timedelta, optional_label
from persist.db.values.frozen import construct
from persist.errors import InvalidValue, LeaseLost, NotFound
from persist.workflows.models import IS_LEASED, runs
from persist.workflows.schemas import Lease, RunStatus, WorkflowRun
from persist.workflows.storage.run_rows import COLUMNS, check_hold, find_run, get_run, held_run, is_live, run_value
from persist.workflows.transitions import TERMINAL
from persist.workflows.verbs import recovery

_R = runs.c
_id = param("row_id")
_WAITING = select(*COLUMNS).with_for_update(skip_locked=True)
# as expressions, or an index of all runs would be read instead of the one of the few that are leased
_running = _R.status.concat("") == RunStatus.RUNNING
_named_as_well = _R.workflow_name.concat("") == param("workflow_name")
_LET_GO = _WAITING.where(IS_LEASED, _R.lease_expires_at <= param("at"), _running).order_by(_R.lease_expires_at, _R.id)
_OLDEST = _WAITING.where(_R.status == RunStatus.QUEUED).order_by(_R.started_at, _R.id)
_named = _R.workflow_name == param("workflow_name")
_CLAIMABLE = {
    False: (FirstReadable(_LET_GO), FirstReadable(_OLDEST)),
    True: (FirstReadable(_LET_GO.where(_named_as_well)), FirstReadable(_OLDEST.where(_named))),
}
_HELD = Statement(
    select(*COLUMNS)
    .where(IS_LEASED, _R.lease_expires_at > param("at"), _R.lease_owner == param("worker"))
    .order_by(_R.started_at, _R.id)
)
_TAKE = Statement(
    update(runs)
    .where(_R.id == _id)
    .values(
        status=RunStatus.RUNNING,
        restart_count=param("count"),
        lease_owner=param("worker"),
        lease_expires_at=param("until"),
        lease_token=param("token"),
        updated_at=param("at"),
    )
)
_RENEW = Statement(update(runs).where(_R.id == _id).values(lease_expires_at=param("until")))
_QUEUE = Statement(
    update(runs)
    .where(_R.id == _id)
    .values(status=RunStatus.QUEUED, lease_owner=null(), lease_expires_at=null(), updated_at=param("at"))
)
_LET = Statement(update(runs).where(_R.id == _id).values(lease_owner=null(), lease_expires_at=null(), updated_at=param("at")))
_RESUME = Statement(
    update(runs)
    .where(_R.id == _id)
    .values(status=RunStatus.RUNNING, lease_owner=param("owner"), lease_expires_at=param("until"), updated_at=param("at"))
)


def claim(work: UnitOfWork, worker: str, lease: timedelta, workflow_name: str | None) -> Lease | None:
    """See Runs.claim."""
    owner = work.label("worker", worker)
    span = check_timedelta("lease", lease, zero=False)
    name = optional_label("workflow_name", workflow_name)
    values = {} if name is None else {"workflow_name": name}
    let_go, oldest = _CLAIMABLE[name is not None]
    now = work.now()
    until = _instant("lease", now, span)
    while (row := let_go.find(work, at=now, **values) or oldest.find(work, **values)) is not None:
        run = run_value(row)
        count = run.restart_count
        if run.lease_owner is not None:
            recovery.fail_executions_of_run(work, run, "stale: lease expired")
            if recovery.at_cap(run):
                recovery.fail_by_cap(work, run)
                continue
            count += 1
        work.run(_TAKE, row_id=run.id, count=count, worker=owner, until=until, token=run.lease_token + 1, at=now)
        return _lease(get_run(work, run.id), owner)
    return None


def held_by(work: UnitOfWork, worker: str) -> list[Lease]:
    """See Runs.held_by."""
    owner = work.label("worker", worker)
    return [_lease(run_value(row), owner) for row in work.rows(_HELD, at=work.now(), worker=owner)]


def renew(work: UnitOfWork, lease: Lease, lease_for: timedelta) -> Lease:
    """See Runs.renew."""
    span = check_timedelta("lease_for", lease_for, zero=False)
    run = _own(work, lease)
    work.run(_RENEW, row_id=run.id, until=_instant("lease_for", work.now(), span))
    return _lease(get_run(work, run.id), lease.worker)


def release(work: UnitOfWork, lease: Lease) -> None:
    """See Runs.release."""
    run = find_run(work, _given(lease).run_id, lock=True)
    if run is None:
        raise NotFound("workflow run", lease.run_id)
    if run.status in TERMINAL and run.lease_token == lease.token:
        return
    check_hold(run, lease, work.now())
    if run.status == RunStatus.RUNNING:
        requeue(work, run)
    else:
        work.run(_LET, row_id=run.id, at=work.now())


def requeue(work: UnitOfWork, run: WorkflowRun) -> None:
    """Return a locked run to the queue without a holder, and fail its unfinished executions."""
    recovery.fail_executions_of_run(work, run, "stale: the run was queued again")
    work.run(_QUEUE, row_id=run.id, at=work.now())


def resume(work: UnitOfWork, run: WorkflowRun) -> None:
    """paused -> running for a locked run: a worker that still holds it continues, otherwise it waits for one."""
    now = work.now()
    live = is_live(run, now)
    owner, until = (run.lease_owner, run.lease_expires_at) if live else (None, recovery.handed_over_at(run, now))
    work.run(_RESUME, row_id=run.id, owner=owner, until=until, at=now)


def _own(work: UnitOfWork, lease: Lease) -> WorkflowRun:
    run = held_run(work, _given(lease).run_id, lease)
    if run.status in TERMINAL:
        raise LeaseLost(run.id, lease.token, f"the lease is over: the run is {run.status}.")
    return run


def _given(lease: object) -> Lease:
    if not isinstance(lease, Lease):
        raise InvalidValue("lease", f"expected a Lease, got {type(lease).__name__}.")
    return lease


def _instant(path: str, now: datetime, span: timedelta) -> datetime:
    try:
        return now + span
    except OverflowError:
        raise InvalidValue(path, "it ends after the year 9999.") from None


def _lease(run: WorkflowRun, worker: str) -> Lease:
    return construct(
        Lease,
        {"run_id": run.id, "worker": worker, "token": run.lease_token, "expires_at": run.lease_expires_at, "run": run},
    )
