"""Time: an injected clock, aware UTC datetimes, and the integer forms that columns store."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import time_ns

from persist.errors import InvalidValue

Clock = Callable[[], datetime]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_REAL = math.nextafter(253_402_300_800, 0)
_MILLISECOND = timedelta(milliseconds=1)


def system_clock() -> datetime:
    """The default clock: now, aware, UTC."""
    return datetime.now(UTC)


def in_ms(clock: Clock) -> Callable[[], int]:
    """What a clock says, in whole milliseconds since 1970; of the default one without a datetime in between."""
    if clock is system_clock:
        return lambda: time_ns() // 1_000_000
    return lambda: epoch_ms(clock())


def cut(clock: Clock) -> Callable[[], datetime]:
    """What a clock says, cut to the milliseconds that columns keep."""
    if clock is system_clock:
        return lambda: datetime.fromtimestamp(time_ns() // 1_000_000 / 1000, UTC)  # a float holds milliseconds until 2100
    return lambda: to_ms(aware("clock", clock()))


def aware(path: str, value: object) -> datetime:
    """The instant in UTC; a naive datetime is refused, since its zone would be a guess."""
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


def epoch_us(value: datetime) -> int:
    """Whole microseconds since 1970; integer arithmetic, since float seconds lose some."""
    gap = value - EPOCH
    return (gap.days * 86_400 + gap.seconds) * 1_000_000 + gap.microseconds


def epoch_ms(value: datetime) -> int:
    """Whole milliseconds since 1970, cut, not rounded."""
    return (value - EPOCH) // _MILLISECOND


def epoch_real(value: datetime) -> float:
    """Seconds since 1970 as a float; the last microseconds of the year 9999 would round to what is no instant."""
    return min(epoch_us(value) / 1_000_000, _LAST_REAL)


def from_epoch_ms(value: int) -> datetime:
    """The instant of that many milliseconds since 1970."""
    return _since_1970(value, "milliseconds")


def from_epoch_s(value: float) -> datetime:
    """The instant of that many seconds since 1970."""
    return _since_1970(value, "seconds")


def _since_1970(value: float, unit: str) -> datetime:
    try:
        return EPOCH + timedelta(**{unit: value})
    except (OverflowError, ValueError):
        raise InvalidValue("instant", "it is not between the years 1 and 9999.") from None
    except TypeError:  # files that were adopted, or are damaged, may hold anything
        raise InvalidValue("instant", f"{value!r} is stored, which is no number of {unit}.") from None


def to_ms(value: datetime) -> datetime:
    """The instant cut to whole milliseconds."""
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def iso_ms(value: datetime) -> str:
    """An aware UTC instant as ISO 8601 text with milliseconds and Z; as text it sorts like the instants."""
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
