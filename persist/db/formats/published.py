"""The published form of a value: how a SQLite file stores it, and the form in which databases are copied and exported.

Labels and bodies are text (bodies escaped), JSON is compact text, instants are ISO text or numbers, flags are 0 or 1, blobs are
bytes. A `Form` has, for one type of column, the conversions to and from this form, and a form in which values of two databases
can be compared.
"""

import json as stdlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from sqlalchemy import Column, Float, Integer, LargeBinary

from persist.db.schema.column_types import Bool, EnumText, EpochMs, EpochReal, FreeText, IsoMs, Json, Label, SqlSeconds
from persist.db.values.arguments import check_label
from persist.db.values.clock import iso_ms
from persist.db.values.escaping import LEAD, escape_text, unescape_text
from persist.db.values.json import JsonLimits, check, decode, encode
from persist.db.values.key_order import from_jsonb, to_jsonb
from persist.errors import InvalidValue
from persist.quoting import shown

Step = Callable[[Any], Any]
"""Converts a value that is not None."""

_ANY_SIZE = JsonLimits(max_bytes=2**31, max_depth=250)  # stores' limits are for callers' values; orjson stops at 254 levels
_ODD_NUMBER = re.compile(r"(?:^|[\s:,\[])(?:-0|-?\d{20}|-?\d+(?:\.\d+)?[eE])")
_BIG_NUMBER = re.compile(r"(?:^|[\s:,\[])-?\d{17}")
_MAX = 2**63


@dataclass(frozen=True, slots=True)
class Form:
    """The conversions of one column type. A step that is None changes nothing; steps raise InvalidValue.

    checked      from the value in a SQLite file, which another program may have written, to the published form
    from_server  from a value fetched from Postgres to the published form
    to_copy      from the published form to a value for Postgres's COPY
    to_file      from the published form to the value that a SQLite file stores
    logical      from the published form to a value that is equal in two databases with the same contents
    """

    checked: Step
    from_server: Step | None = None
    to_copy: Step | None = None
    to_file: Step | None = None
    logical: Step | None = None
    large: bool = False
    """Whether one value may be many kilobytes."""


def form_of(column: Column[Any]) -> Form:
    """The form for a column's type."""
    kind = column.type
    for types, form in _FORMS:
        if isinstance(kind, types):
            return form
    raise AssertionError(f"{column}: no published form for {kind!r}")


def refused(value: object, expected: str) -> InvalidValue:
    """The error for a value of an unexpected type."""
    return InvalidValue("", f"expected {expected}, found {type(value).__name__}.")


# ---------------------------------------------------------------- text


def _label(value: Any) -> str:
    if type(value) is str and value.isascii() and "\x00" not in value:
        return value
    return check_label("", value)


def _body(value: Any) -> str:
    if type(value) is not str:
        raise refused(value, "text")
    return escape_text(unescape_text(value), nul=False) if LEAD in value else value


def _body_to_copy(value: str) -> str:
    return escape_text(unescape_text(value), nul=True) if "\x00" in value else value


# ---------------------------------------------------------------- JSON


def _json(value: Any) -> str:
    """The JSON text; numbers that JSONB would change (-0, 20 digits, exponents) are written in the form that it keeps.

    In another program's file a column with numeric affinity may hold numbers instead of their text.
    """
    if type(value) is str:
        if _ODD_NUMBER.search(value) is None:
            return value
        _refuse_long_integers(value)
        return str(encode(_decoded(value), "", _ANY_SIZE))
    if type(value) in (int, float):
        return str(encode(value, ""))
    if type(value) is bytes:
        try:
            return _json(value.decode())
        except UnicodeDecodeError:
            raise InvalidValue("", "the text is not UTF-8.") from None
    raise refused(value, "JSON text")


def _refuse_long_integers(text: str) -> None:
    """Raise InvalidValue for integers beyond 64 bits, of which orjson would silently make floats."""
    if _BIG_NUMBER.search(text) is not None:
        try:
            check(stdlib.loads(text), "", _ANY_SIZE)
        except (ValueError, RecursionError) as error:
            raise error if isinstance(error, InvalidValue) else InvalidValue("", "the text is no JSON.") from None


