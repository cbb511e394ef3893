"""The cursor of a follower: what it was given, as text that a browser keeps and sends back."""

import base64
import binascii
from typing import Any

import orjson

from persist.chat.following.rendering import Sent
from persist.db.values.arguments import check_label
from persist.errors import InvalidValue

_MAX_BYTES = 1 << 20
_REFUSED = "it is no cursor of follow()."


def encode_cursor(sent: Sent) -> str:
    """The cursor of this place: base64url text without padding."""
    flags = sent.started | sent.ended << 1 | sent.in_step << 2
    text = orjson.dumps([sent.message_id, flags, sent.settled, sent.metadata, sent.entries])
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
    if not _is_place(found):
        raise InvalidValue("cursor", _REFUSED)
    id, flags, settled, metadata, entries = found
    check_label("cursor", id)
    return Sent(id, bool(flags & 1), bool(flags & 2), settled, bool(flags & 4), metadata, entries)


def _is_place(found: Any) -> bool:
    match found:
        case [str(id), int(flags), int(settled), str(), list(entries)]:
            numbers = type(flags) is int and type(settled) is int and 0 <= flags < 8 and 0 <= settled < 2**31  # noqa: PLR2004
            return bool(id) and numbers and all(map(_is_entry, entries))
    return False


def _is_entry(entry: Any) -> bool:
    match entry:
        case bool():
            return False
        case int():
            return -1 <= entry < 2**63
        case str() | None:
            return True
        case [int(stage), int(sent)]:
            return stage == 0 and type(stage) is int and type(sent) is int and -1 <= sent < 2**63
        case [int(stage), str()]:
            return type(stage) is int and 0 < stage <= 4  # noqa: PLR2004 - the stages of rendering.py
    return False
