"""One value as one line of JSON: UTF-8 as it is, compact, whatever text it holds.

orjson writes nearly everything. What it refuses goes through the slow writer: lone halves of surrogate pairs become
`\\udXXX` escapes (which UTF-8 has no bytes for), halves that belong together one character, integers of any size stay
whole, keys that are no text become text as in JavaScript. NaN and infinities become null; both writers agree on that.
"""

import json as stdlib
import math
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import orjson

from persist.db.escape import join_halves

Stray = Callable[[str, str, str], str]
"""`stray(path, reason, text)` of what is no JSON value: raises, or gives the text to write in its place."""

_MAX_DEPTH = 256  # as deep as orjson goes; deeper ones would be a danger to the stack, and to readers
_MAX_BITS = 10_000  # Python writes and reads no integers of more than 4300 digits
_HALF = re.compile("[\ud800-\udfff]")


def to_json(value: Any, stray: Stray, at: str) -> bytes:
    """JSON text without a line break; `at` is where the value comes from."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return _slowly(value, stray, at)


def to_line(value: Any, stray: Stray) -> bytes:
    """JSON text with its line break."""
    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return _slowly(value, stray, "") + b"\n"


def _slowly(value: Any, stray: Stray, at: str) -> bytes:
    text = stdlib.dumps(_Plain(stray, at).of(value), ensure_ascii=False, separators=(",", ":"))
    return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text).encode()


class _Plain:
    """A copy of a value of plain JSON types only."""

    def __init__(self, stray: Stray, at: str) -> None:
        self._stray = stray
        self._trail = [at]
        self._open: set[int] = set()

    def of(self, value: Any) -> Any:
        if isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return join_halves(str(value))
        if isinstance(value, int):
            number = int(value)
            return number if number.bit_length() <= _MAX_BITS else self._refuse("an integer of so many digits", hex(number))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, Mapping | list | tuple):
            if id(value) in self._open:
                return self._refuse("a value inside of itself", "[a value inside of itself]")
            if len(self._open) >= _MAX_DEPTH:
                return self._refuse(f"nesting deeper than {_MAX_DEPTH} levels", "[nested too deep]")
            self._open.add(id(value))
            copy = self._items(value) if isinstance(value, Mapping) else self._list(value)
            self._open.discard(id(value))
            return copy
        try:
            return orjson.loads(orjson.dumps(value))  # datetimes, UUIDs, dataclasses
        except (TypeError, ValueError):
            return self._refuse(f"a value of type {type(value).__name__}", _text(value))

    def _items(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        copy = {}
        for key, item in value.items():
            self._trail.append(f".{key}" if isinstance(key, str) else "[…]")
            copy[self._key(key)] = self.of(item)
            self._trail.pop()
        return copy

    def _list(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        copy = []
        for index, item in enumerate(value):
            self._trail.append(f"[{index}]")
            copy.append(self.of(item))
            self._trail.pop()
        return copy

    def _key(self, key: Any) -> str:
        if isinstance(key, str):
            return join_halves(str(key))
        if key is None or isinstance(key, bool | int | float):
            return stdlib.dumps(key)
        return self._refuse(f"a key of type {type(key).__name__}", _text(key))

    def _refuse(self, what: str, text: str) -> str:
        path = "".join(self._trail[:12]).lstrip(".")
        return join_halves(self._stray(path, f"{what} is not a JSON value.", text))


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # whatever the value's own __str__ does, the line is written
        return f"<{type(value).__name__}>"
