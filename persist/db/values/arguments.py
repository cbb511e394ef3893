"""Checks of verbs' arguments: each returns the value, or raises InvalidValue that names the argument (`path`)."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from inspect import CO_VARKEYWORDS, Parameter, signature
from typing import Any, Literal, Self, TypeVar, Unpack, get_args, get_origin
from zoneinfo import ZoneInfo

from persist.db.values.escaping import has_half, utf8_size
from persist.errors import InvalidValue, NotFound, PayloadTooLarge, shown

UNBOUNDED = 2**62
"""More than all rows or bytes: a limit or an end of a range without one. Its successor still fits the databases' numbers."""

Amount = float | Decimal
"""A number that may have been reckoned exactly; it is stored as a float."""

Basis = Literal["exact", "estimate", "at_least"]


class Count(int):
    """A number of rows: an int, with `basis`, which says how it was found.

    "exact"     every row was counted
    "estimate"  the planner of the database expects so many; the true number may be smaller or greater
    "at_least"  counting stopped there: there are so many, or more
    """

    basis: Basis

    def __new__(cls, number: int, basis: Basis = "exact") -> Self:
        count = super().__new__(cls, number)
        count.basis = basis
        return count

    @property
    def exact(self) -> bool:
        """Whether every row was counted."""
        return self.basis == "exact"


Progress = Callable[[str, int, int], object]
"""Called with what is being done, such as a table's name, the steps done, and those of the whole work."""

OpenProgress = Callable[[str, int, int | None], object]
"""A Progress of work whose end may be unknown: then the whole is None."""


E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_MAX = 2**63 - 1
_MAX_COST = 1e300
"""The largest cost. With it sums of costs stay finite; databases fail on an infinite sum."""
_MILLISECOND = timedelta(milliseconds=1)