def _json_to_file(text: str) -> str:
    """Compact JSON text; Postgres writes JSONB with spaces."""
    if ": " not in text and ", " not in text:
        return text
    value = _decoded(text)
    return str(encode(value, "", _ANY_SIZE)) if "\\u" in text or _BIG_NUMBER.search(text) else orjson.dumps(value).decode()


def _json_logical(text: str) -> str:
    """The JSON text with sorted keys, equal for equal values."""
    try:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        value = _decoded(text)
    check(value, "", _ANY_SIZE)
    return stdlib.dumps(value, sort_keys=True)


def _decoded(text: str) -> Any:
    try:
        return decode(text)
    except RecursionError:
        raise InvalidValue("", f"nested deeper than {_ANY_SIZE.max_depth} levels.") from None


# ---------------------------------------------------------------- numbers and flags


def _whole(value: Any) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise refused(value, "a whole number")
    if not -_MAX <= value < _MAX:
        raise InvalidValue("", "an integer must fit 64 bits.")
    return value


def _real(value: Any) -> float:
    if type(value) not in (float, int):
        raise refused(value, "a number")
    if value != value:
        raise InvalidValue("", "NaN is no number that every database keeps.")
    return float(value) + 0.0  # -0.0 becomes 0.0, since not every database keeps the sign


def _real_logical(value: float) -> float | str:
    return value if math.isfinite(value) else repr(value)


def _flag(value: Any) -> int:
    if type(value) not in (int, float):
        raise refused(value, "0 or 1")
    return 1 if value else 0


# ---------------------------------------------------------------- instants


def _iso(value: Any) -> str:
    instant = _parsed(value)
    if len(value) == 24 and value[10] == "T" and value[19] == "." and value[23] == "Z":
        return str(value)
    return iso_ms(instant)


def _iso_from_server(value: datetime) -> str:
    return iso_ms(value.replace(tzinfo=UTC))  # IsoMs columns are read AT TIME ZONE 'UTC', which drops the zone


def _seconds(value: Any) -> str:
    instant = _parsed(value)
    return value if len(value) == 19 and value[10] == " " else _sql_text(instant)


def _seconds_from_server(value: datetime) -> str:
    return _sql_text(value.replace(tzinfo=UTC))


def _sql_text(instant: datetime) -> str:
    """The text of a SqlSeconds column: to the second, or with the milliseconds that a raw INSERT may have written."""
    timespec = "milliseconds" if instant.microsecond >= 1000 else "seconds"
    return instant.replace(tzinfo=None).isoformat(" ", timespec=timespec)


def _in_utc(value: str) -> str:
    return value + "Z"


def _parsed(value: Any) -> datetime:
    if type(value) is not str:
        raise refused(value, "an instant as text")
    try:
        instant = datetime.fromisoformat(value)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidValue("", f"{shown(value)} is no instant.") from None


# ---------------------------------------------------------------- blobs


def _blob(value: Any) -> bytes:
    if type(value) is not bytes:
        raise refused(value, "bytes")
    return value


_TEXT = Form(_label)
_FORMS: tuple[tuple[tuple[type, ...], Form], ...] = (
    ((Label, EnumText), _TEXT),
    ((FreeText,), Form(_body, from_server=_body, to_copy=_body_to_copy, logical=_body, large=True)),
    (
        (Json,),
        Form(_json, from_server=from_jsonb, to_copy=to_jsonb, to_file=_json_to_file, logical=_json_logical, large=True),
    ),
    ((Bool,), Form(_flag, from_server=int, to_copy=bool)),
    ((IsoMs,), Form(_iso, from_server=_iso_from_server)),
    ((SqlSeconds,), Form(_seconds, from_server=_seconds_from_server, to_copy=_in_utc)),
    ((EpochReal, Float), Form(_real, from_server=_real, logical=_real_logical)),
    ((EpochMs, Integer), Form(_whole)),
    ((LargeBinary,), Form(_blob, large=True)),
)
