"""Leases: many workers share the runs of one database, and each run has one worker at a time.

A lease ends at its instant (store clock). Its token, which grows with every claim, fences out late writes. A running run that
waits for a worker because it was resumed or restarted has an expiry but no owner; a run whose worker died has both.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import and_, literal_column, null, select, update
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import FromClause

from persist.db.changes.batch import Batch
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.transactions.first_readable import FirstReadable
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import check_timedelta, optional_label
from persist.db.values.frozen import construct
from persist.errors import InvalidValue, LeaseLost, NotFound
from persist.workflows.models import IS_LEASED, runs
from persist.workflows.schemas import Lease, RunStatus, WorkflowRun
from persist.workflows.storage.gates import OPEN_GATE, close_gates
from persist.workflows.storage.hold_guard import HAS_INSTANTS, WRITABLE, guard_values, is_plain
from persist.workflows.storage.run_rows import (
    COLUMNS,
    FIELDS,
    GET_RUN,
    LOCK_RUN,
    announce_claimable,
    check_hold,
    find_run,
    held_run,
    is_live,
    run_value,
    written_run,
)
from persist.workflows.transitions import TERMINAL
from persist.workflows.verbs import recovery

_R = runs.c
_FOREVER = datetime.max.replace(tzinfo=UTC)
_id = param("row_id")


def _queued(table: FromClause) -> ColumnElement[bool]:
    """Whether a run of the table waits in the queue.

    A range instead of an equation: only an index that begins with the status has the order of `_oldest_first` then. For an
    equation Postgres would read all runs, the oldest first, while its statistics still say that most of them are queued.
    """
    return and_(table.c.status >= RunStatus.QUEUED, table.c.status <= RunStatus.QUEUED)


def _oldest_first(table: FromClause) -> tuple[ColumnElement[Any], ...]:
    return table.c.status.desc(), table.c.started_at, table.c.id


_LOCKED = select(*COLUMNS).with_for_update(skip_locked=True)
# `|| ''` keeps the planner off the index of all statuses, so that it uses the small partial index of the leased runs
_running = _R.status.concat("") == RunStatus.RUNNING
_named_as_well = _R.workflow_name.concat("") == param("workflow_name")
_UNHELD = _LOCKED.where(IS_LEASED, _R.lease_expires_at <= param("at"), _running).order_by(_R.lease_expires_at, _R.id)
_OLDEST = _LOCKED.where(_queued(runs)).order_by(*_oldest_first(runs))
_named = _R.workflow_name == param("workflow_name")
_CLAIMABLE = {
    False: (FirstReadable(_UNHELD), FirstReadable(_OLDEST)),
    True: (FirstReadable(_UNHELD.where(_named_as_well)), FirstReadable(_OLDEST.where(_named))),
}
_FIRST_UNHELD = {
    False: Statement(_UNHELD.limit(literal_column("1"))),
    True: Statement(_UNHELD.where(_named_as_well).limit(literal_column("1"))),
}
_HELD = Statement(
    select(*COLUMNS)
    .where(IS_LEASED, _R.lease_expires_at > param("at"), _R.lease_owner == param("worker"))
    .order_by(_R.started_at, _R.id)
)
_CLAIM = Statement(
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
_any_queued = select(_R.id).where(_queued(runs)).order_by(*_oldest_first(runs)).limit(literal_column("1"))
_ANY_QUEUED = {False: Statement(_any_queued), True: Statement(_any_queued.where(_named))}
_UNDO_CLAIM = Statement(
    update(runs)
    .where(_R.id == _id)
    .values(
        status=RunStatus.QUEUED,
        lease_owner=null(),
        lease_expires_at=null(),
        lease_token=_R.lease_token - 1,
        updated_at=param("at"),
    ),
    silent=True,
)
_RENEW_AT_ONCE = Statement(
    update(runs)
    .where(_R.id == _id, WRITABLE[True], HAS_INSTANTS, ~among(_R.status, sorted(TERMINAL)))
    .values(lease_expires_at=param("until"))
    .returning(*COLUMNS)
)
_RENEW = Statement(update(runs).where(_R.id == _id).values(lease_expires_at=param("until")))
_REQUEUE = Statement(
    update(runs)
    .where(_R.id == _id)
    .values(status=RunStatus.QUEUED, lease_owner=null(), lease_expires_at=null(), updated_at=param("at"))
)
_CLEAR_LEASE = Statement(
    update(runs).where(_R.id == _id).values(lease_owner=null(), lease_expires_at=null(), updated_at=param("at"))
)
_resume = (
    update(runs)
    .where(_R.id == _id)
    .values(status=RunStatus.RUNNING, lease_owner=param("owner"), lease_expires_at=param("until"), updated_at=param("at"))
)
_RESUME = Statement(_resume)
_RESUME_UNGATED = Statement(_resume.where(~OPEN_GATE.statement.exists()))  # type: ignore[attr-defined]  # it is a select


def _claim_at_once(named: bool) -> Statement:
    """Claim the oldest queued run, unless an unheld running run exists, which must be claimed first.

    Returns the run, and its `updated_at` from before the claim, with which the claim can be undone.
    """
    unheld = (_UNHELD.where(_named_as_well) if named else _UNHELD).with_only_columns(_R.id).limit(literal_column("1"))
    waiting = runs.alias("waiting")
    query = (
        select(waiting.c.id, waiting.c.updated_at)
        .where(_queued(waiting), unheld.scalar_subquery().is_(None), is_plain(waiting))
        .order_by(*_oldest_first(waiting))
        .limit(literal_column("1"))
        .with_for_update(skip_locked=True)
    )
    if named:
        query = query.where(waiting.c.workflow_name == param("workflow_name"))
    oldest = query.cte("oldest")
    taken = {
        "status": RunStatus.RUNNING,
        "lease_owner": param("worker"),
        "lease_expires_at": param("until"),
        "lease_token": _R.lease_token + 1,
        "updated_at": param("at"),
    }
    return Statement(update(runs).where(_R.id == oldest.c.id).values(taken).returning(*COLUMNS, oldest.c.updated_at))


_CLAIM_AT_ONCE = {named: _claim_at_once(named) for named in (False, True)}


def claim(work: UnitOfWork, worker: str, lease: timedelta, workflow_name: str | None) -> Lease | None:
    """See Runs.claim.

    On Postgres one round trip settles most calls: it claims the oldest queued run, or finds that there is none. If a value of the
    claimed row cannot be decoded, the claim is undone. Whatever it does not settle is then done step by step, and on SQLite,
    where no statement waits for a network, everything is.
    """
    owner = work.label("worker", worker)
    span = check_timedelta("lease", lease, zero=False)
    name = optional_label("workflow_name", workflow_name)
    values = {} if name is None else {"workflow_name": name}
    unheld, oldest = _CLAIMABLE[name is not None]
    now = work.now()
    until = _instant("lease", now, span)
    taken = {"worker": owner, "until": until, "at": now}
    first = None
    if not work.runtime.dialect.one_writer:
        attempt = _try_at_once(work, taken, values)
        if attempt.is_settled:
            return None if attempt.claimed is None else _lease(attempt.claimed, owner)
        first = attempt.unheld
    while True:
        row = first or unheld.find(work, at=now, **values) or oldest.find(work, **values)
        if row is None:
            return None
        run = run_value(row)
        died = run.lease_owner is not None
        if died and recovery.at_cap(run):
            recovery.fail_by_cap(work, run, "stale: lease expired")
            first = None
            continue
        with work.batch(last=True) as batch:
            if died:
                recovery.fail_executions_of_run(work, batch, run, "stale: lease expired")
            batch.run(_CLAIM, row_id=run.id, count=run.restart_count + died, token=run.lease_token + 1, **taken)
            written = batch.row(GET_RUN, row_id=run.id)
        return _lease(written_run(written), owner)


class _Attempt(NamedTuple):
    """What an attempt to claim in one round trip came to."""

    claimed: WorkflowRun | None = None
    unheld: Row | None = None
    """A locked running run that no worker holds, which must be claimed first."""
    is_settled: bool = False
    """Whether nothing is left to do: a run is claimed, or there is none to claim."""


def _try_at_once(work: UnitOfWork, taken: dict[str, Any], values: dict[str, str]) -> _Attempt:
    """Try to claim in one round trip, on Postgres."""
    named, mark = bool(values), None if work.journal is None else work.journal.mark()
    with work.batch() as batch:
        found = batch.returned(_CLAIM_AT_ONCE[named], **taken, **values)
        unheld = batch.row(_FIRST_UNHELD[named], at=taken["at"], **values)
        queued = batch.row(_ANY_QUEUED[named], **values)
    if found.result is None:
        first = unheld.result
        if first is None:
            return _Attempt(is_settled=queued.result is None)
        return _Attempt() if any(map(is_unreadable, first)) else _Attempt(unheld=first)
    *row, before = found.result
    if not any(map(is_unreadable, row)):
        return _Attempt(claimed=run_value(tuple(row)), is_settled=True)
    work.run(_UNDO_CLAIM, row_id=row[FIELDS.index("id")], at=before)
    if work.journal is not None and mark is not None:
        work.journal.rollback_to(mark)
    return _Attempt()


def held_by(work: UnitOfWork, worker: str) -> list[Lease]:
    """See Runs.held_by."""
    owner = work.label("worker", worker)
    return [_lease(run_value(row), owner) for row in work.rows(_HELD, at=work.now(), worker=owner)]


def renew(work: UnitOfWork, lease: Lease, lease_for: timedelta) -> Lease:
    """See Runs.renew."""
    span = check_timedelta("lease_for", lease_for, zero=False)
    row = _renew_at_once(work, given_lease(lease), span)
    if row is not None:
        return _lease(run_value(row), lease.worker)
    run = _own(work, lease)
    until = _instant("lease_for", work.now(), span)
    with work.batch(last=True) as batch:
        batch.run(_RENEW, row_id=run.id, until=until)
        written = batch.row(GET_RUN, row_id=run.id)
    return _lease(written_run(written), lease.worker)


def _renew_at_once(work: UnitOfWork, lease: Lease, span: timedelta) -> Row | None:
    """Check and renew in one statement. None, and nothing is written, if that may not be done, or not in this way."""
    held, now = guard_values(work, lease.run_id, lease), work.now()
    if held is None or span > _FOREVER - now:
        return None
    return work.returned(_RENEW_AT_ONCE, row_id=work.label("id", lease.run_id), at=now, until=now + span, **held)


def release(work: UnitOfWork, lease: Lease) -> None:
    """See Runs.release."""
    run = find_run(work, given_lease(lease).run_id, lock=True)
    if run is None:
        raise NotFound("workflow run", lease.run_id)
    if run.status in TERMINAL and run.lease_token == lease.token:
        return
    check_hold(run, lease, work.now())
    if run.status == RunStatus.RUNNING:
        requeue(work, run)
    else:
        clear_lease(work, run)


def clear_lease(work: UnitOfWork, run: WorkflowRun) -> WorkflowRun:
    """End the lease of a locked run that waits; the run."""
    with work.batch(last=True) as batch:
        batch.run(_CLEAR_LEASE, row_id=run.id, at=work.now())
        row = batch.row(GET_RUN, row_id=run.id)
    return written_run(row)


def requeue(work: UnitOfWork, run: WorkflowRun) -> None:
    """Return a locked run to the queue without a holder, and fail its unfinished executions."""
    with work.batch(last=True) as batch:
        recovery.fail_executions_of_run(work, batch, run, "stale: the run was queued again")
        batch.run(_REQUEUE, row_id=run.id, at=work.now())
    announce_claimable(work, run)


def find_with_gate(work: UnitOfWork, id: str) -> tuple[WorkflowRun | None, Row | None]:
    """The run, locked, and its oldest pending gate."""
    run_id = work.label("id", id)
    with work.batch() as batch:
        run, gate = batch.row(LOCK_RUN, row_id=run_id), batch.row(OPEN_GATE, run_id=run_id)
    return None if run.result is None else run_value(run.result), gate.result


def resume(work: UnitOfWork, run: WorkflowRun, *, force: bool) -> None:
    """paused -> running for a locked run: a worker that still holds it continues, otherwise it waits for one.

    `force`: its pending gates are rejected.
    """
    values = resumption(run, work.now())
    with work.batch(last=True) as batch:
        if force:
            close_gates(work, batch, run.id, "The run was resumed without an answer.")
        batch.run(_RESUME, **values)
    announce_claimable(work, run)


def resume_ungated(batch: Batch, values: dict[str, Any]) -> None:
    """Resume a locked run with the values of `resumption`, unless it has a pending gate."""
    batch.run(_RESUME_UNGATED, **values, run_id=values["row_id"])


def resumption(run: WorkflowRun, now: datetime) -> dict[str, Any]:
    """The values that resume a locked run."""
    live = is_live(run, now)
    owner, until = (run.lease_owner, run.lease_expires_at) if live else (None, recovery.handed_over_at(run, now))
    return {"row_id": run.id, "owner": owner, "until": until, "at": now}


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
