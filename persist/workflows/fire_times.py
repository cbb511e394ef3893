"""Cron expressions: what is one, and when it fires in the time of a zone.

One has five fields (minute, hour, day of month, month, day of week), or six with the seconds first: lists, ranges and steps of
numbers or names, and the signs `?`, `L`, `W` and `#` of the schedulers that have them; or it is a word such as `@daily`.

Where clocks are put forward or back, the rules are those of Debian's cron. A time of day that the clocks skip fires right after
the gap, one that comes twice fires the first time; expressions for every hour or minute go by the time that passes. cronsim tells
which times of day an expression means, without a zone: its own rules begin inside a repeated hour with times that are over, and
know nothing of expressions with seconds.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from persist.db.values.arguments import check_timezone
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
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_RANGE = re.compile(r"(?P<first>[0-9]{1,2}|[a-z]{3})(-(?P<last>[0-9]{1,2}|[a-z]{3}))?")


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    maximum: int
    names: tuple[str, ...] = ()
    special: str = "(?!)"
    """A pattern of further terms that the field allows."""

    def refusal(self, text: str) -> str | None:
        for term in text.lower().split(","):
            base, slash, step = term.partition("/")
            if slash and not (step.isascii() and step.isdigit() and len(step) <= 2 and 1 <= int(step) <= self.maximum):
                return f"{shown(term)} has no step from 1 to {self.maximum}"
            if base in ("*", "?") or (not slash and re.fullmatch(self.special, base)):
                continue
            found = _RANGE.fullmatch(base)
            ends = [] if found is None else [self._number(end) for end in found.group("first", "last") if end is not None]
            if not ends or None in ends:
                return f"{shown(term)} is nothing from {self.least} to {self.maximum}"
            if ends != sorted(ends, key=lambda end: end or 0):
                return f"{shown(term)} ends before it begins"
        return None

    def _number(self, text: str) -> int | None:
        number = int(text) if text.isdigit() else self.names.index(text) + self.least if text in self.names else None
        return number if number is not None and self.least <= number <= self.maximum else None


_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31, special=r"l|lw|([1-9]|[12][0-9]|3[01])w"),
    _Field("month", 1, 12, names=_MONTHS),
    _Field("day of week", 0, 7, names=_DAYS, special=r"l|([0-7]|sun|mon|tue|wed|thu|fri|sat)(l|#[1-5]|#l)"),
)


def check_schedule(path: str, schedule: str) -> str:
    """The schedule; InvalidValue names the field that no cron could read."""
    if schedule.lower() in (*_WORDS, "@reboot"):  # that one has no time to fire at
        return schedule
    texts = schedule.split()
    if len(texts) not in (5, 6):
        raise InvalidValue(
            path, f"{shown(schedule)} is no cron expression: expected five fields, six with seconds, or a word such as @daily."
        )
    for field, text in zip(_FIELDS[-len(texts) :], texts, strict=True):
        if (refused := field.refusal(text)) is not None:
            raise InvalidValue(path, f"{shown(schedule)} is no cron expression: of the {field.name}, {refused}.")
    return schedule


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
