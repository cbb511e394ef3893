"""The cursor of a follower: what it was given, as text that a browser keeps and sends back."""

import base64
import binascii
from typing import Any

import orjson

from persist.chat.following.rendering import RESULT, Sent
from persist.db.values.arguments import check_label
from persist.errors import InvalidValue

_MAX_BYTES = 1 << 20
_MAX_COUNT = 2**31
_REFUSED = "it is no cursor of follow()."


def encode_cursor(sent: Sent) -> str:
    """The cursor of this place: base64url text without padding."""
    flags = sent.started | sent.ended << 1 | sent.step_ended << 2
    text = orjson.dumps([sent.message_id, flags, sent.settled, sent.step, sent.metadata, sent.entries])
    return base64.urlsafe_b64encode(text).decode("ascii").rstrip("=")


def decode_cursor(cursor: object) -> Sent:
    """The place that a cursor names. Raises InvalidValue for text that `encode_cursor` did not make."""
    if not isinstance(cursor, str) or not cursor.isascii() or len(cursor) > _MAX_BYTES:
        raise InvalidValue("cursor", _REFUSED)
    try:
        text = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found = orjson.loads(text)
    except (binascii.Error, ValueError):
        raise InvalidValue("cursor", _REFUSED) from None
    match found:
        case [str(id), 0 | 1 | 2 | 3 | 5 as flags, settled, step, str(metadata), list(entries)]:
            if id and _is_count(settled, 0) and _is_count(step, -1) and all(map(_is_entry, entries)):
                check_label("cursor", id)
                told = [None if entry is None else (entry[0], entry[1]) for entry in entries]
                return Sent(id, bool(flags & 1), bool(flags & 2), settled, step, metadata, bool(flags & 4), told)
    raise InvalidValue("cursor", _REFUSED)


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < _MAX_COUNT


def _is_entry(entry: Any) -> bool:
    match entry:
        case None | [str(), str()]:
            return True
        case [str(), [stage, sent]]:
            known = _is_count(sent, -1) if stage == 0 else isinstance(sent, str)
            return type(stage) is int and 0 <= stage <= RESULT and known
        case [str(), sent]:
            return _is_count(sent, -1)
    return False
