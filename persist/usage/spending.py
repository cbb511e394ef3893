"""What is used of budgets, counted under a lock on each, in the order of keys: one call alone logs that it passes 80 per cent."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from sqlalchemy import ColumnElement, Select, bindparam, exists, literal_column, or_, select, update

from persist.db.changes.batch import Batch, Pending, StatementRunner
from persist.db.expressions.upsert import merge
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.unreadable.cells import is_unreadable
from persist.errors import BudgetExceeded
from persist.usage.models import IS_USED_UP, budgets, spending
from persist.usage.schemas import Bucket, Period

FIRST = datetime(1, 1, 1, tzinfo=UTC)
"""The begin of a period that holds every instant, also before 1970."""
LAST = datetime(9999, 12, 31, tzinfo=UTC)
"""The end of a period that never ends, or that would end later."""
_HOUR, _DAY, _LONGER_THAN_A_MONTH = timedelta(hours=1), timedelta(days=1), timedelta(days=32)


class Span(NamedTuple):
    """From `starts_at` until before `ends_at`, in UTC."""

    starts_at: datetime
    ends_at: datetime


def bucket_start(bucket: Bucket, at: datetime) -> datetime:
    """The beginning of the UTC hour or day of an instant in UTC."""
    hour = at.replace(minute=0, second=0, microsecond=0)
    return hour if bucket == Bucket.HOUR else hour.replace(hour=0)


def span_of(period: Period, timezone: str, at: datetime) -> Span:
    """The period that an instant is in, by the zone's clocks, but for hours; an unknown zone counts as UTC."""
    if period == Period.TOTAL:
        return Span(FIRST, LAST)
    if period == Period.HOUR:
        start = bucket_start(Bucket.HOUR, at)
        return Span(start, start + _HOUR if start < LAST - _HOUR else LAST)
    zone = _zone(timezone)
    try:
        day = at.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None, fold=0)
        if period == Period.DAY:
            first, after = day, day + _DAY
        elif period == Period.WEEK:
            first = day - day.weekday() * _DAY
            after = first + 7 * _DAY
        else:
            first = day.replace(day=1)
            after = (first + _LONGER_THAN_A_MONTH).replace(day=1)
        return Span(_utc(first, zone), min(LAST, _utc(after, zone)))
    except OverflowError:  # at an end of the calendar
        return Span(bucket_start(Bucket.DAY, at), LAST)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        return ZoneInfo("UTC")


def _utc(local: datetime, zone: ZoneInfo) -> datetime:
    return local.replace(tzinfo=zone).astimezone(UTC)


WARNED, USED_UP = 80, 100
EVENTS = {WARNED: "budget.warned", USED_UP: "budget.exceeded"}
"""The type of the event with which a call passes so many per cent of a budget."""
MOST_KEYS = 5
_B, _S = budgets.c, spending.c
_KEYS = [f"key_{number}" for number in range(MOST_KEYS)]
_any_key = _B.key.in_([bindparam(name, type_=_B.key.type) for name in _KEYS])
_ASK = Statement(
    select(_B.key, _B.period, _B.timezone, _B.max_cost_usd_micros, _B.max_tokens).where(_any_key).order_by(_B.key, _B.period)
)
_COUNT = Statement(
    merge(spending, "key", "period", "starts_at", cost_usd_micros="capped_sum", tokens="capped_sum").returning(
        _S.cost_usd_micros, _S.tokens, _S.passed
    )
)
_PASS = Statement(
    update(spending)
    .where(_S.key == param("of_key"), _S.period == param("of_period"), _S.starts_at == param("of_start"))
    .values(passed=param("now_passed"))
)
_now_ms = bindparam("now_ms", type_=Int64())
_ONE_USED_UP = Statement(
    select(_S.key, _S.period, _S.cost_usd_micros, _S.tokens)
    .where(
        IS_USED_UP,
        or_(*(_S.key == bindparam(name, type_=_S.key.type) for name in _KEYS)),
        _S.starts_at <= param("at"),
        _S.ends_at > param("at"),
    )
    .order_by(_S.key, _S.period)
)


