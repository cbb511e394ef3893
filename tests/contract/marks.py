"""What raw reads of Postgres see beside the values."""

from typing import Any

from persist.db.values.json import MARK


def unmarked(value: Any) -> Any:
    """The value without the marks of the order of keys."""
    if isinstance(value, list):
        return [unmarked(item) for item in value]
    return {key: unmarked(item) for key, item in value.items() if key != MARK} if isinstance(value, dict) else value
