"""Encoding and decoding of JSON: both databases accept the same values, checked before a driver sees them.

Accepted: None, bool, str, integers from -2**63 to 2**64-1, finite floats, lists, and dicts with string keys, nested at most
`max_depth` levels, at most `max_bytes` of UTF-8 text. -0.0 becomes 0.0, adjacent surrogate halves become one character; NUL and
lone halves survive. Anything else raises InvalidValue with the path of the offending value. Subclasses (enums, named tuples,
numpy scalars) and datetimes, UUIDs and tuples are refused, since they would be read back as another type.
"""

import json as stdlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import is_not
from typing import Any

import orjson

from persist.db.values.escaping import LEAD, escape_json, has_half, join_halves, unescape_json
from persist.errors import InvalidValue, PayloadTooLarge, shown

Json = Any
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
_BIG_FLOAT = 1e16  # JSONB would turn floats from here on into integers, unless they are written with a decimal point


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """The largest encoded value, in bytes of UTF-8, and the deepest nesting, in levels."""

    max_bytes: int = 16 * 2**20
    max_depth: int = 200


DEFAULT_LIMITS = JsonLimits()


class JsonText(str):
    """JSON text that `encode` made; a Json column stores it without encoding it again."""

    __slots__ = ()


_EMPTY = JsonText("{}")


class _Walk:
    """Visits every node once: refuses values outside of the domain, and notes whether the fast encoder would be wrong."""

    __slots__ = ("max_depth", "special", "trail")

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self.special = False  # whether a float or text needs the slow writer
        self.trail: list[str | int] = []

    def node(self, value: object, depth: int) -> None:
        kind = type(value)
        if kind is str:
            if not value.isascii() and has_half(value):  # type: ignore[attr-defined, arg-type]  # kind is str
                self.special = True
        elif kind is int:
            if not INT_MIN <= value <= INT_MAX:  # type: ignore[operator]  # kind is int
                self.refuse("an integer must fit 64 bits (-2**63 to 2**64-1).")
        elif kind is float:
            self.number(value)  # type: ignore[arg-type]  # kind is float
        elif kind is dict:
            self.items(value, depth + 1)  # type: ignore[arg-type]  # kind is dict
        elif kind is list:
            if depth >= self.max_depth:
                self.refuse(f"nested deeper than {self.max_depth} levels.")
            for index, item in enumerate(value):  # type: ignore[arg-type, var-annotated]  # kind is list
                if item is not None and type(item) is not bool:
                    self.trail.append(index)
                    self.node(item, depth + 1)
                    self.trail.pop()
        elif value is not None and kind is not bool:
            self.refuse(f"{kind.__name__} is not a JSON value.")

    def items(self, value: dict[Any, object], depth: int) -> None:
        if depth > self.max_depth:
            self.refuse(f"nested deeper than {self.max_depth} levels.")
        for key, item in value.items():
            if type(key) is not str:
                self.refuse(f"the key {shown(key)} is not a string.")
            if not key.isascii() and has_half(key):
                self.special = True
            if type(item) is str:
                if not item.isascii() and has_half(item):
                    self.special = True
            elif item is not None and type(item) is not bool:
                self.trail.append(key)
                self.node(item, depth)
                self.trail.pop()

    def number(self, value: float) -> None:
        if not math.isfinite(value):
            self.refuse(f"{value} is not a JSON number.")
        if abs(value) >= _BIG_FLOAT or (value == 0.0 and math.copysign(1.0, value) < 0):
            self.special = True

    def refuse(self, reason: str) -> None:
        raise InvalidValue(_join(self.trail), reason)


def encode(value: Json, path: str = "value", limits: JsonLimits = DEFAULT_LIMITS) -> JsonText:
    """The JSON text of a value. InvalidValue and PayloadTooLarge name the path of the offending value, below `path`."""
    if isinstance(value, JsonText):
        return value
    if type(value) is dict and not value:
        return _EMPTY
    walk = _Walk(limits.max_depth)
    try:
        walk.node(value, 0)
    except InvalidValue as error:
        raise InvalidValue(path + error.path, error.reason) from None
    utf8 = _write(value).encode() if walk.special else orjson.dumps(value)
    if len(utf8) > limits.max_bytes:
        raise PayloadTooLarge(path, len(utf8), limits.max_bytes, advice="Keep large content in a file and store its reference.")
    return JsonText(utf8, "utf-8")


