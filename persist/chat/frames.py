"""One frame of an event stream: the chunk in it, or why there is none."""

import json
import re
from typing import Any

from persist.db.json import decode
from persist.errors import InvalidValue, PayloadTooLarge

Chunk = dict[str, Any]

DONE = "[DONE]"
FIELD = re.compile("(?:data|event|id|retry)?:")
_FIELDS = ("data:", "event:", "id:", "retry:")
_OPENING = re.compile(r"\{\s*(?:[\"}]|$)")

_RAW = "Feed the response's bytes or text as they come instead of its lines: splitters cut at U+2028 and its like, too."


def chunk_of(text: str) -> Chunk:
    """The object that the text is; InvalidValue."""
    try:
        chunk = decode(text)
    except (ValueError, RecursionError):
        chunk = None
    if not isinstance(chunk, dict):
        raise refusal(text.strip())
    return chunk


def hopeless(text: str) -> InvalidValue | None:
    """Why nothing that follows can make a chunk of the first text of a stream; it may be a line, so that is told at once."""
    if not text.startswith("data:"):
        known = FIELD.match(text) or any(field.startswith(text) for field in _FIELDS)
        return None if known else no_line(text)
    value = text[5:].strip()
    return None if DONE.startswith(value) or _OPENING.match(value) else refusal(value)


def may_go_on(text: str) -> bool:
    """Whether the object ends between two of its tokens, so that another data line may bring the rest."""
    problem = _problem(text)
    return text.startswith("{") and problem is not None and problem[0] >= len(text)


def _problem(text: str) -> tuple[int, bool] | None:
    """Where the text stops to be JSON, and whether it ended inside a string; None: it is JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos, error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        return 0, False
    return None


def refusal(text: str) -> InvalidValue:
    """Why text is no chunk."""
    problem = _problem(text)
    if problem is None:
        return InvalidValue("line", "the frame is not a JSON object.")
    if problem[1]:
        return InvalidValue("line", f"the frame {text[:40]!r} is not JSON: it ends inside a string. {_RAW}")
    return InvalidValue("line", f"the frame {text[:40]!r} is not JSON.")


def no_line(text: str) -> InvalidValue:
    """A line of no known field."""
    return InvalidValue("line", f"{text[:40]!r} is not a line of a server-sent event stream.")


def not_utf8() -> InvalidValue:
    """Bytes that are no text."""
    return InvalidValue("line", "expected UTF-8 text.")


def too_large(size: int, limit: int) -> InvalidValue:
    """A line, or the data of an event, that is not held any longer."""
    return PayloadTooLarge("line", size, limit, advice="Keep large content in a file and store its reference.")


def cut(text: str) -> InvalidValue:
    """A frame that a splitter cut: what was between its pieces nobody knows."""
    return InvalidValue("line", f"the frame {text[:40]!r} was cut. {_RAW}")


def broken_off(text: str) -> InvalidValue:
    """A frame whose end never came."""
    return InvalidValue("line", f"the stream ended in the middle of a frame: {text[-40:]!r}.")
