"""Parsing one frame of a server-sent event stream: the chunk in it, or the error that says why there is none."""

import json
import re
from typing import Any

from persist.db.values.json import parse
from persist.errors import InvalidValue, PayloadTooLarge

Chunk = dict[str, Any]

DONE = "[DONE]"
FIELD = re.compile("(?:data|event|id|retry)?:")
_FIELDS = ("data:", "event:", "id:", "retry:")
_OPENING = re.compile(r"\{\s*(?:[\"}]|$)")

_RAW = "Feed the response's bytes or text as they come instead of its lines: splitters cut at U+2028 and its like, too."


def chunk_of(text: str) -> Chunk:
    """Parse the text as a JSON object. Raises InvalidValue if it is anything else."""
    try:
        chunk = parse(text)
    except (ValueError, RecursionError):
        chunk = None
    if not isinstance(chunk, dict):
        raise not_json_error(text.strip())
    return chunk


def opening_error(text: str) -> InvalidValue | None:
    """The error of a stream's first text, if no continuation can make it a chunk; None if one can. It may be a whole line."""
    if not text.startswith("data:"):
        known = FIELD.match(text) or any(field.startswith(text) for field in _FIELDS)
        return None if known else unknown_field_error(text)
    value = text[5:].strip()
    return None if DONE.startswith(value) or _OPENING.match(value) else not_json_error(value)


def may_continue(text: str) -> bool:
    """Whether the text is an object cut off between two tokens, so that another data line can complete it."""
    problem = _problem(text)
    return text.startswith("{") and problem is not None and problem[0] >= len(text)


def _problem(text: str) -> tuple[int, bool] | None:
    """(position of the syntax error, whether the text ends inside a string); None if the text is JSON."""
    try:
        parse(text)
    except json.JSONDecodeError as error:
        return error.pos, error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        return 0, False
    return None


def not_json_error(text: str) -> InvalidValue:
    """The error for text that is no chunk: not JSON, or not an object."""
    problem = _problem(text)
    if problem is None:
        return InvalidValue("line", "the frame is not a JSON object.")
    if problem[1]:
        return InvalidValue("line", f"the frame {text[:40]!r} is not JSON: it ends inside a string. {_RAW}")
    return InvalidValue("line", f"the frame {text[:40]!r} is not JSON.")


def unknown_field_error(text: str) -> InvalidValue:
    """The error for a line without a known field name."""
    return InvalidValue("line", f"{text[:40]!r} is not a line of a server-sent event stream.")


def not_utf8_error() -> InvalidValue:
    """The error for bytes that are not UTF-8."""
    return InvalidValue("line", "expected UTF-8 text.")


def too_large_error(size: int, limit: int) -> InvalidValue:
    """The error for a line, or an event's data, that is larger than what is kept in memory; sizes in bytes."""
    return PayloadTooLarge("line", size, limit, advice="Keep large content in a file and store its reference.")


def cut_frame_error(text: str) -> InvalidValue:
    """The error for a frame cut by a line splitter: the characters between its pieces are lost."""
    return InvalidValue("line", f"the frame {text[:40]!r} was cut. {_RAW}")


def incomplete_error(text: str) -> InvalidValue:
    """The error for a stream that ends inside a frame."""
    return InvalidValue("line", f"the stream ended in the middle of a frame: {text[-40:]!r}.")