class JsonFrame:
    """The JSON text around the string under a key of an object: `head` up to its opening quote, `foot` from its closing one."""

    __slots__ = ("_after", "_before", "_key")

    def __init__(self, value: Mapping[str, Json], key: str) -> None:
        place, items = list(value).index(key), list(value.items())
        self._before, self._key, self._after = items[:place], key, items[place + 1 :]

    @property
    def head(self) -> str:
        return f'{encode(dict(self._before))[:-1]}{"," if self._before else ""}"{self._key}":"'

    @property
    def foot(self) -> str:
        return f'"{"," if self._after else ""}{encode(dict(self._after))[1:]}'


def check(value: Json, path: str, limits: JsonLimits = DEFAULT_LIMITS) -> None:
    """Raise InvalidValue, with the path, if the value is not in the domain. The size is not checked."""
    try:
        _Walk(limits.max_depth).node(value, 0)
    except InvalidValue as error:
        raise InvalidValue((path + error.path).lstrip("."), error.reason) from None


def decode(text: str | bytes) -> Json:
    """The value of JSON text. Raises InvalidValue. Text with lone halves, which orjson refuses, is read by `json`."""
    try:
        return orjson.loads(str(text) if type(text) is JsonText else text)  # orjson refuses subclasses
    except orjson.JSONDecodeError:
        if isinstance(text, int | float):  # in an adopted file, a column with numeric affinity turned the text into a number
            return text
        try:
            return stdlib.loads(text)
        except (ValueError, RecursionError) as error:  # another program may have written it
            raise InvalidValue("stored JSON", f"the text is no JSON: {error}.") from None


def parse(text: str | bytes) -> Json:
    """The value of JSON text from outside. ValueError or RecursionError for any other text, such as NaN, Infinity and 1e999."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return stdlib.loads(text, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number of JSON")
    return number


def check_object(value: Json, path: str, limits: JsonLimits) -> dict[str, Any]:
    """A JSON object in the domain, within `max_depth`; None becomes {}."""
    plain = plain_object(value, path)
    check(plain, path, limits)
    return plain


def plain_object(value: Json, path: str) -> dict[str, Any]:
    """The mapping as a dict, its items unchecked since `encode` checks them later; None becomes {}. Else InvalidValue."""
    if value is None:
        return {}
    if type(value) is not dict and not isinstance(value, Mapping):
        raise InvalidValue(path, "expected an object.")
    return dict(value)


def merge_patch(target: Mapping[str, Json], patch: Mapping[str, Json]) -> dict[str, Json]:
    """RFC 7396: objects merge, null removes the key, everything else replaces."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            inner = result.get(key)
            result[key] = merge_patch(inner if isinstance(inner, dict) else {}, value)
        else:
            result[key] = value
    return result


def _write(value: object) -> str:
    """Encode slowly values that orjson would refuse or JSONB would change: lone halves, -0.0, floats from 1e16 on."""
    if isinstance(value, dict):
        inner = ",".join(f"{_write_text(key)}:{_write(item)}" for key, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{','.join(_write(item) for item in value)}]"
    if isinstance(value, str):
        return _write_text(value)
    if isinstance(value, float):
        if abs(value) >= _BIG_FLOAT:
            return f"{value:.1f}"
        return "0.0" if value == 0.0 else orjson.dumps(value).decode()
    return orjson.dumps(value).decode()


def _write_text(text: str) -> str:
    text = join_halves(text)
    return stdlib.dumps(text) if has_half(text) else orjson.dumps(text).decode()


def _join(trail: list[str | int]) -> str:
    steps = trail if len(trail) <= 12 else [*trail[:6], "…", *trail[-5:]]
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


# Objects are read with their keys in the order in which they were written, because the order changes a prompt, and with it what
# providers' prompt caches find. An object whose keys are in the default order is stored as it is. The default is JSONB's order;
# for the outermost object it is JSONB's order with "type" first, as parts of messages have it. Any other object gets the key
# `MARK`. Its text lists, for each key in the order of writing, the place at which JSONB sorts that key. A mark that does not fit
# its object, because another program has changed the keys, is ignored.

