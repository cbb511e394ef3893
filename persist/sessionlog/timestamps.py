"""The timestamps of events and lines: UTC, ISO 8601, milliseconds and `Z`, so that their text sorts as they do."""

from datetime import UTC, datetime
from typing import Any

from persist.db.clock import from_epoch_ms


def iso(value: datetime) -> str:
    """An aware datetime as the text that lines carry; less than a millisecond is cut off."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def instant_of(raw: Any) -> datetime | None:
    """What an event or a line gives: milliseconds since 1970, ISO text (without a zone: UTC) or a datetime; else None."""
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
    except (ValueError, OverflowError):  # no such day, or one before year 1 or after 9999
        return None
