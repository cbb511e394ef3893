"""SQL that finds the runs that a worker may claim: the order of the queue, its limits, its backlog, and the check of a lease."""

from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    case,
    exists,
    false,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    true,
    union,
    union_all,
)
from sqlalchemy.sql.expression import FromClause

from persist.db.operations.keyset import FirstReadable
from persist.db.schema.base import flag_set
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import LIMIT, Row, Statement, among, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable, is_unreadable
from persist.db.values.arguments import check_label
from persist.db.values.frozen import construct
from persist.errors import InvalidValue
from persist.usage.spending import ANY_USED_UP, used_up
from persist.workflows.models import (
    IS_DELAYED,
    IS_LEASED,
    IS_READY,
    IS_RUNNING,
    IS_RUNNING_UNDER_KEY,
    claim_order,
    limits,
    runs,
    starts,
    workflow_overrides,
)
from persist.workflows.schemas import TERMINAL, WORKFLOW_PREFIX, Lease, WorkflowRun
from persist.workflows.storage.run_rows import RUN

# How many runs a worker could claim now, and since when the oldest of them waits.

MOST = 10_000
"""The most runs that are counted, so that a long queue costs no more than that."""
_R = runs.c
# one query per partial index: none of them serves both conditions
_READY = select(_R.queued_at.label("since")).where(IS_READY).limit(MOST).subquery("ready")
_DUE = select(_R.not_before.label("since")).where(IS_DELAYED, _R.not_before <= param("now")).limit(MOST).subquery("due")
_COUNTED = [
    Statement(select(func.count(), func.min(some.c.since)).select_from(some), unreadable=OnUnreadable.LEAVE_OUT)
    for some in (_READY, _DUE)
]


def backlog(work: UnitOfWork) -> tuple[int, datetime | None]:
    """Return the number of runs, at most `MOST`, and since when the oldest of those that were counted could be claimed."""
    with work.batch() as batch:
        ready, due = batch.rows(_COUNTED[0]), batch.rows(_COUNTED[1], now=work.now())
    counted = [*ready.result, *due.result]
    since = [row[1] for row in counted if row[1] is not None]
    return min(MOST, sum(row[0] for row in counted)), min(since, default=None)


# The check of a lease as SQL, for statements on Postgres that check and write at once, which saves a round trip.
#
# Such a statement writes nothing where `run_rows.check_hold` would refuse. If it writes nothing, that proves nothing: the verb
# then locks, checks and writes step by step, which finds the error or does the work. On SQLite, where a statement waits for no
# network, verbs always proceed step by step.

_MAX_TOKEN = 2**63 - 1
_at = bindparam("at", type_=_R.lease_expires_at.type)
_first, _last_held = (literal(at.replace(tzinfo=UTC), _R.lease_expires_at.type) for at in (datetime.min, datetime.max))


def _has_instants(table: FromClause) -> ColumnElement[bool]:
    certain = (table.c[name].between(_first, _last_held) for name in ("started_at", "updated_at"))
    others = (table.c[name] for name in ("finished_at", "queued_at", "not_before"))
    return and_(*certain, *(or_(instant.is_(None), instant.between(_first, _last_held)) for instant in others))


HAS_INSTANTS = _has_instants(runs)
"""Whether the run's instants, its lease's excepted, can be decoded. RETURNING an undecodable one would fail after the write."""


def is_plain(table: FromClause) -> ColumnElement[bool]:
    """Whether a queued run is as `create` and `requeue` leave it, so that a claim of it can be undone by another statement."""
    unheld = and_(
        table.c.lease_owner.is_(None),
        table.c.lease_expires_at.is_(None),
        table.c.lease_token < literal(_MAX_TOKEN, table.c.lease_token.type),
    )
    return and_(_has_instants(table), unheld)


WRITABLE: dict[bool, ColumnElement[bool]] = {
    False: or_(_R.lease_owner.is_(None), _R.lease_expires_at.is_(None), _R.lease_expires_at.between(_first, _at)),
    True: and_(
        _R.lease_token == param("held_token"),
        or_(
            and_(among(_R.status, sorted(TERMINAL)), bindparam("unexpired", type_=Boolean())),
            and_(_R.lease_owner == param("holder"), _R.lease_expires_at > _at, _R.lease_expires_at <= _last_held),
        ),
    ),
}
"""Whether a write without a lease (False) or under one (True) is allowed. Parameters: `at`, and those of `guard_values`."""


