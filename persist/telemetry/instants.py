"""Instants of telemetry: whole seconds, as the published tables keep them."""

from datetime import datetime, timedelta

from persist.db.clock import aware
from persist.db.work import Work
from persist.errors import InvalidValue

_SECOND = timedelta(seconds=1)


def second(path: str, value: object) -> datetime:
    """The second that an instant is in."""
    return aware(path, value).replace(microsecond=0)


def second_or_now(work: Work, path: str, value: datetime | None) -> datetime:
    """The same; now if it is not given."""
    return second(path, work.now() if value is None else value)


def next_second(path: str, value: object) -> datetime:
    """The first second that is not before an instant: a bound for what is kept in whole ones."""
    at = aware(path, value)
    return at if not at.microsecond else later(path, at.replace(microsecond=0), _SECOND)


def later(path: str, at: datetime, span: timedelta) -> datetime:
    """The instant that much later; InvalidValue past the last one there is."""
    try:
        return at + span
    except OverflowError:
        raise InvalidValue(path, "so late an instant cannot be kept.") from None
