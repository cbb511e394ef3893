"""The limits of runs as SQL: whether a run would find a place, and how the limits of claimed runs stand.

A run takes a place while it is running, also after its lease has expired, until it ends, pauses or is queued again. A running run
that waits for a worker because it was resumed or restarted takes none until it is claimed.
"""

from functools import cache
from typing import Any

from sqlalchemy import Select, and_, bindparam, case, exists, false, func, literal_column, null, or_, select, true, union
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import FromClause

from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Statement, param
from persist.db.unreadable.cells import OnUnreadable
from persist.usage.spending import ANY_USED_UP, used_up
from persist.workflows.limit_values import WORKFLOW_PREFIX
from persist.workflows.models import IS_LEASED, IS_RUNNING, IS_RUNNING_UNDER_KEY, limits, runs, starts

_DAY_MS = 86_400_000
_now_ms = bindparam("now_ms", type_=Int64())
_ONE: ColumnElement[Any] = literal_column("1")
_PREFIX: ColumnElement[Any] = literal_column(f"'{WORKFLOW_PREFIX}'")
ANY_LIMIT = or_(exists(select(limits.c.key)), ANY_USED_UP)
"""Whether there is any limit, or any budget that is used up."""


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
    """The number of the last start under a key; 0 if there was none."""
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
    """How the limits of some runs stand: key, concurrency, rate, per_ms, running runs, last start, and too recent starts.

    The last number tells how many of the next `many` starts would be too many. A limit that cannot be read limits nothing.
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
    query = select(*columns).where(limit.c.key.in_(union(names, keys))).order_by(limit.c.key)
    return Statement(query, unreadable=OnUnreadable.LEAVE_OUT)


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
