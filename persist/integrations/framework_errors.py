"""Errors that are those of persist and of a framework at once, made and raised in one way by every adapter."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic import ValidationError

from persist.errors import InvalidValue, PersistError

# What may be said of an error about content: where it is and of which kind it is, and nothing of the content itself.
#
# Errors of pydantic repeat the value that does not fit, those of json carry the whole text, and validators of frameworks say what
# they like. So an integration raises its own error after the `except` block, not inside of it: then the foreign one, and what it
# holds, is neither the cause nor the context of what a host logs.

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
    """A mistake that pydantic found. Indexes and missing fields are named; other names may be keys, which are content."""
    indexes = "".join(f"[{part}]" for part in place if isinstance(part, int))
    field = f".{place[-1]}" if kind == "missing" and place and isinstance(place[-1], str) else ""
    return f"{kind} at {indexes}{field}" if indexes or field else kind


class InvalidForFramework(InvalidValue):  # named like the errors it stands among
    """An InvalidValue that is a framework's error, too. `_before`: arguments of that error before its message."""

    _framework: ClassVar[Any]
    _before: ClassVar[tuple[Any, ...]] = ()

    def __init_subclass__(cls) -> None:
        if InvalidForFramework in cls.__bases__:
            cls._framework = cls.__bases__[-1]

    def __init__(self, path: str, reason: str) -> None:
        self._framework.__init__(self, *self._before, f"{path}: {reason}" if path else reason)
        InvalidValue.__init__(self, path, reason)

    @classmethod
    @contextmanager
    def raised(cls) -> Iterator[None]:
        """Raise what is an InvalidValue as an error of this class."""
        try:
            yield
        except cls:
            raise
        except InvalidValue as error:
            raise cls(error.path, error.reason) from error
