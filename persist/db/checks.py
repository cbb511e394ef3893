"""Checks of the arguments that verbs of every domain take: each returns the value, or raises InvalidValue that names it."""

import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from persist.db.escape import utf8_size
from persist.db.types import check_label
from persist.errors import InvalidValue, PayloadTooLarge
from persist.quoting import shown

E = TypeVar("E", bound=StrEnum)

_MOST = 2**63 - 1
_MOST_COST = 1e300
"""Sums of costs stay finite: a database fails where they do not."""
_MILLISECOND = timedelta(milliseconds=1)


def optional_label(path: str, value: object, *, empty: bool = False) -> str | None:
    """An identifier or filter that may be absent."""
    if value is None:
        return None
    text = check_label(path, value)
    if not text and not empty:
        raise InvalidValue(path, "it is empty; leave it out instead.")
    return text


def check_word(path: str, value: object, words: type[E]) -> E:
    """A word of a closed vocabulary."""
    if isinstance(value, str) and value in words._value2member_map_:
        return words(value)
    raise InvalidValue(path, f"{shown(value)} is none of {', '.join(words)}.")


def check_flag(path: str, value: object) -> bool:
    """True or False, and nothing that merely counts as one."""
    if type(value) is not bool:
        raise InvalidValue(path, "expected True or False.")
    return value


def check_count(path: str, value: object) -> int:
    """A whole number from 0 that fits 64 bits."""
    if type(value) is not int or not 0 <= value <= _MOST:
        raise InvalidValue(path, "expected a whole number, 0 or more.")
    return value


def optional_count(path: str, value: object) -> int | None:
    """The same, or absent."""
    return None if value is None else check_count(path, value)


def optional_amount(path: str, value: object) -> float | None:
    """A finite amount from 0, or absent."""
    return None if value is None else _amount(path, value, sys.float_info.max)


def check_cost(path: str, value: object) -> float:
    """A cost, of which sums are made."""
    return _amount(path, value, _MOST_COST)


def optional_cost(path: str, value: object) -> float | None:
    """The same, or absent."""
    return None if value is None else check_cost(path, value)


def _amount(path: str, value: object, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise InvalidValue(path, f"expected a finite amount, 0 or more and at most {most}.")
    return float(value) + 0.0  # -0.0 is 0.0, as in JSON


def check_items(path: str, value: object) -> list[Any]:
    """What a list, a set or any other iterable holds; text, bytes and objects are none."""
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping) or not isinstance(value, Iterable):
        raise InvalidValue(path, f"expected a list, got {type(value).__name__}.")
    return list(value)


def check_span(path: str, value: object, *, zero: bool = True) -> timedelta:
    """A length of time that is not negative; `zero` False: a millisecond at least, since instants are kept to that."""
    if not isinstance(value, timedelta):
        raise InvalidValue(path, f"expected a timedelta, got {type(value).__name__}.")
    if value < (timedelta(0) if zero else _MILLISECOND):
        raise InvalidValue(path, "a length of time is not negative." if zero else "expected a millisecond or more.")
    return value


def check_body(path: str, value: object, limit: int) -> str:
    """Text within the cap."""
    if not isinstance(value, str):
        raise InvalidValue(path, f"expected text, got {type(value).__name__}.")
    size = utf8_size(value)
    if size > limit:
        raise PayloadTooLarge(path, size, limit, advice="Keep large text in a file and store its reference.")
    return value
