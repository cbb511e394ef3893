"""Checks a verb's result for cells that could not be read."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

from persist.db.unreadable.cells import is_unreadable
from persist.db.values.frozen import Value, construct
from persist.db.values.pages import PagedList


def without_unreadable_cells(value: Any, *, writes: bool) -> Any:
    """The verb's result without unreadable cells.

    In a reading verb such a cell raises UnreadableRow. In a writing verb, whose change has been made, the cell becomes None.
    """
    kind = type(value)
    if is_unreadable(value):
        if not writes:
            bool(value)  # raises UnreadableRow
        return None
    if issubclass(kind, Value):
        return construct(kind, {name: without_unreadable_cells(item, writes=writes) for name, item in value.__dict__.items()})
    if kind is dict:
        return {key: without_unreadable_cells(item, writes=writes) for key, item in value.items()}
    if kind is list:
        return [without_unreadable_cells(item, writes=writes) for item in value]
    if kind is PagedList:
        return PagedList((without_unreadable_cells(item, writes=writes) for item in value), value.cursor)
    if issubclass(kind, tuple):
        items = [without_unreadable_cells(item, writes=writes) for item in value]
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return replace(value, **{name: without_unreadable_cells(item, writes=writes) for name, item in named.items()})
    return value