ANY_BUDGET = exists(select(_B.key))
"""Whether there is any budget."""


def ask(batch: Batch, keys: Sequence[str]) -> Pending[list[Row]]:
    """The budgets of the keys for `count`, asked after the sums were written, which are locked where a budget is set."""
    return batch.rows(_ASK, **_padded(keys))


def count(db: StatementRunner, found: Sequence[Row], at: datetime, *, cost: int, tokens: int) -> None:
    """Count what a call used on its budgets, and note as events what it passes."""
    for key, period, timezone, max_cost, max_tokens in found:
        if any(map(is_unreadable, (key, period, timezone, max_cost, max_tokens))):
            continue  # the doctor names the row; a call that happened is recorded nevertheless
        span = span_of(period, timezone, at)
        row = db.returned(
            _COUNT,
            key=key,
            period=period,
            starts_at=span.starts_at,
            ends_at=span.ends_at,
            cost_usd_micros=cost,
            tokens=tokens,
            passed=0,
        )
        assert row is not None, "a row is merged into and returned"
        note(db, key, period, span.starts_at, row[2], passed_by(row[0], row[1], max_cost, max_tokens))


def note(db: StatementRunner, key: str, period: Any, starts_at: datetime, before: int, now: int) -> None:
    """Store that so many per cent are passed, if that is more than before, with one event for each step."""
    for step, name in EVENTS.items():
        if before < step <= now:
            journal = db.journal
            verb = journal.verbs[-1] if journal is not None and journal.verbs else None
            db.begin_event(name)  # an event of its own, in the middle of a verb that goes on afterwards
            db.run(_PASS, of_key=key, of_period=period, of_start=starts_at, now_passed=step)
            if verb is not None:
                db.begin_event(verb.name, verb.stream)


def passed_by(cost: int, tokens: int, max_cost: int | None, max_tokens: int | None) -> int:
    """0, 80 or 100: how many per cent of a budget are used, by its cost or its tokens, whichever are more."""
    for step in (USED_UP, WARNED):
        if any(most is not None and used * 100 >= most * step for used, most in ((cost, max_cost), (tokens, max_tokens))):
            return step
    return 0


def used_up(key: ColumnElement[Any]) -> Select[Any]:
    """A query that finds something if a budget of the key is used up now. Parameter: `now_ms`."""
    table = spending.alias("used_up")
    within = (table.c.starts_at <= _now_ms, table.c.ends_at > _now_ms)
    return select(literal_column("1")).where(IS_USED_UP, table.c.key == key, *within).correlate_except(table)


def budget_keys(**of: str | None) -> list[str]:
    """The keys of the budgets on these owners, agents and so on, as far as they are known."""
    return sorted(f"{name}:{value}" for name, value in of.items() if value)


ANY_USED_UP = exists(select(_S.key).where(IS_USED_UP))
"""Whether any budget is used up, or was in an earlier period that is stored."""


def refuse(db: StatementRunner, keys: Sequence[str], at: datetime) -> None:
    """Raise BudgetExceeded if a budget of one of the keys is used up at that instant."""
    error = exceeded(db, keys, at)
    if error is not None:
        raise error


def exceeded(db: StatementRunner, keys: Sequence[str], at: datetime) -> BudgetExceeded | None:
    """The error that tells of the first budget of the keys that is used up at that instant; None if there is none."""
    found = db.row(_ONE_USED_UP, **_padded(keys), at=at) if keys else None
    return None if found is None else BudgetExceeded(*found)


def ask_used_up(batch: Batch, keys: Sequence[str], at: datetime) -> Pending[Row | None]:
    """The first budget of the keys that is used up at that instant, or None, in a batch."""
    return batch.row(_ONE_USED_UP, **_padded(keys), at=at)


def _padded(keys: Sequence[str]) -> dict[str, str]:
    assert len(keys) <= MOST_KEYS, keys
    padded = [*keys, *[keys[-1] if keys else ""] * (MOST_KEYS - len(keys))]
    return dict(zip(_KEYS, padded, strict=True))
