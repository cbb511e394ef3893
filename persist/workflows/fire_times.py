"""When a cron expression fires, in the time of a zone: with the rules of Debian's cron where clocks are put forward or back.

A time of day that the clocks skip fires right after the gap, one that comes twice fires the first time; expressions for every
hour or minute go by the time that passes.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

from persist.errors import InvalidValue
from persist.quoting import shown

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
    """The instants at which the expression fires, the first one later than `after`. Raises InvalidValue.

    An expression that never fires has none.
    """
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise InvalidValue("schedules", "cronsim is not installed; install agent-persist[schedules].") from error
    zone = check_timezone("timezone", timezone)
    fields = " ".join("*" if field == "?" else field for field in _WORDS.get(cron.lower(), cron).split())
    try:
        fires = CronSim(fields, after.astimezone(zone))
    except CronSimError as error:
        raise InvalidValue("cron", f"{shown(cron)} cannot be scheduled: {error}.") from None
    return (fire.astimezone(UTC) for fire in fires)


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
