"""Counts over executions: in all, and in gapless UTC days and hours."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, case, cast, func, not_, or_, select
from sqlalchemy.sql.elements import ColumnElement

from persist.db.base import flag_set
from persist.db.buckets import Size, utc_bucket
from persist.db.clock import aware
from persist.db.cursor import check_limit
from persist.db.hot import Hot, among, param
from persist.db.totals import whole_total
from persist.db.types import Amount, Whole
from persist.db.values import build
from persist.db.work import Work
from persist.workflows.models import USED_TOKENS, executions
from persist.workflows.schemas import ExecutionStats, StatsBucket, StopReason

_E = executions.c
_STEPS: dict[Size, tuple[timedelta, str]] = {"day": (timedelta(days=1), "%Y-%m-%d"), "hour": (timedelta(hours=1), "%Y-%m-%dT%H")}
MOST_BUCKETS = 10_000


def _where(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return cast(func.coalesce(func.sum(case((condition, 1), else_=0)), 0), Whole())


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
    "cost_usd": func.coalesce(func.sum(_E.cost_usd), cast(0, Amount())),
}


def _buckets(size: Size) -> Hot:
    bucket = utc_bucket(_E.started_at, size).label("bucket")
    window = (_E.started_at >= param("since"), _E.started_at < param("until"))
    return Hot(select(bucket, *_COUNTS.values()).where(*window).group_by(bucket))


_BUCKETS: dict[Size, Hot] = {"day": _buckets("day"), "hour": _buckets("hour")}
_TOTALS = Hot(select(func.count(), _where(_E.started_at >= param("midnight")), _where(not_(_finished))).select_from(executions))
_BY_SKILL = Hot(select(_E.skill, func.count()).group_by(_E.skill).order_by(_E.skill))
_BY_TRIGGER = Hot(select(_E.trigger_type, func.count()).group_by(_E.trigger_type).order_by(_E.trigger_type))


def totals(work: Work) -> ExecutionStats:
    """Over everything; `today` begins at midnight where this process is."""
    # without a zone in between: on the days when clocks change, midnight is not in the zone of now
    midnight = work.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None).astimezone()
    row = work.row(_TOTALS, midnight=aware("midnight", midnight))
    assert row is not None
    return build(
        ExecutionStats,
        {
            "total": row[0],
            "today": row[1],
            "running": row[2],
            "by_skill": dict(work.rows(_BY_SKILL)),
            "by_trigger": dict(work.rows(_BY_TRIGGER)),
        },
    )


def buckets(work: Work, size: Size, path: str, number: int) -> list[StatsBucket]:
    """Exactly that many, the last of which is now's, oldest first."""
    check_limit(number, most=MOST_BUCKETS, path=path)
    step, picture = _STEPS[size]
    last = _start(size, work.now())
    first = last - (number - 1) * step
    found = {row[0]: row[1:] for row in work.rows(_BUCKETS[size], since=first, until=last + step)}
    nothing = (0,) * (len(_COUNTS) - 1) + (0.0,)
    return [
        build(StatsBucket, {"bucket": name, **dict(zip(_COUNTS, found.get(name, nothing), strict=True))})
        for name in ((first + index * step).strftime(picture) for index in range(number))
    ]


def _start(size: Size, at: datetime) -> datetime:
    hour = at.replace(minute=0, second=0, microsecond=0)
    return hour.replace(hour=0) if size == "day" else hour
