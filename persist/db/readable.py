"""What a verb that writes gives back, where a cell of what it ended or replaced cannot be read."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

from persist.db.spoilt import is_unreadable
from persist.db.values import Value, build


def without_spoilt(value: Any) -> Any:
    """What a verb gives back, with None in the place of every cell that could not be read."""
    kind = type(value)
    if is_unreadable(value):
        return None
    if issubclass(kind, Value):
        return build(kind, {name: without_spoilt(item) for name, item in value.__dict__.items()})
    if kind is dict:
        return {key: without_spoilt(item) for key, item in value.items()}
    if kind is list:
        return [without_spoilt(item) for item in value]
    if issubclass(kind, tuple):
        items = [without_spoilt(item) for item in value]
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: without_spoilt(getattr(value, field.name)) for field in fields(value) if field.init})
    return value
