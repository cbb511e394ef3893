"""What a verb gives back, where a cell of what it read cannot be read."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

from persist.db.spoilt import is_unreadable
from persist.db.values import Value, build


def given_back(value: Any, *, writes: bool) -> Any:
    """A verb that reads gives no value with such a cell: UnreadableRow. Of one that writes it is None: what it did is done."""
    kind = type(value)
    if is_unreadable(value):
        if not writes:
            bool(value)  # raises
        return None
    if issubclass(kind, Value):
        return build(kind, {name: given_back(item, writes=writes) for name, item in value.__dict__.items()})
    if kind is dict:
        return {key: given_back(item, writes=writes) for key, item in value.items()}
    if kind is list:
        return [given_back(item, writes=writes) for item in value]
    if issubclass(kind, tuple):
        items = [given_back(item, writes=writes) for item in value]
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return replace(value, **{name: given_back(item, writes=writes) for name, item in named.items()})
    return value
