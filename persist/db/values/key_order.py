"""Keeps the order of an object's keys in JSONB, which sorts them by their length in bytes, then by their bytes.

Objects are read with their keys in the order in which they were written, because the order changes a prompt, and with it what
providers' prompt caches find. An object whose keys are in the default order is stored as it is. The default is JSONB's order;
for the outermost object it is JSONB's order with "type" first, as parts of messages have it. Any other object gets the key
`MARK`. Its text lists, for each key in the order of writing, the place at which JSONB sorts that key. A mark that does not fit
its object, because another program has changed the keys, is ignored.
"""

import re
from collections.abc import Callable
from operator import is_not
from typing import Any

import orjson

from persist.db.values.escaping import LEAD, escape_json, unescape_json
from persist.db.values.json import JsonLimits, decode, encode

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
    """The value with a mark in each object whose keys are not in the default order; the same object if there is none."""
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