def check_kind(path: str, value: object, kind: type[T]) -> T:
    """The value, if it is of the class `kind`."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise InvalidValue(path, f"expected {article} {kind.__name__}, got {type(value).__name__}.")
    return value


def check_label(path: str, value: object) -> str:
    """Text that serves as an identifier or filter, without NUL or lone surrogate halves: databases compare those differently."""
    if not isinstance(value, str):
        raise InvalidValue(path, f"expected text, got {type(value).__name__}.")
    if "\x00" in value or (not value.isascii() and has_half(value)):
        raise InvalidValue(path, "text used as an identifier or filter holds a NUL or a lone surrogate half.")
    return value if type(value) is str else str.__str__(value)  # a StrEnum member becomes its text


def required_label(path: str, value: object, *, empty: bool = False) -> str:
    """An identifier or filter. `empty`: whether it may be the empty text."""
    if type(value) is str and value and value.isascii() and "\x00" not in value:
        return value
    text = check_label(path, value)
    if not text and not empty:
        raise InvalidValue(path, "it is empty.")
    return text


def optional_label(path: str, value: object, *, empty: bool = False) -> str | None:
    """An identifier or filter, or None. `empty`: whether it may be the empty text."""
    if value is None:
        return None
    text = check_label(path, value)
    if not text and not empty:
        raise InvalidValue(path, "it is empty; leave it out instead.")
    return text


def check_choice(path: str, value: object, words: type[E]) -> E:
    """A member of the StrEnum, given as member or as text."""
    if isinstance(value, str) and value in words._value2member_map_:
        return words._value2member_map_[value]  # type: ignore[return-value]  # typed as any member; a call costs four times as much
    raise InvalidValue(path, f"{shown(value)} is none of {', '.join(words)}.")


def check_flag(path: str, value: object) -> bool:
    """True or False; values that are merely truthy or falsy are refused."""
    if type(value) is not bool:
        raise InvalidValue(path, "expected True or False.")
    return value


def check_count(path: str, value: object) -> int:
    """A whole number from 0 to 2**63-1."""
    if type(value) is not int or not 0 <= value <= _MAX:
        raise InvalidValue(path, "expected a whole number, 0 or more.")
    return value


def optional_count(path: str, value: object) -> int | None:
    """A whole number from 0 to 2**63-1, or None."""
    return None if value is None else check_count(path, value)


def check_amount(path: str, value: object) -> float:
    """A finite number from 0."""
    return _amount(path, value, sys.float_info.max)


def optional_amount(path: str, value: object) -> float | None:
    """A finite number from 0, or None."""
    return None if value is None else check_amount(path, value)


def check_cost(path: str, value: object) -> float:
    """A number from 0 to 1e300, so that sums of costs stay finite, or a Decimal: prices are reckoned with them."""
    if not isinstance(value, Decimal):
        return _amount(path, value, _MAX_COST, ", a float or a Decimal")
    return _amount(path, math.nan if value.is_nan() else float(value), _MAX_COST)  # not every NaN of them can be compared


def optional_cost(path: str, value: object) -> float | None:
    """A number from 0 to 1e300, or None."""
    return None if value is None else check_cost(path, value)


def _amount(path: str, value: object, maximum: float, others: str = " or a float") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(path, f"expected an int{others}, got {type(value).__name__}.")
    if not 0 <= value <= maximum:
        raise InvalidValue(path, f"expected a finite amount, 0 or more and at most {maximum}.")
    return float(value) + 0.0  # -0.0 is 0.0, as in JSON


def check_list(path: str, value: object) -> list[Any]:
    """The items of any iterable, as a list; text, bytes and mappings are refused."""
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping) or not isinstance(value, Iterable):
        raise InvalidValue(path, f"expected a list, got {type(value).__name__}.")
    return list(value)


def check_timedelta(path: str, value: object, *, zero: bool = True) -> timedelta:
    """A timedelta that is not negative; with `zero=False` at least one millisecond, the precision of stored instants."""
    if not isinstance(value, timedelta):
        raise InvalidValue(path, f"expected a timedelta, got {type(value).__name__}.")
    if value < (timedelta(0) if zero else _MILLISECOND):
        raise InvalidValue(path, "a length of time is not negative." if zero else "expected a millisecond or more.")
    return value


def check_timezone(path: str, name: str) -> ZoneInfo:
    """The zone of the IANA name. Raises InvalidValue if this machine knows none of that name."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise InvalidValue(path, f"{shown(name)} is no time zone that this machine knows, such as Europe/Berlin.") from None


def check_body(path: str, value: object, limit: int) -> str:
    """Text of at most `limit` bytes of UTF-8. Raises PayloadTooLarge beyond."""
    if not isinstance(value, str):
        raise InvalidValue(path, f"expected text, got {type(value).__name__}.")
    size = utf8_size(value)
    if size > limit:
        raise PayloadTooLarge(path, size, limit, advice="Keep large text in a file and store its reference.")
    return value


def must_exist(found: T | None, kind: str, id: str) -> T:
    """What was looked for. Raises NotFound if it is None."""
    if found is None:
        raise NotFound(kind, id)
    return found


def spells_keywords(function: F) -> F:
    """Let `help` and completion show each keyword of the TypedDict that `**` unpacks, if the function has one."""
    if function.__code__.co_flags & CO_VARKEYWORDS:
        own = signature(function)
        *named, last = own.parameters.values()
        if get_origin(last.annotation) is Unpack:
            fields = get_args(last.annotation)[0].__annotations__
            named += [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in fields.items()]
            function.__dict__["__signature__"] = own.replace(parameters=named)
    return function


def check_keywords(given: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """The keyword arguments that are not None, in the order of a TypedDict. Raises InvalidValue for one that it lacks."""
    names = kind.__annotations__
    if unknown := given.keys() - names:
        raise InvalidValue(min(unknown), f"there is no such argument; there are {', '.join(names)}.")
    return {name: value for name in names if (value := given.get(name)) is not None}
