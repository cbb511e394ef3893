"""Reading the JSON objects of stored rows, which other programs may have written too."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from persist.db.hot import Statements
from persist.db.json import decode

log = logging.getLogger("persist")


def stored_object(db: Statements, stored: str, what: str) -> dict[str, Any]:
    """The object in the stored text of a Json column; anything unreadable counts as empty and is reported."""
    return read_object(db.wire(stored), what)


def read_object(text: str, what: str) -> dict[str, Any]:
    """The same of plain JSON text."""
    try:
        value = decode(text)
    except ValueError:
        log.warning("%s holds text that is not JSON; it is read as {}", what)
        return {}
    return value if isinstance(value, dict) else {}


def stored_objects(stored: Sequence[str], wire: Callable[[str], str] | None = None) -> list[dict[str, Any] | None]:
    """The objects in the stored texts, None for each that holds none: one parse, since a call per text would cost as much."""
    try:
        values = orjson.loads("[" + ",".join(stored if wire is None else map(wire, stored)) + "]")
        if len(values) == len(stored):
            return [value if type(value) is dict else None for value in values]
    except (orjson.JSONDecodeError, TypeError):
        pass
    return [_decode_one(text if wire is None else wire(text)) for text in stored]


def _decode_one(text: str) -> dict[str, Any] | None:
    try:
        value = decode(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
