"""Counts over executions: in all, and in gapless UTC days and hours."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, case, cast, func, not_, or_, select
from sqlalchemy.sql.elements import ColumnElement

from persist.db.expressions.numbers import Size, utc_bucket, whole_total
from persist.db.operations.keyset import BoundedCount, counting
from persist.db.schema.base import flag_set
from persist.db.schema.column_types import Float64, Int64
from persist.db.statements.prepared import Statement, among, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import as_utc
from persist.db.values.frozen import construct
from persist.db.values.pages import check_limit
from persist.workflows.models import IS_UNFINISHED, USED_TOKENS, executions
from persist.workflows.schemas import ExecutionStats, StatsBucket, StopReason

_E = executions.c
_STEPS: dict[Size, tuple[timedelta, str]] = {"day": (timedelta(days=1), "%Y-%m-%d"), "hour": (timedelta(hours=1), "%Y-%m-%dT%H")}
MAX_BUCKETS = 10_000


def _where(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return cast(func.coalesce(func.sum(case((condition, 1), else_=0)), 0), Int64())


_finished = _E.finished_at.is_not(None)
_succeeded = flag_set(_E.success)
_unsuccessful = or_(_E.success.is_(None), not_(_succeeded))
_COUNTS: dict[str, ColumnElement[Any]] = {
    "total": func.count(),
    "succeeded": _where(and_(_finished, _succeeded)),
    "failed": _where(and_(_finished, _unsuccessful, or_(_E.stop_reason.is_(None), not_(among(_E.stop_reason, StopReason))))),
    "skipped": _where(and_(_finished, _unsuccessful, _E.stop_reason == StopReason.SKIPPED)),
    "deferred": _where(and_(_finished, _unsuccessful, _E.stop_reason == StopReason.DEFERRED)),
    "running": _where(not_(_finished)),
    "input_tokens": whole_total(_E.input_tokens),
    "output_tokens": whole_total(_E.output_tokens),
    "total_tokens": USED_TOKENS,
    "cost_usd": func.coalesce(func.sum(_E.cost_usd), cast(0, Float64())),
}


def _buckets(size: Size) -> Statement:
    bucket = utc_bucket(_E.started_at, size).label("bucket")
    window = (_E.started_at >= param("since"), _E.started_at < param("until"))
    return Statement(select(bucket, *_COUNTS.values()).where(*window).group_by(bucket))


_BUCKETS: dict[Size, Statement] = {"day": _buckets("day"), "hour": _buckets("hour")}
_TOTALS = Statement(
    select(func.count(), _where(_E.started_at >= param("midnight")), _where(not_(_finished))).select_from(executions)
)
_BY_SKILL = Statement(select(_E.skill, func.count()).group_by(_E.skill).order_by(_E.skill))
_BY_TRIGGER = Statement(select(_E.trigger_type, func.count()).group_by(_E.trigger_type).order_by(_E.trigger_type))
MOST_COUNTED, MOST_OF_GROUP = 10_000, 1_000
"""How many executions are counted at most where counts need not be exact: in all, and of a skill or trigger type."""
_ALL = BoundedCount(select(_E.id), MOST_COUNTED)
_TODAY = BoundedCount(select(_E.id).where(_E.started_at >= param("midnight")), MOST_COUNTED)
_UNFINISHED = BoundedCount(select(_E.id).where(IS_UNFINISHED), MOST_COUNTED)
_OF_SKILL = BoundedCount(select(_E.id).where(_E.skill == param("name")), MOST_OF_GROUP)
_OF_TRIGGER = BoundedCount(select(_E.id).where(_E.trigger_type == param("name")), MOST_OF_GROUP)


def _groups(column: ColumnElement[Any]) -> Statement:
    first = select(func.min(column).label("name")).cte("names", recursive=True)
    following = select(func.min(column)).where(column > first.c.name).scalar_subquery()
    names = first.union_all(select(following).where(first.c.name.is_not(None)))
    number = counting(select(_E.id).where(column == names.c.name), MOST_OF_GROUP, of=names).scalar_subquery()
    return Statement(select(names.c.name, number).where(names.c.name.is_not(None)).order_by(names.c.name))


_SKILLS, _TRIGGERS = _groups(_E.skill), _groups(_E.trigger_type)


def totals(work: UnitOfWork) -> ExecutionStats:
    """Counts over all executions; `today` begins at midnight in the process's time zone."""
    with work.batch() as batch:
        counts = batch.row(_TOTALS, midnight=_midnight(work))
        by_skill, by_trigger = batch.rows(_BY_SKILL), batch.rows(_BY_TRIGGER)
    row = counts.result
    assert row is not None
    return construct(
        ExecutionStats,
        {
            "total": row[0],
            "today": row[1],
            "running": row[2],
            "by_skill": dict(by_skill.result),
            "by_trigger": dict(by_trigger.result),
            "exact": True,
        },
    )


def estimates(work: UnitOfWork) -> ExecutionStats:
    """The counts of `totals`, for which no more than a bounded number of executions is read."""
    since = _midnight(work)
    total, today, unfinished = _ALL.count(work), _TODAY.count(work, midnight=since), _UNFINISHED.count(work)
    by_skill = {name: _OF_SKILL.counted(work, found, name=name) for name, found in work.rows(_SKILLS)}
    by_trigger = {name: _OF_TRIGGER.counted(work, found, name=name) for name, found in work.rows(_TRIGGERS)}
    numbers = (total, today, unfinished, *by_skill.values(), *by_trigger.values())
    return construct(
        ExecutionStats,
        {
            "total": total,
            "today": today,
            "running": unfinished,
            "by_skill": by_skill,
            "by_trigger": by_trigger,
            "exact": all(number.exact for number in numbers),
        },
    )


def _midnight(work: UnitOfWork) -> datetime:
    # without a zone in between: on the days when clocks change, midnight is not in the zone of now
    midnight = work.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None).astimezone()
    return as_utc("midnight", midnight)


def buckets(work: UnitOfWork, size: Size, path: str, number: int) -> list[StatsBucket]:
    """Exactly `number` buckets, oldest first; the last one contains now."""
    check_limit(number, maximum=MAX_BUCKETS, path=path)
    step, picture = _STEPS[size]
    last = _start(size, work.now())
    first = last - (number - 1) * step
    found = {row[0]: row[1:] for row in work.rows(_BUCKETS[size], since=first, until=last + step)}
    nothing = (0,) * (len(_COUNTS) - 1) + (0.0,)
    return [
        construct(StatsBucket, {"bucket": name, **dict(zip(_COUNTS, found.get(name, nothing), strict=True))})
        for name in ((first + index * step).strftime(picture) for index in range(number))
    ]


def _start(size: Size, at: datetime) -> datetime:
    hour = at.replace(minute=0, second=0, microsecond=0)
    return hour.replace(hour=0) if size == "day" else hour
