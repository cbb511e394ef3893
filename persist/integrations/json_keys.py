"""Keys that are different in Python and equal in JSON, such as 1 and "1": one of the two values would be lost without a word."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import orjson
from pydantic import BaseModel

from persist.errors import InvalidValue, shown


def check_keys(path: str, value: object, *, none: str = "null") -> None:
    """Raises InvalidValue if two keys of a dict, anywhere in the value, are written alike. `none`: how None is written."""
    try:
        orjson.dumps(value)
        return  # all keys are text: a quick look, after which most values need not be walked
    except TypeError:
        pass
    waiting = [(path, value)]
    while waiting:
        place, found = waiting.pop()
        if isinstance(found, Mapping):
            seen: dict[str, Any] = {}
            for key, below in found.items():
                name = key if isinstance(key, str) else none if key is None else _written(key)
                if name in seen:
                    raise InvalidValue(place, f"the keys {shown(seen[name])} and {shown(key)} are one key in JSON.")
                seen[name] = key
                waiting.append((f"{place}.{name}", below))
        elif isinstance(found, list | tuple | set | frozenset):
            waiting += [(f"{place}[{index}]", one) for index, one in enumerate(found)]
        elif isinstance(found, BaseModel):
            waiting += [(f"{place}.{name}", one) for name, one in found]
        elif is_dataclass(found) and not isinstance(found, type):
            waiting += [(f"{place}.{field.name}", getattr(found, field.name, None)) for field in fields(found)]


def _written(key: object) -> str:
    return json.dumps(key) if isinstance(key, bool | int | float) else str(key)
