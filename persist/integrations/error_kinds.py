"""What may be said of an error about content: where it is and of which kind it is, and nothing of the content itself.

Errors of pydantic repeat the value that does not fit, those of json carry the whole text, and validators of frameworks say what
they like. So an integration raises its own error after the `except` block, not inside of it: then the foreign one, and what it
holds, is neither the cause nor the context of what a host logs.
"""

import json
import re
from typing import Any

from pydantic import ValidationError

from persist.errors import PersistError

_MOST = 3
_ABOUT_A_TYPE = re.compile(
    r"Object of type \w+ is not JSON serializable|keys must be str, int, float, bool or None, not \w+"
    r"|Unable to serialize unknown type: <class '[\w.]+'>|Circular reference detected"
)
"""Sentences of json and pydantic that name a type and no value."""


def kind_of(error: BaseException) -> str:
    """The kind of an error about content, with the place where that is known. persist's own errors are said as they are."""
    if isinstance(error, PersistError):
        return str(error).rstrip(".")
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        more = f", and {len(found) - _MOST} more" if len(found) > _MOST else ""
        return ", ".join(_validation(one["type"], one["loc"]) for one in found[:_MOST]) + more
    if isinstance(error, json.JSONDecodeError):
        return f"JSONDecodeError at character {error.pos}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error) if len(error.args) == 1 or isinstance(error, ValueError) else ""
    return text if _ABOUT_A_TYPE.fullmatch(text) else type(error).__name__


def _validation(kind: str, place: tuple[Any, ...]) -> str:
    """A mistake that pydantic found. Of its place the indexes of lists are shown, and the name of a field that is missing.

    Other names may be keys of a dict, which are content.
    """
    indexes = "".join(f"[{part}]" for part in place if isinstance(part, int))
    field = f".{place[-1]}" if kind == "missing" and place and isinstance(place[-1], str) else ""
    return f"{kind} at {indexes}{field}" if indexes or field else kind
