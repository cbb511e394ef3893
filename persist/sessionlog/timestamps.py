"""Timestamps of events and lines: UTC in ISO 8601 with milliseconds and `Z`, so that their text sorts by time."""

from datetime import UTC, datetime
from typing import Any

from persist.db.values.clock import from_epoch_ms


def iso(value: datetime) -> str:
    """An aware datetime as a line's timestamp, rounded down to milliseconds."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def instant_of(raw: Any) -> datetime | None:
    """The instant of a timestamp: epoch milliseconds, ISO text (without a zone: UTC) or a datetime; None for anything else."""
    try:
        if isinstance(raw, str):
            value = datetime.fromisoformat(raw)
        elif isinstance(raw, datetime):
            value = raw
        elif isinstance(raw, int | float) and not isinstance(raw, bool):
            return from_epoch_ms(int(raw))
        else:
            return None
        return value.replace(tzinfo=UTC) if value.utcoffset() is None else value.astimezone(UTC)
    except (ValueError, OverflowError):  # no such date, or outside of years 1 to 9999
        return None
