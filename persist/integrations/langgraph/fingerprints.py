"""Fingerprints of lists: elements with a stored fingerprint would be stored alike, so persist does not serialize them again."""

import hashlib
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.types import SendProtocol
from langgraph.store.base import Item

from persist.errors import InvalidValue
from persist.integrations.langgraph.strict import MESSAGES

# Detecting text that LangGraph's serializer would change silently: it writes a lone surrogate as a question mark.

OPTIONS = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
"""The options of LangGraph's serializer, but text that is not valid UTF-8 is refused."""


def check_text(name: str, value: Any) -> None:
    """Raises InvalidValue if any text in a value cannot be encoded as UTF-8."""
    try:
        ormsgpack.packb(value, default=_serialized_parts, option=OPTIONS)
    except ormsgpack.MsgpackEncodeError as error:
        raise InvalidValue(name, f"it would not be stored as it is: {error}.") from None


def _serialized_parts(value: Any) -> Any:
    """The part of an object that the serializer writes, if it is or contains text; None otherwise."""
    for method in ("model_dump", "get_secret_value", "dict", "_asdict"):
        if callable(found := getattr(value, method, None)):
            return found()
    if isinstance(value, set | frozenset | deque):
        return tuple(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PurePath):
        return value.parts
    if isinstance(value, re.Pattern):
        return value.pattern
    if isinstance(value, BaseException):
        return repr(value)
    if isinstance(value, SendProtocol):
        return (value.node, value.arg)
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, Item):
        return (value.value, value.key, value.namespace)
    return None


_KINDS = {cls: number for number, cls in enumerate((dict, list, str, int, float, bool, tuple, bytes, *MESSAGES))}
_FIRST_MESSAGE = _KINDS[bytes] + 1
"""The least number of a class of messages."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The length of a list, and a digest of everything in it that the serializer writes."""

    length: int
    digest: bytes


class Fingerprinting:
    """Makes the fingerprint of a list to which elements are added."""

    def __init__(self) -> None:
        self._length = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, content: bytes | None, length: int) -> bool:
        """Add the content of `length` elements. False, and nothing is added, for None."""
        if content is None:
            return False
        self._digest.update(memoryview(content)[(1 if length < 16 else 3 if length < 2**16 else 5) :])
        self._length += length
        return True

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the elements added so far."""
        return Fingerprint(self._length, self._digest.digest())


def content(elements: Sequence[Any]) -> bytes | None:
    """All that the elements hold now, so that a change in place shows; None if one holds anything but messages and plain data.

    Plain data is what MessagePack writes by itself. Messages are those of LangChain's own classes, whose state the serializer
    writes whole. Anything else may serialize differently each time.
    """
    try:
        return ormsgpack.packb([_content(element) for element in elements], option=OPTIONS)
    except (ormsgpack.MsgpackEncodeError, KeyError):
        return None


def _content(element: Any) -> Any:
    kind = _KINDS[type(element)]
    if kind < _FIRST_MESSAGE:
        return kind, element
    return kind, element.__dict__, element.__pydantic_extra__