MARK = LEAD + "order"
"""The key for the mark. It cannot collide with an escaped key, in which U+FDD0 is followed by U+FDD0 or four hex digits."""
_FIRST = "type"
_FIRST_IN_TEXT = f'"{_FIRST}": '
_LONG_FLOAT = re.compile(r"[0-9]{16}\.0")
"""A large float as `encode` writes it. orjson would write 1e16, which JSONB turns into an integer."""
_CONTAINERS = frozenset({dict, list})
_NO_LIMITS = JsonLimits(max_bytes=2**62, max_depth=900)
"""Limits for encoding a marked value, which has passed the limits of its store before."""


def to_jsonb(text: str) -> str:
    """The text to store as JSONB for the JSON text of a value: escaped, and marked where the order of keys would be lost."""
    text = escape_json(text)
    if ":" not in text:
        return text
    value = decode(text)
    marked = _marked(value, _sorted_type_first)
    if marked is value:
        return text
    return encode(marked, "", _NO_LIMITS) if ".0" in text and _LONG_FLOAT.search(text) else orjson.dumps(marked).decode()


def from_jsonb(text: str) -> str:
    """The JSON text of a value from the text of its JSONB, with the keys in the order in which they were written."""
    if MARK in text:
        text = orjson.dumps(_restored(decode(text), outermost=True)).decode()
    elif _FIRST_IN_TEXT in text and (ordered := _type_first(value := decode(text))) is not value:
        text = orjson.dumps(ordered).decode()
    return unescape_json(text)


def joined_from_jsonb(text: str) -> str:
    """The JSON texts of several values, from the texts of their JSONB joined with commas; see `from_jsonb`."""
    if MARK not in text and _FIRST_IN_TEXT not in text:
        return unescape_json(text)
    values = [_restored(value, outermost=True) for value in orjson.loads(f"[{text}]")]
    return unescape_json(orjson.dumps(values)[1:-1].decode())


def value_of_jsonb(text: str) -> Any:
    """The value from the text of its JSONB."""
    return decode(from_jsonb(text)) if LEAD in text else _type_first(decode(text))


def _sorted(value: dict[str, Any]) -> list[str]:
    """The keys in JSONB's order. Sorting characters gives the same order as sorting their UTF-8 bytes."""
    keys = sorted(value)
    keys.sort(key=len if "".join(keys).isascii() else _width)
    return keys


def _width(key: str) -> int:
    return len(key.encode())


def _sorted_type_first(value: dict[str, Any]) -> list[str]:
    keys = _sorted(value)
    if _FIRST in value:
        keys.remove(_FIRST)
        keys.insert(0, _FIRST)
    return keys


def _marked(value: Any, default: Callable[[dict[str, Any]], list[str]] = _sorted) -> Any:
    if type(value) is list:
        items = [_marked(item) if type(item) in _CONTAINERS else item for item in value]
        return items if any(map(is_not, items, value)) else value
    if type(value) is not dict:
        return value
    new = {key: marked for key, item in value.items() if type(item) in _CONTAINERS and (marked := _marked(item)) is not item}
    if len(value) > 1 and list(value) != default(value):
        places = {key: str(place) for place, key in enumerate(_sorted(value))}
        new[MARK] = ",".join([places[key] for key in value])
    return {**value, **new} if new else value


def _restored(value: Any, *, outermost: bool = False) -> Any:
    """The value without marks, its keys in the order in which they were written. Changes the given value in place."""
    if type(value) is list:
        for place, item in enumerate(value):
            if type(item) in _CONTAINERS:
                value[place] = _restored(item)
    elif type(value) is dict:
        for key, item in value.items():
            if type(item) in _CONTAINERS:
                value[key] = _restored(item)
        if MARK in value:
            return _by_mark(value, value.pop(MARK))
        if outermost:
            return _type_first(value)
    return value


def _by_mark(value: dict[str, Any], mark: object) -> dict[str, Any]:
    keys = list(value)  # in JSONB's order
    places = mark.split(",") if isinstance(mark, str) else []
    if sorted(places) != sorted(map(str, range(len(keys)))):
        return value
    return {keys[place]: value[keys[place]] for place in map(int, places)}


def _type_first(value: Any) -> Any:
    if type(value) is not dict or _FIRST not in value or next(iter(value)) == _FIRST:
        return value
    first = value.pop(_FIRST)
    return {_FIRST: first, **value}
