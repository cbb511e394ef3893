"""Reading JSON and text of stored rows, which other programs may have written or damaged."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from persist.chat.reducer.parts import Part, can_grow, grow, is_part
from persist.db.changes.driver_statements import StatementRunner
from persist.db.expressions.json_text import readable
from persist.db.values.escaping import unescape_text
from persist.db.values.json import JsonLimits, JsonText, decode, encode
from persist.errors import InvalidValue, UnreadableRow

log = logging.getLogger("persist")

_PARTS, _PIECES = "chat_parts", "chat_part_deltas"
ANY_SIZE = JsonLimits(max_bytes=2**31)  # each delta's size was checked when it was fed


def stored_object(db: StatementRunner, stored: str, what: str) -> dict[str, Any]:
    """The object in a Json column's stored text; {} for anything else, with a warning if not JSON. `what` is for the log."""
    return read_object(db.to_plain_json(stored), what)


def read_object(text: str, what: str) -> dict[str, Any]:
    """The object in plain JSON text; {} for anything else, with a warning if it is not JSON."""
    try:
        value = decode(text)
    except ValueError:
        log.warning("%s holds text that is not JSON; it is read as {}", what)
        return {}
    return value if isinstance(value, dict) else {}


def stored_objects(stored: Sequence[str], to_plain_json: Callable[[str], str] | None = None) -> list[dict[str, Any] | None]:
    """The objects in the stored texts, None for each other value. All are parsed in one call: one call per text is slower."""
    try:
        values = orjson.loads("[" + ",".join(stored if to_plain_json is None else map(to_plain_json, stored)) + "]")
        if len(values) == len(stored):
            return [value if type(value) is dict else None for value in values]
    except (orjson.JSONDecodeError, TypeError):
        pass
    return [_decode_one(text if to_plain_json is None else to_plain_json(text)) for text in stored]


def _decode_one(text: str) -> dict[str, Any] | None:
    try:
        value = decode(text)
    except (ValueError, TypeError):
        return None
    return value if isinstance(value, dict) else None


def stored_part(part_id: str, stored: Any, to_plain_json: Callable[[str], str] = str) -> Part:
    """The part in the `stored_text` of its data: an object with a type. Raises UnreadableRow for anything else."""
    try:
        data = decode(to_plain_json(readable(stored)))
    except (ValueError, RecursionError):
        raise UnreadableRow(_PARTS, (part_id,), "data_json", "the text is no JSON") from None
    if not is_part(data):
        raise UnreadableRow(_PARTS, (part_id,), "data_json", "it is no part with a type")
    part: Part = data
    return part


def joined_deltas(part_id: str, pieces: Sequence[tuple[Any, Any]]) -> tuple[str, int]:
    """(the joined text, the last seq) of ordered (seq, delta) pairs, each as `stored_text`. UnreadableRow names a bad value."""
    texts, seq = [], 0
    for stored_seq, stored in pieces:
        try:
            seq = int(readable(stored_seq))
        except ValueError:
            raise UnreadableRow(_PIECES, (part_id, stored_seq), "seq", "it is no number") from None
        try:
            texts.append(unescape_text(readable(stored)))
        except ValueError:
            raise UnreadableRow(_PIECES, (part_id, seq), "delta", "it is no text") from None
    return "".join(texts), seq


def grown_part(part_id: str, data: Part, tail: str) -> Part:
    """The part with its deltas' text added. Raises UnreadableRow if no text can be added to the part."""
    if not can_grow(data):
        raise UnreadableRow(_PARTS, (part_id,), "data_json", "no text can be added to what is stored")
    return grow(data, tail)


def grown_text(part_id: str, data: Part, tail: str) -> JsonText:
    """The part with its deltas' text added, encoded to be stored. Raises UnreadableRow if that fails."""
    try:
        return encode(grown_part(part_id, data, tail), limits=ANY_SIZE)
    except InvalidValue as error:
        raise UnreadableRow(_PARTS, (part_id,), "data_json", f"it holds what is no JSON of ours ({error.path})") from None
