"""Instants of telemetry: the published tables store whole seconds."""

from datetime import datetime, timedelta

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import as_utc, instant_after

_SECOND = timedelta(seconds=1)


def second(path: str, value: object) -> datetime:
    """An instant in UTC, rounded down to its second. Raises InvalidValue if it is not a datetime with a zone."""
    return as_utc(path, value).replace(microsecond=0)


def second_or_now(work: UnitOfWork, path: str, value: datetime | None) -> datetime:
    """`value` rounded down to its second, or now if it is None."""
    return second(path, work.now() if value is None else value)


def next_second(path: str, value: object) -> datetime:
    """An instant rounded up to its second: the equivalent bound for instants stored in whole seconds."""
    at = as_utc(path, value)
    return at if not at.microsecond else instant_after(path, at.replace(microsecond=0), _SECOND)
