"""Detecting text that LangGraph's serializer would change silently: it writes a lone surrogate as a question mark."""

import re
from collections import deque
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.types import SendProtocol
from langgraph.store.base import Item

from persist.errors import InvalidValue

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
