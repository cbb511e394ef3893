"""Lines of a server-sent event stream, as the AI SDK writes them."""

from typing import Any

from persist.db.json import decode
from persist.errors import InvalidValue


def parse_sse(line: str | bytes) -> dict[str, Any] | None:
    """The chunk of a `data: {...}` line; None for `[DONE]`, blank lines, comments and the fields that carry no data.

    Any other frame is InvalidValue.
    """
    try:
        text = (line.decode() if isinstance(line, bytes) else line).strip("\r\n")
    except (UnicodeDecodeError, AttributeError):
        raise InvalidValue("line", "expected one line of UTF-8 text.") from None
    field, _, value = text.partition(":")
    if not field or field in ("event", "id", "retry"):
        return None
    if field != "data":
        raise InvalidValue("line", f"{text[:40]!r} is not a line of a server-sent event stream.")
    value = value.strip()
    if value == "[DONE]":
        return None
    try:
        chunk = decode(value)
    except (ValueError, RecursionError):
        raise InvalidValue("line", f"the frame {value[:40]!r} is not JSON.") from None
    if not isinstance(chunk, dict):
        raise InvalidValue("line", "the frame is not a JSON object.")
    return chunk
