"""The published form of a value: how a SQLite file keeps it, and the language in which databases are copied and exported.

Labels and bodies are text (bodies escaped), JSON is compact text, instants are ISO text or numbers, flags are 0 or 1, blobs are
bytes. A `Form` says for one type of column how a value comes into this form, how it leaves it, and what two databases that
hold the same have in common.
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

from persist.db.clock import iso_ms
from persist.db.escape import LEAD, escape_text, unescape_text
from persist.db.json import JsonLimits, check, decode, encode
from persist.db.key_order import from_jsonb, to_jsonb
from persist.db.types import Body, EpochMs, EpochReal, Flag, IsoMs, Json, Label, SqlSeconds, Vocabulary, check_label
from persist.errors import InvalidValue
from persist.quoting import shown

Step = Callable[[Any], Any]
"""Of a value that is not None."""

_ANY_SIZE = JsonLimits(max_bytes=2**31, max_depth=250)  # caps are for what callers give; orjson stops at 254 levels
_ODD_NUMBER = re.compile(r"(?:^|[\s:,\[])(?:-0|-?\d{20}|-?\d+(?:\.\d+)?[eE])")
_BIG_NUMBER = re.compile(r"(?:^|[\s:,\[])-?\d{17}")
_MOST = 2**63


@dataclass(frozen=True, slots=True)
class Form:
    """The published form of one type; a step that is None changes nothing. Steps raise InvalidValue.

    `checked`: from whatever a file holds, another program's ways included. `fetched`, `loaded`: from a server, and for its COPY.
    `kept`: the last touch before a file keeps it. `logical`: what is equal in two databases that hold the same.
    """

    checked: Step
    fetched: Step | None = None
    loaded: Step | None = None
    kept: Step | None = None
    logical: Step | None = None
    large: bool = False
    """Whether one value may be many kilobytes."""


def form_of(column: Column[Any]) -> Form:
    """The form of a column's values."""
    kind = column.type
    for types, form in _FORMS:
        if isinstance(kind, types):
            return form
    raise AssertionError(f"{column}: no published form for {kind!r}")


def refused(value: object, expected: str) -> InvalidValue:
    """The error for a value of another kind."""
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


def _body_loaded(value: str) -> str:
    return escape_text(unescape_text(value), nul=True) if "\x00" in value else value


# ---------------------------------------------------------------- JSON


def _json(value: Any) -> str:
    """A column of another program's may have turned numbers into numbers; what a server would change is written anew."""
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
    """The quick decoder would make floats of them, silently."""
    if _BIG_NUMBER.search(text) is not None:
        try:
            check(stdlib.loads(text), "", _ANY_SIZE)
        except (ValueError, RecursionError) as error:
            raise error if isinstance(error, InvalidValue) else InvalidValue("", "the text is no JSON.") from None


def _json_kept(text: str) -> str:
    """Compact text for what a server writes with spaces."""
    if ": " not in text and ", " not in text:
        return text
    value = _decoded(text)
    return str(encode(value, "", _ANY_SIZE)) if "\\u" in text or _BIG_NUMBER.search(text) else orjson.dumps(value).decode()


def _json_logical(text: str) -> str:
    """The value, however it is written: keys sorted."""
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
    if not -_MOST <= value < _MOST:
        raise InvalidValue("", "an integer must fit 64 bits.")
    return value


def _real(value: Any) -> float:
    if type(value) not in (float, int):
        raise refused(value, "a number")
    if value != value:
        raise InvalidValue("", "NaN is no number that every database keeps.")
    return float(value) + 0.0  # not every database keeps the sign of zero


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


def _iso_fetched(value: datetime) -> str:
    return iso_ms(value.replace(tzinfo=UTC))  # columns give it in UTC, without saying so


def _seconds(value: Any) -> str:
    instant = _parsed(value)
    return value if len(value) == 19 and value[10] == " " else _sql_text(instant)


def _seconds_fetched(value: datetime) -> str:
    return _sql_text(value.replace(tzinfo=UTC))


def _sql_text(instant: datetime) -> str:
    """To the second, as these columns have it; a raw writer's milliseconds stay."""
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
    ((Label, Vocabulary), _TEXT),
    ((Body,), Form(_body, fetched=_body, loaded=_body_loaded, logical=_body, large=True)),
    (
        (Json,),
        Form(_json, fetched=from_jsonb, loaded=to_jsonb, kept=_json_kept, logical=_json_logical, large=True),
    ),
    ((Flag,), Form(_flag, fetched=int, loaded=bool)),
    ((IsoMs,), Form(_iso, fetched=_iso_fetched)),
    ((SqlSeconds,), Form(_seconds, fetched=_seconds_fetched, loaded=_in_utc)),
    ((EpochReal, Float), Form(_real, fetched=_real, logical=_real_logical)),
    ((EpochMs, Integer), Form(_whole)),
    ((LargeBinary,), Form(_blob, large=True)),
)
