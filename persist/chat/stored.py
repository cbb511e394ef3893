"""Reading what stored rows hold, which other programs may have written too."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from persist.chat.parts import Part, can_grow, grow, is_part
from persist.db.escape import unescape_text
from persist.db.hot import Statements
from persist.db.json import JsonLimits, JsonText, decode, encode
from persist.db.wire import readable
from persist.errors import InvalidValue, UnreadableRow

log = logging.getLogger("persist")

_PARTS, _PIECES = "chat_parts", "chat_part_deltas"
_ANY_SIZE = JsonLimits(max_bytes=2**31)  # each piece was measured when it came


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


def stored_part(part_id: str, stored: Any, wire: Callable[[str], str] = str) -> Part:
    """The object in the `stored_text` of a part's data, which has a type; UnreadableRow for anything else."""
    try:
        data = decode(wire(readable(stored)))
    except (ValueError, RecursionError):
        raise UnreadableRow(_PARTS, (part_id,), "data_json", "the text is no JSON") from None
    if not is_part(data):
        raise UnreadableRow(_PARTS, (part_id,), "data_json", "it is no part with a type")
    part: Part = data
    return part


def stored_tail(part_id: str, pieces: Sequence[tuple[Any, Any]]) -> tuple[str, int]:
    """The text of (seq, delta) in order, each as `stored_text`, and the last seq. UnreadableRow names what is none."""
    texts, seq = [], 0
    for place, stored in pieces:
        try:
            seq = int(readable(place))
        except ValueError:
            raise UnreadableRow(_PIECES, (part_id, place), "seq", "it is no number") from None
        try:
            texts.append(unescape_text(readable(stored)))
        except ValueError:
            raise UnreadableRow(_PIECES, (part_id, seq), "delta", "it is no text") from None
    return "".join(texts), seq


def grown_part(part_id: str, data: Part, tail: str) -> Part:
    """The part with its tail. UnreadableRow where the part is nothing that text can be added to."""
    if not can_grow(data):
        raise UnreadableRow(_PARTS, (part_id,), "data_json", "no text can be added to what is stored")
    return grow(data, tail)


def grown_text(part_id: str, data: Part, tail: str) -> JsonText:
    """As `grown_part`, to be stored."""
    try:
        return encode(grown_part(part_id, data, tail), limits=_ANY_SIZE)
    except InvalidValue as error:
        raise UnreadableRow(_PARTS, (part_id,), "data_json", f"it holds what is no JSON of ours ({error.path})") from None
