"""When hours, days and the periods of budgets begin and end."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from persist.errors import InvalidValue
from persist.quoting import shown
from persist.usage.schemas import Bucket, Period

FIRST = datetime(1, 1, 1, tzinfo=UTC)
"""The begin of a period that holds every instant, those before 1970 too."""
LAST = datetime(9999, 12, 31, tzinfo=UTC)
"""The end of a period that never ends, and of those that would end later."""
_HOUR, _DAY, _LONGER_THAN_A_MONTH = timedelta(hours=1), timedelta(days=1), timedelta(days=32)


class Span(NamedTuple):
    """From `starts_at` until before `ends_at`, in UTC."""

    starts_at: datetime
    ends_at: datetime


def bucket_start(bucket: Bucket, at: datetime) -> datetime:
    """The beginning of the UTC hour or day of an instant in UTC."""
    hour = at.replace(minute=0, second=0, microsecond=0)
    return hour if bucket == Bucket.HOUR else hour.replace(hour=0)


def check_timezone(path: str, name: str) -> str:
    """The IANA name of a time zone. Raises InvalidValue if this machine knows none of that name."""
    if name != "UTC":
        try:
            ZoneInfo(name)
        except (OSError, ValueError, LookupError):
            raise InvalidValue(path, f"{shown(name)} is no time zone that this machine knows, such as Europe/Berlin.") from None
    return name


def span_of(period: Period, timezone: str, at: datetime) -> Span:
    """The period that an instant is in. A zone that this machine does not know counts as UTC.

    Days, weeks and months are those of the zone, and may be longer or shorter where its clocks change. An hour is one of UTC.
    """
    if period == Period.TOTAL:
        return Span(FIRST, LAST)
    if period == Period.HOUR:
        start = bucket_start(Bucket.HOUR, at)
        return Span(start, _sum(start, _HOUR))
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


def _sum(at: datetime, span: timedelta) -> datetime:
    try:
        return min(LAST, at + span)
    except OverflowError:
        return LAST