def lease_on(run: WorkflowRun, worker: str) -> Lease:
    """The lease of a worker on the run as it has just been claimed or renewed."""
    return construct(
        Lease, {"run_id": run.id, "worker": worker, "token": run.lease_token, "expires_at": run.lease_expires_at, "run": run}
    )


def guard_values(work: UnitOfWork, run_id: object, lease: object) -> dict[str, Any] | None:
    """The parameters of WRITABLE, for the lease or for None; None where a verb has to proceed step by step."""
    if lease is None:
        return None if work.runtime.dialect.one_writer else {}
    if not isinstance(lease, Lease) or lease.run_id != run_id or not -1 < lease.token <= _MAX_TOKEN:
        return None
    try:
        holder = check_label("worker", lease.worker)
    except InvalidValue:
        return None
    return {"held_token": lease.token, "holder": holder, "unexpired": lease.expires_at > work.now()}


# The limits of runs as SQL: whether a run would find a place, and how the limits of claimed runs stand.
#
# A run takes a place while it is running, also after its lease has expired, until it ends, pauses or is queued again. A running
# run that waits for a worker because it was resumed or restarted takes none until it is claimed.

_DAY_MS = 86_400_000
_now_ms = bindparam("now_ms", type_=Int64())
_ONE: ColumnElement[Any] = literal_column("1")
_PREFIX: ColumnElement[Any] = literal_column(f"'{WORKFLOW_PREFIX}'")
ANY_LIMIT = or_(exists(select(limits.c.key)), ANY_USED_UP)
"""Whether a limit or a used-up budget exists."""


def _count(table: FromClause, *which: Any) -> ColumnElement[Any]:
    in_place = or_(table.c.lease_owner.is_not(None), table.c.lease_expires_at.is_(None))
    return select(func.count()).select_from(table).where(*which, in_place).correlate_except(table).scalar_subquery()


def _running_of(name: ColumnElement[Any]) -> ColumnElement[Any]:
    table = runs.alias("running")
    return _count(table, IS_RUNNING, table.c.workflow_name == name)


def _running_under(key: ColumnElement[Any]) -> ColumnElement[Any]:
    table = runs.alias("running")
    return _count(table, IS_RUNNING_UNDER_KEY, table.c.concurrency_key == key)


def _last(key: ColumnElement[Any]) -> ColumnElement[Any]:
    table = starts.alias("last")
    newest = select(func.max(table.c.seq)).where(table.c.key == key).correlate_except(table).scalar_subquery()
    return func.coalesce(newest, literal_column("0"))


def _is_recent(start: FromClause, limit: FromClause) -> ColumnElement[bool]:
    """Whether a start is of the period that ends now. One far in the future is of a clock that was wrong, and does not count."""
    age = _now_ms - start.c.at_ms
    return and_(age < limit.c.per_ms, -age - literal_column(str(_DAY_MS)) <= limit.c.per_ms)


