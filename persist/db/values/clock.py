"""Clocks, aware UTC datetimes, and conversions to the numbers that columns store."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Any, Protocol, runtime_checkable

from persist.errors import InvalidValue, shown

Clock = Callable[[], datetime]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_REAL = math.nextafter(253_402_300_800, 0)


@runtime_checkable
class MillisecondClock(Protocol):
    """A clock that also tells whole milliseconds since 1970, without building a datetime."""

    def __call__(self) -> datetime:
        """The current time as an aware UTC datetime."""

    def ms(self) -> int:
        """Whole milliseconds since 1970."""


def system_clock() -> datetime:
    """The default clock: the current time as an aware UTC datetime."""
    return datetime.now(UTC)


def epoch_ms_clock(clock: Clock) -> Callable[[], int]:
    """A function that returns the clock's time in whole milliseconds since 1970 (no datetime is built for the default clock)."""
    if clock is system_clock:
        return lambda: time_ns() // 1_000_000
    if isinstance(clock, MillisecondClock):
        return clock.ms
    return lambda: epoch_ms(clock())


def millisecond_clock(clock: Clock) -> Callable[[], datetime]:
    """A function that returns the clock's time in UTC, cut to whole milliseconds, the precision of columns."""
    if clock is system_clock:
        return lambda: datetime.fromtimestamp(time_ns() // 1_000_000 / 1000, UTC)  # floats are exact to the ms until 2100
    if isinstance(clock, MillisecondClock):
        return lambda: datetime.fromtimestamp(clock.ms() / 1000, UTC)
    return lambda: to_ms(as_utc("clock", clock()))


def as_utc(path: str, value: object) -> datetime:
    """The instant in UTC. Raises InvalidValue for a naive datetime, since its time zone would be a guess."""
    if type(value) is datetime and value.tzinfo is UTC:
        return value
    if not isinstance(value, datetime):
        raise InvalidValue(path, f"expected a datetime, got {type(value).__name__}.")
    if value.utcoffset() is None:
        raise InvalidValue(path, "a naive datetime has no instant; give it a time zone.")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidValue(path, "the instant is not between the years 1 and 9999 in UTC.") from None


def encoder(convert: Callable[[datetime], Any]) -> Callable[[Any], Any]:
    """The function that checks an instant, as `as_utc` does, and converts it; None stays None."""

    def encode(value: Any) -> Any:
        if type(value) is datetime and value.tzinfo is UTC:
            return convert(value)
        return None if value is None else convert(as_utc("instant", value))

    return encode


def decoder(convert: Callable[[Any], datetime]) -> Callable[[Any], datetime | None]:
    """The function that converts what is stored to the instant; None stays None. Its `of_values` is for what is not None."""

    def decode(value: Any) -> datetime | None:
        return None if value is None else convert(value)

    decode.of_values = convert  # type: ignore[attr-defined]  # read by prepared statements
    return decode


def epoch_us(value: datetime) -> int:
    """Whole microseconds since 1970, by integer arithmetic: float seconds would lose some."""
    gap = value - EPOCH
    return (gap.days * 86_400 + gap.seconds) * 1_000_000 + gap.microseconds


def epoch_ms(value: datetime) -> int:
    """Whole milliseconds since 1970, rounded down."""
    gap = value - EPOCH
    return (gap.days * 86_400 + gap.seconds) * 1000 + gap.microseconds // 1000


def epoch_s(value: datetime) -> int:
    """Whole seconds since 1970, rounded down."""
    return epoch_us(value) // 1_000_000


def epoch_real(value: datetime) -> float:
    """Seconds since 1970 as a float, capped: the last microseconds of the year 9999 would round to the year 10000."""
    return min(epoch_us(value) / 1_000_000, _LAST_REAL)


def from_epoch_ms(value: int) -> datetime:
    """The instant `value` milliseconds after 1970 began."""
    try:
        return EPOCH + timedelta(milliseconds=value)
    except (OverflowError, ValueError, TypeError) as error:
        raise _no_instant(error, value, "milliseconds") from None


def from_epoch_s(value: float) -> datetime:
    """The instant `value` seconds after 1970 began."""
    try:
        return EPOCH + timedelta(seconds=value)
    except (OverflowError, ValueError, TypeError) as error:
        raise _no_instant(error, value, "seconds") from None


def _no_instant(error: Exception, value: object, unit: str) -> InvalidValue:
    if isinstance(error, TypeError):  # an adopted or damaged file may hold any type of value
        return InvalidValue("instant", f"{value!r} is stored, which is no number of {unit}.")
    return InvalidValue("instant", "it is not between the years 1 and 9999.")


def to_ms(value: datetime) -> datetime:
    """The instant cut to whole milliseconds."""
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def iso_ms(value: datetime) -> str:
    """An aware UTC instant as ISO 8601 text with milliseconds and Z, which sorts as the instants do."""
    return value.isoformat("T", "milliseconds")[:-6] + "Z"


def to_s(value: datetime) -> datetime:
    """The instant cut to whole seconds."""
    return value.replace(microsecond=0)


def sql_s(value: datetime) -> str:
    """An aware UTC instant in whole seconds, as SQLite's datetime() writes it."""
    return value.replace(microsecond=0, tzinfo=None).isoformat(" ")


def iso_reader(like: str) -> Callable[[Any], datetime]:
    """What reads an instant from ISO text in a SQLite file; without a zone it is UTC. `like`: an example, for the error."""
    read = datetime.fromisoformat

    def from_iso(value: Any) -> datetime:
        try:
            instant = read(value)
            if instant.tzinfo is UTC:
                return instant
            return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
        except (ValueError, OverflowError, TypeError):  # another program may have written any value
            raise InvalidValue("instant", f"{shown(value)} is stored, which is not like '{like}'.") from None

    return from_iso


def instant_before(now: datetime, span: timedelta) -> datetime:
    """The instant `span` before a time, or the first instant of the calendar: nothing is older than that."""
    try:
        return now - span
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def instant_after(path: str, now: datetime, span: timedelta) -> datetime:
    """The instant after that time, given as the argument `path`. Raises InvalidValue if it is not in the calendar."""
    try:
        return now + span
    except OverflowError:
        raise InvalidValue(path, "it ends after the year 9999.") from None
