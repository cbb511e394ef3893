"""When a cron expression fires, in the time of a zone: with the rules of Debian's cron where clocks are put forward or back.

A time of day that the clocks skip fires right after the gap, one that comes twice fires the first time; expressions for every
hour or minute go by the time that passes. cronsim tells which times of day an expression means, without a zone: its own rules
begin inside a repeated hour with times that are over, and know nothing of expressions with seconds.
"""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from persist.errors import InvalidValue, shown

_SECOND = timedelta(seconds=1)
_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def check_timezone(path: str, name: str) -> ZoneInfo:
    """The zone of the IANA name. Raises InvalidValue if this machine knows none of that name."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise InvalidValue(path, f"{shown(name)} is no time zone that this machine knows, such as Europe/Berlin.") from None


def fires_after(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    """The instants after `after` at which the expression fires, in order, perhaps none. Raises InvalidValue."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise InvalidValue("schedules", "cronsim is not installed; install agent-persist[schedules].") from error
    zone = check_timezone("timezone", timezone)
    fields = ["*" if field == "?" else field for field in _WORDS.get(cron.lower(), cron).split()]
    try:
        walls = CronSim(" ".join(fields), _first_wall(after, zone))
    except CronSimError as error:
        raise InvalidValue("cron", f"{shown(cron)} cannot be scheduled: {error}.") from None
    minute, hour = fields[-5:-3]
    passing = minute.startswith("*") or hour.startswith("*")
    return _later((_as_time_passes if passing else _once_a_day)(walls, zone), after)


def _first_wall(after: datetime, zone: ZoneInfo) -> datetime:
    """What the clock shows then; in an hour that comes twice, what it showed before, as it is going to show that once more."""
    try:
        wall = after.astimezone(zone).replace(tzinfo=None)
        first, second = _both(wall, zone)
        return wall - max(second - first, timedelta(0))
    except OverflowError:  # at an end of the calendar
        return after.replace(tzinfo=None)


def _both(wall: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The instants at which clocks show that time: once, twice, or, if skipped, instants around the gap."""
    local = wall.replace(tzinfo=zone)
    return local.astimezone(UTC), local.replace(fold=1).astimezone(UTC)


def _once_a_day(walls: Iterator[datetime], zone: ZoneInfo) -> Iterator[datetime]:
    """The first instant of each time of day; for times that the clocks skip, the first instant after the gap."""
    for wall in walls:
        first, second = _both(wall, zone)
        yield first if first <= second else _end_of_gap(second, first, zone)


def _end_of_gap(before: datetime, behind: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which the clocks were put forward, which lies between these two."""
    put_forward = behind.astimezone(zone).utcoffset()
    seconds = range((behind - before) // _SECOND)
    ahead = bisect_left(seconds, True, key=lambda count: (before + count * _SECOND).astimezone(zone).utcoffset() == put_forward)
    return before + ahead * _SECOND


def _as_time_passes(walls: Iterator[datetime], zone: ZoneInfo) -> Iterator[datetime]:
    """Every instant at which clocks show one of the times: skipped times have none, repeated times have two."""
    again: list[datetime] = []
    for wall in walls:
        first, second = _both(wall, zone)
        if first < second:
            again.append(second)  # the whole hour comes before it comes again
        else:
            yield from again
            again.clear()
        if first <= second:
            yield first
    yield from again


def _later(fires: Iterator[datetime], than: datetime) -> Iterator[datetime]:
    """The fires after an instant, in ascending order."""
    try:
        for fire in fires:
            if fire > than:
                yield fire
                than = fire
    except OverflowError:  # at the end of the calendar
        return


def next_fire(cron: str, timezone: str, after: datetime) -> datetime | None:
    """The first instant later than `after`; None if there is none in the next decades."""
    return next(fires_after(cron, timezone, after), None)


def missed(cron: str, timezone: str, first: datetime, now: datetime, most: int) -> tuple[list[datetime], datetime | None]:
    """The instants from `first`, which is due, until now, at most so many; and the one that follows them."""
    found, later = [first], fires_after(cron, timezone, first)
    for fire in islice(later, most):
        if fire > now or len(found) == most:
            return found, fire
        found.append(fire)
    return found, next(later, None)