def _rate_is_reached(limit: FromClause, nth: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the nth start from now on would be one too many: the start `rate` before it is of the same period."""
    start = starts.alias("start")
    before = start.c.seq == _last(limit.c.key) + nth - limit.c.rate
    recent = exists(select(_ONE).where(start.c.key == limit.c.key, before, _is_recent(start, limit)).correlate_except(start))
    return case(
        (or_(limit.c.rate.is_(None), limit.c.per_ms.is_(None), limit.c.per_ms <= 0), false()),
        (limit.c.rate < nth, true()),
        else_=recent,
    )


def _is_none(query: Select[Any]) -> ColumnElement[bool]:
    """Whether a query finds nothing. As a value, not as NOT EXISTS, for which a planner would read a whole table first."""
    return query.limit(_ONE).scalar_subquery().is_(None)


def _none_reached(key: ColumnElement[Any], running: ColumnElement[Any], nth: ColumnElement[Any]) -> ColumnElement[bool]:
    limit = limits.alias("bound")
    reached = or_(limit.c.concurrency < running + nth, _rate_is_reached(limit, nth))
    none_reached = _is_none(select(_ONE).where(limit.c.key == key, reached).correlate_except(limit))
    return and_(none_reached, _is_none(used_up(key)))


def has_room(
    name: ColumnElement[Any], key: ColumnElement[Any], of_name: ColumnElement[Any] = _ONE, of_key: ColumnElement[Any] = _ONE
) -> ColumnElement[bool]:
    """Whether the limits allow a run of the workflow and the key to start, as the nth one of a call. Parameter: `now_ms`."""
    by_name = _none_reached(_PREFIX.concat(name), _running_of(name), of_name)
    return and_(by_name, _none_reached(key, _running_under(key), of_key))


def may_be_taken(run: FromClause) -> ColumnElement[bool]:
    """Whether the limits allow a running run to be claimed: one that has an owner has its place. Parameter: `now_ms`."""
    name, key, placed = run.c.workflow_name, run.c.concurrency_key, run.c.lease_owner.is_not(None)
    by_name = _none_reached(_PREFIX.concat(name), case((placed, null()), else_=_running_of(name)), _ONE)
    return and_(by_name, _none_reached(key, case((placed, null()), else_=_running_under(key)), _ONE))


def locked(name: ColumnElement[Any], key: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the limits of the workflow and the key are not there or could be locked; others' locks are not waited for."""

    def one(wanted: ColumnElement[Any]) -> ColumnElement[bool]:
        limit, same = limits.alias("bound"), limits.alias("locked")
        lock = select(same.c.key).where(same.c.key == wanted).with_for_update(skip_locked=True).correlate_except(same)
        missing = _is_none(select(_ONE).where(limit.c.key == wanted).correlate_except(limit))
        return case((missing, true()), else_=lock.scalar_subquery().is_not(None))

    return case((one(key), one(_PREFIX.concat(name))), else_=false())


def _standing(*which: Any) -> Statement:
    """How the limits of some runs, or without `which` of all, stand: key, concurrency, rate, per_ms, and three numbers.

    These are the running runs, the last start, and how many of the next `many` starts would be too many. A limit that cannot be
    read limits nothing.
    """
    ours, start, limit = runs.alias("ours"), starts.alias("start"), limits.alias("bound")
    names = select(_PREFIX.concat(ours.c.workflow_name)).where(*(one(ours) for one in which))
    keys = select(ours.c.concurrency_key).where(*(one(ours) for one in which), ours.c.concurrency_key.is_not(None))
    name = func.substr(limit.c.key, literal_column(str(len(WORKFLOW_PREFIX) + 1)))
    of_workflow = func.substr(limit.c.key, _ONE, literal_column(str(len(WORKFLOW_PREFIX)))) == _PREFIX
    running = case((of_workflow, _running_of(name)), else_=_running_under(limit.c.key))
    oldest = _last(limit.c.key) - limit.c.rate
    many = bindparam("many", type_=Int64())
    recent = (
        select(func.count())
        .select_from(start)
        .where(start.c.key == limit.c.key, start.c.seq > oldest, start.c.seq <= oldest + many, _is_recent(start, limit))
        .correlate_except(start)
        .scalar_subquery()
    )
    blocked = case((and_(limit.c.rate > 0, limit.c.per_ms > 0), recent), else_=literal_column("0"))
    columns = (limit.c.key, limit.c.concurrency, limit.c.rate, limit.c.per_ms, running, _last(limit.c.key), blocked)
    query = select(*columns).order_by(limit.c.key)
    query = query.where(limit.c.key.in_(union(names, keys))) if which else query.limit(LIMIT)
    return Statement(query, unreadable=OnUnreadable.LEAVE_OUT)


@cache
def standing_of_all() -> Statement:
    """How all limits stand, by key. Parameters: `many`, `now_ms`, `limit`."""
    return _standing()


@cache
def standing_of_claimed() -> Statement:
    """How the limits stand of the runs that a worker has just claimed. Parameters: `worker`, `until`, `many`, `now_ms`."""
    return _standing(
        lambda ours: IS_LEASED,
        lambda ours: ours.c.lease_expires_at == param("until"),
        lambda ours: ours.c.lease_owner == param("worker"),
    )


@cache
def standing_of_run() -> Statement:
    """How the limits of one run stand. Parameters: `row_id`, `many`, `now_ms`."""
    return _standing(lambda ours: ours.c.id == param("row_id"))


@cache
def lock_of_run() -> Statement:
    """The keys of the limits of one run, locked; those that another claim holds are left out. Parameter: `row_id`."""
    ours = runs.alias("ours")
    names = select(_PREFIX.concat(ours.c.workflow_name)).where(ours.c.id == param("row_id"))
    keys = select(ours.c.concurrency_key).where(ours.c.id == param("row_id"), ours.c.concurrency_key.is_not(None))
    query = select(limits.c.key).where(limits.c.key.in_(union(names, keys))).order_by(limits.c.key)
    return Statement(query.with_for_update(skip_locked=True))


# First come running runs that no worker holds, then the queue: runs that are ready, and delayed ones whose time has come. Ready
# and delayed runs have partial indexes of their own, so that neither finished runs nor delayed ones cost a claim anything.

_O = workflow_overrides.c
AHEAD, FEW_AHEAD = 64, 16
"""Runs to look at beyond the wanted number, in one line or in each of several: some may be locked."""
MOST_APART = 256
"""For so many workflows at once each is looked for by itself; SQLite has a limit."""
_DUE_AT_ONCE = 1000
"""Among so many delayed runs whose time has come first, those of the highest priority are claimed first."""


def _of_names(table: FromClause, names: int, *, indexed: bool) -> list[ColumnElement[bool]]:
    """Whether a run is of the workflows `name_0` …; of any if there are 0. `indexed`: an index by name may serve one."""
    if not names:
        return []
    column: ColumnElement[Any] = table.c.workflow_name
    if not indexed or names > 1:
        column = column.concat("")
    wanted = _wanted(names)
    return [column == wanted[0] if names == 1 else column.in_(wanted)]


def _wanted(names: int) -> list[ColumnElement[Any]]:
    return [bindparam(f"name_{number}", type_=_R.workflow_name.type) for number in range(names)]


def wanted_names(names: int) -> FromClause:
    """The wanted workflows as a table with the column `name`, each once."""
    first, *others = [select(name.label("name")) for name in _wanted(names)]
    return union(first, *others).subquery("wanted")


def enabled(name: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the workflow was not switched off. A list that the planner reads once, whatever its estimated size."""
    return name.not_in(select(_O.name).where(~flag_set(_O.enabled)))


def conditions(table: FromClause, names: int, *, indexed: bool) -> list[ColumnElement[bool]]:
    """Whether a run's workflow is wanted and not switched off."""
    return [*_of_names(table, names, indexed=indexed), enabled(table.c.workflow_name)]


def is_due(table: FromClause) -> tuple[ColumnElement[bool], ...]:
    """Whether a queued run was delayed, and its time has come. Parameter: `at`."""
    return IS_DELAYED, table.c.not_before <= param("at")


def _first_due(names: int) -> Select[Any]:
    table = runs.alias("due")
    query = select(table.c.id).where(*is_due(table), *conditions(table, names, indexed=False))
    return query.order_by(table.c.not_before)  # the index's own order: to sort what is due is what a planner has to fear


def ready(table: FromClause, names: int, *columns: Any) -> Select[Any]:
    """The ready runs in the order of the queue, locked; those that another transaction has locked are left out."""
    query = select(*columns).where(IS_READY, *conditions(table, names, indexed=True))
    return query.order_by(*claim_order(table)).with_for_update(skip_locked=True)


def first_of_each(names: int, most: int) -> Select[Any]:
    """The ids of the first ready runs of wanted workflows, at most `most` per workflow. Only Postgres has LATERAL."""
    table, wanted = runs.alias("first"), wanted_names(names)
    first = select(table.c.id).where(IS_READY, table.c.workflow_name == wanted.c.name, enabled(table.c.workflow_name))
    each = first.order_by(*claim_order(table)).limit(literal_column(str(most))).correlate(wanted).lateral("each")
    return select(each.c.id).select_from(wanted.join(each, true()))


def ready_of_several(table: FromClause, names: int, rows: int, *columns: Any) -> Select[Any]:
    """What `ready` finds for several workflows, on Postgres, passing no run of another one."""
    ahead = first_of_each(names, rows + FEW_AHEAD).subquery("ahead")
    query = select(*columns).select_from(ahead.join(table, table.c.id == ahead.c.id)).where(IS_READY)
    return query.order_by(*claim_order(table)).with_for_update(of=table, skip_locked=True)


def each_of_several(names: int, most: int) -> FromClause:
    """What `first_of_each` finds, for SQLite, which has no LATERAL and plans each workflow by itself."""
    parts = []
    for number, name in enumerate(_wanted(names)):
        table = runs.alias(f"first_{number}")
        first = select(table.c.id).where(IS_READY, table.c.workflow_name == name, enabled(table.c.workflow_name))
        parts.append(first.order_by(*claim_order(table)).limit(literal_column(str(most))).subquery(f"each_{number}"))
    return union_all(*[select(part.c.id) for part in parts]).subquery("ahead")


def first_of_several(names: int, rows: int = 1) -> Select[Any]:
    """The first `rows` of what `ready` finds for several workflows, for SQLite, passing no run of another one."""
    ids = select(each_of_several(names, rows).c.id)
    return select(*RUN.columns, ANY_LIMIT.label("any_limit")).where(_R.id.in_(ids)).order_by(*claim_order(runs))


def due(table: FromClause, names: int, *columns: Any) -> Select[Any]:
    """Delayed runs whose time has come, in the order of the queue, locked as `ready` ones are."""
    first = _first_due(names).limit(literal_column(str(_DUE_AT_ONCE)))
    query = select(*columns).where(table.c.id.in_(first), *is_due(table))
    return query.order_by(*claim_order(table)).with_for_update(skip_locked=True)


def unheld(names: int, *columns: Any) -> Select[Any]:
    """The running runs that no worker holds; not locked. Parameter: `at`."""
    of_names = _of_names(runs, names, indexed=False)
    is_unheld = and_(IS_LEASED, _R.lease_expires_at <= param("at"), IS_RUNNING)
    query = select(*columns).where(is_unheld, *of_names, enabled(_R.workflow_name))
    return query.order_by(_R.lease_expires_at, _R.id)


def any_unheld(names: int) -> ScalarSelect[Any]:
    """The id of a running run that no worker holds, or NULL; not locked."""
    return one(unheld(names, _R.id))


def any_ready(names: int) -> ScalarSelect[Any]:
    """The id of a ready run, or NULL; not locked."""
    table = runs.alias("waiting")
    if names <= 1:
        return one(select(table.c.id).where(IS_READY, *conditions(table, names, indexed=True)).order_by(*claim_order(table)))
    if names > MOST_APART:
        return one(select(table.c.id).where(IS_READY, *conditions(table, names, indexed=True)))
    return one(select(each_of_several(names, 1).c.id))


def any_due(names: int) -> ScalarSelect[Any]:
    """The id of a delayed run whose time has come, or NULL; not locked."""
    return one(_first_due(names))


def one(query: Select[Any]) -> ScalarSelect[Any]:
    """The first row of a query of one column, as a value."""
    return query.limit(literal_column("1")).scalar_subquery()


@cache
def first_of_each_line(names: int) -> Statement:
    """The ids of an unheld, a ready and a due run, or NULL, and whether there are limits. Nothing is locked."""
    return Statement(select(any_unheld(names), any_ready(names), any_due(names), ANY_LIMIT.label("any_limit")))


@cache
def first_ready(names: int, rows: int) -> Statement:
    """The first ready runs on SQLite: id, updated_at, and whether nothing may come before and a claim could be undone."""
    query = first_of_several(names, rows) if 1 < names <= MOST_APART else ready(runs, names, *RUN.columns)
    may_begin = and_(any_unheld(names).is_(None), any_due(names).is_(None), ~ANY_LIMIT, is_plain(runs))
    return Statement(query.limit(literal_column(str(rows))).with_only_columns(_R.id, _R.updated_at, may_begin))


class Line:
    """Finds the first readable run in a line of waiting runs.

    slow     passes one run after the other
    quick    skip runs that cannot be claimed now, but fail at an unreadable run; tried in turn
    is_sure  whether the line has no run if the quick queries find none
    """

    __slots__ = ("_is_sure", "_quick", "_slow")

    def __init__(self, slow: Select[Any], *quick: Select[Any], is_sure: bool = True) -> None:
        self._quick = [Statement(query.limit(literal_column("1"))) for query in quick]
        self._slow, self._is_sure = FirstReadable(slow), is_sure and bool(quick)

    def find(self, work: UnitOfWork, **values: Any) -> Row | None:
        """The first readable run of the line, or None."""
        for statement in self._quick:
            row = work.row(statement, **values)
            if row is not None:
                return self._slow.find(work, **values) if any(map(is_unreadable, row[: len(RUN.fields)])) else row
        return None if self._is_sure else self._slow.find(work, **values)


@cache
def lines(names: int, *, one_writer: bool) -> tuple[Line, Line, Line]:
    """The unheld, the ready and the due runs, locked, in the order in which they are claimed; and whether there are limits."""
    columns = (*RUN.columns, ANY_LIMIT.label("any_limit"))
    quick = []
    if 1 < names <= MOST_APART:
        quick = [first_of_several(names) if one_writer else ready_of_several(runs, names, 1, *columns)]
    free = unheld(names, *columns).with_for_update(of=runs, skip_locked=True)
    return Line(free), Line(ready(runs, names, *columns), *quick, is_sure=one_writer), Line(due(runs, names, *columns))


def place(run: WorkflowRun) -> tuple[Any, ...]:
    """The place of a queued run: the least is claimed first, as `claim_order` says."""
    return -run.priority, run.queued_at or run.started_at, run.id
