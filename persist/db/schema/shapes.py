"""Shapes: checks of stored values beyond the column's type, declared beside the models of each domain.

A shape takes a value (JSON is decoded first) and returns what is wrong with it, such as "no object"; None if it fits.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import Column

Shape = Callable[[Any], str | None]
Shapes = Mapping[Column[Any], Shape]


def any_value(value: Any) -> str | None:
    """Any value that the column's type allows."""
    return None


def json_object(value: Any) -> str | None:
    """A JSON object."""
    return None if isinstance(value, dict) else "no object"


def objects(value: Any) -> str | None:
    """A JSON list of objects."""
    return None if isinstance(value, list) and all(isinstance(item, dict) for item in value) else "no list of objects"


def texts(value: Any) -> str | None:
    """A JSON list of texts."""
    return None if isinstance(value, list) and all(isinstance(item, str) for item in value) else "no list of texts"


def texts_by_name(value: Any) -> str | None:
    """A JSON object of texts."""
    fits = isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    return None if fits else "no object of texts"


def floats32(value: bytes) -> str | None:
    """Bytes of whole 32-bit floats."""
    return "no whole number of 32-bit floats" if len(value) % 4 else None


def optional(shape: Shape) -> Shape:
    """The shape, or JSON null."""
    return lambda value: None if value is None else shape(value)


def word_of(words: type[StrEnum]) -> Shape:
    """A member of a StrEnum, as text."""
    known, complaint = frozenset(map(str, words)), f"none of {', '.join(words)}"
    return lambda value: None if value in known else complaint
