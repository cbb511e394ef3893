"""The places inside a value, counted, and another value in one of them."""

import dataclasses
from collections.abc import Mapping
from typing import Any


def places(value: Any) -> int:
    """How many things are in it, keys included, at any depth."""
    if isinstance(value, Mapping):
        return sum(2 + places(item) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(1 + places(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sum(1 + places(getattr(value, field.name)) for field in dataclasses.fields(value))
    return 0


def replaced(value: Any, at: int, by: Any) -> Any:
    if isinstance(value, Mapping):
        made: dict[Any, Any] = {}
        for key, item in value.items():
            if at == 0:
                try:
                    made[by] = item
                except TypeError:  # not hashable, so never a key
                    made[key] = by
            elif 0 < at <= 1 + places(item):
                made[key] = by if at == 1 else replaced(item, at - 2, by)
            else:
                made[key] = item
            at -= 2 + places(item)
        return made
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        items = replaced([getattr(value, name) for name in names], at, by)
        return dataclasses.replace(value, **dict(zip(names, items, strict=True)))
    made_list = []
    for item in value:
        inside = places(item)
        if at == 0:
            made_list.append(by)
        elif 0 < at <= inside:
            made_list.append(replaced(item, at - 1, by))
        else:
            made_list.append(item)
        at -= 1 + inside
    return type(value)(made_list)
