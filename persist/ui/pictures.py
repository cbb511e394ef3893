"""Bytes of stored files, by their true type: pictures of pixels are shown in their place, anything else is only kept."""

import base64
import binascii
from urllib.parse import unquote_to_bytes

from persist.errors import InvalidValue
from persist.ui.views import File

MOST_BYTES = 32 * 1024 * 1024
"""How large a file may be that a page gives, since it is read whole."""
PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"))
"""What is shown in its place. SVG is a document, in which programs and addresses may stand."""
_OCTETS = "application/octet-stream"
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)


def true_type(body: bytes) -> str:
    """The type of a picture that the first bytes show, whatever was said of it; else that of any bytes."""
    for beginning, kind in _BEGINNINGS:
        if body.startswith(beginning):
            return kind
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    return "image/avif" if body[4:12] in (b"ftypavif", b"ftypavis") else _OCTETS


def file_of(body: bytes, name: str) -> File:
    """A picture, to be shown; any other file, to be kept under a name."""
    kind = true_type(body)
    return File(body, kind, None if kind in PICTURES else name or "file")


def refuse_large(size: int, what: str) -> None:
    """Raise InvalidValue for a file that is too large for a page."""
    if size > MOST_BYTES:
        raise InvalidValue(what, f"it has {size:,} bytes; larger than {MOST_BYTES:,} are written out by `persist blobs get`.")


def of_data_url(url: str) -> bytes:
    """The bytes in a data URL. Raises InvalidValue for any other text."""
    head, comma, text = url.partition(",")
    if head[:5].lower() != "data:" or not comma:
        raise InvalidValue("url", "the part holds no bytes.")
    refuse_large(len(text), "url")
    if not head.lower().endswith(";base64"):
        return unquote_to_bytes(text)
    try:
        return base64.b64decode(unquote_to_bytes(text), validate=False)
    except (binascii.Error, ValueError):
        raise InvalidValue("url", "the text is no base64.") from None
