"""Writing a value as one line of compact JSON in UTF-8, whatever its text.

orjson writes nearly everything. Values that it refuses are written by a slower encoder: a lone surrogate becomes a `\\udXXX`
escape (UTF-8 cannot encode it), two halves of a pair become one character, integers of any size stay exact, and keys that are not
text become text as in JavaScript. Both encoders write NaN and infinities as null.
"""

import json as stdlib
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import orjson

from persist.db.values.clock import from_epoch_ms
from persist.db.values.escaping import join_halves
from persist.errors import InvalidValue


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


# The limit on a tool's result in a log. Logs are for display; the tool's own output has the whole text.

TOOL_RESULT_LIMIT = 65_536
"""The limit in UTF-16 units, as JavaScript counts: a letter is one, an emoji two."""


def truncate_tool_result(text: str, limit: int = TOOL_RESULT_LIMIT) -> str:
    """The text, or its first `limit` UTF-16 units and a last line `…[truncated N chars]`, where N is the units left out.

    A character of two units is left out where the limit falls inside it. Raises InvalidValue for a limit below 1.
    """
    if limit < 1:
        raise InvalidValue("limit", "at least 1.")
    if 2 * len(text) <= limit or (len(text) <= limit and text.isascii()):
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    total = len(units) // 2
    if total <= limit:
        return text
    kept_units = limit
    if _is_half(units, kept_units - 1, 0xD8) and _is_half(units, kept_units, 0xDC):
        kept_units -= 1
    head = units[: 2 * kept_units].decode("utf-16-le", "surrogatepass")
    return f"{head}\n…[truncated {total - kept_units} chars]"


def _is_half(units: bytes, at: int, first: int) -> bool:
    """Whether the unit at that index is a surrogate: a leading one (`first` 0xD8) or a trailing one (0xDC)."""
    return units[2 * at + 1] & 0xFC == first


OnInvalid = Callable[[str, str, str], str]
"""`on_invalid(path, reason, text)`, called for a value that JSON cannot express: raises, or returns the text to write instead."""
_MAX_DEPTH = 256  # the limit of orjson; deeper values could overflow the stack, also of readers
_MAX_BITS = 10_000  # Python writes and reads no integers of more than 4300 digits
_HALF = re.compile("[\ud800-\udfff]")


def to_json(value: Any, on_invalid: OnInvalid, at: str) -> bytes:
    """JSON text without a line break. `at`: the value's path, for `on_invalid`."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return _encode_slowly(value, on_invalid, at)


def to_line(value: Any, on_invalid: OnInvalid) -> bytes:
    """JSON text with its line break."""
    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return _encode_slowly(value, on_invalid, "") + b"\n"


def _encode_slowly(value: Any, on_invalid: OnInvalid, at: str) -> bytes:
    text = stdlib.dumps(_PlainCopy(on_invalid, at).of(value), ensure_ascii=False, separators=(",", ":"))
    return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text).encode()


class _PlainCopy:
    def __init__(self, on_invalid: OnInvalid, at: str) -> None:
        self._on_invalid = on_invalid
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
        return join_halves(self._on_invalid(path, f"{what} is not a JSON value.", text))


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # the line is written even if the value's __str__ raises
        return f"<{type(value).__name__}>"
