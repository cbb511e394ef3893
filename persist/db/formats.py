"""The published form of a value: how a SQLite file stores it, and the form in which databases are copied and exported."""

import base64
import json as stdlib
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

import orjson
from sqlalchemy import Column, Double, Float, Integer, LargeBinary, Table, UniqueConstraint
from sqlalchemy.dialects.sqlite.base import SQLiteDDLCompiler, SQLiteDialect
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import TypeEngine

from persist.db.schema.column_types import Bool, EnumText, FreeText, Json, Label
from persist.db.schema.instants import EpochMs, EpochReal, EpochS, Instant, IsoMs, SqlSeconds
from persist.db.values.arguments import check_label
from persist.db.values.clock import iso_ms
from persist.db.values.escaping import LEAD, escape_text, unescape_text
from persist.db.values.json import JsonLimits, check, decode, encode, from_jsonb, to_jsonb
from persist.errors import InvalidValue, shown

_PUBLISHED = SQLiteDialect()
Convert = Callable[[Any], Any]


class JsonRows:
    """Converts rows of one table to JSON objects and back."""

    __slots__ = ("_from", "_to")

    def __init__(self, table: Table) -> None:
        pairs = {column.name: _conversions(column.type) for column in table.columns}
        self._to = {name: pair[0] for name, pair in pairs.items() if pair is not None}
        self._from = {name: pair[1] for name, pair in pairs.items() if pair is not None}

    def plain(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return _converted(row, self._to)

    def values(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        return _converted(plain, self._from)


def _converted(row: Mapping[str, Any], by: Mapping[str, Convert]) -> dict[str, Any]:
    return {name: value if value is None or (code := by.get(name)) is None else code(value) for name, value in row.items()}


def _conversions(kind: TypeEngine[Any]) -> tuple[Convert, Convert] | None:
    if isinstance(kind, Instant):
        return kind.storing(_PUBLISHED), kind.reading(_PUBLISHED)
    if isinstance(kind, EnumText):
        return str, str
    if isinstance(kind, Double):
        return _fraction, _fraction
    if isinstance(kind, LargeBinary):
        return lambda value: {"base64": base64.b64encode(value).decode()}, lambda value: base64.b64decode(value["base64"])
    return None


def _fraction(value: Any) -> Any:
    """An integer as a float; other values, which adopted files may hold, unchanged."""
    return float(value) if type(value) is int else value


# Another file's NULL where persist's tables have none is, in a copy, another instant of the row, a default, or an empty value.

Row = tuple[Any, ...]
Columns = tuple[Column[Any], ...]

_NOTHING: tuple[tuple[tuple[type, ...], Any], ...] = (
    ((IsoMs,), "1970-01-01T00:00:00.000Z"),
    ((SqlSeconds,), "1970-01-01 00:00:00"),
    ((EpochMs, EpochS, Bool, Integer), 0),
    ((EpochReal, Float), 0.0),
    ((LargeBinary,), b""),
    ((object,), ""),
)
_DDL = SQLiteDDLCompiler(SQLiteDialect(), CreateColumn(Column("any", Integer())))  # type: ignore[arg-type]  # a part of a statement compiles, too
_EMPTY: dict[type | None, str] = {dict: "{}", list: "[]", None: "null"}


@dataclass(frozen=True, slots=True)
class _Filling:
    """What replaces NULL at `place`: the row's first known instant, else the value; None where rows differ by the column."""

    place: int
    instants: tuple[int, ...]
    value: Any


def tells_apart(column: Column[Any]) -> bool:
    """Whether rows of the table differ by the column."""
    unique = [constraint.columns for constraint in column.table.constraints if isinstance(constraint, UniqueConstraint)]
    indexed = [index.columns for index in column.table.indexes if index.unique]
    return column.primary_key or any(column.name in columns for columns in (*unique, *indexed))


def constant_of(column: Column[Any]) -> Any:
    """The column's default as a file stores it, if it is a constant; else None."""
    written = _DDL.get_column_default_string(column)
    if written is None or written.startswith("("):
        return None
    text = written[1:-1].replace("''", "'") if written.startswith("'") else written
    nothing = _nothing(column)
    return text if isinstance(column.type, Json) else type(nothing)(text)


def instants_for(column: Column[Any]) -> list[Column[Any]]:
    """The required columns of a row's other instants, stored in the same form as the column."""
    if not isinstance(column.type, Instant):
        return []
    others = [other for other in column.table.columns if other is not column and not other.nullable]
    return [other for other in others if type(other.type) is type(column.type)]


def filled(rows: Sequence[Row], columns: Columns, lacking: frozenset[str], counts: Counter[str]) -> list[Row]:
    """The rows in the published form, with `lacking` columns filled, counted in `counts`. Raises InvalidValue."""
    changed = list(rows)
    for filling in _fillings(columns, lacking):
        place = filling.place
        empty = [number for number, row in enumerate(changed) if row[place] is None]
        name = f"{columns[place].table.name}.{columns[place].name}"
        if empty and filling.value is None:
            raise InvalidValue(name, "rows hold nothing there, and a copy has to: give them a value, or delete them.")
        for number in empty:
            row = changed[number]
            known = next((rows[number][other] for other in filling.instants if rows[number][other] is not None), filling.value)
            changed[number] = (*row[:place], known, *row[place + 1 :])
        if empty:
            counts[name] += len(empty)
    return changed


@cache
def _fillings(columns: Columns, lacking: frozenset[str]) -> tuple[_Filling, ...]:
    found = []
    for place, column in enumerate(columns):
        if column.name in lacking:
            value = constant_of(column)
            if value is None and not (tells_apart(column) or column.foreign_keys or isinstance(column.type, EnumText)):
                value = _nothing(column)
            instants = tuple(columns.index(other) for other in instants_for(column) if other in columns)
            found.append(_Filling(place, instants, value))
    return tuple(found)


def _nothing(column: Column[Any]) -> Any:
    if isinstance(column.type, Json):
        return _EMPTY[column.type.shape if column.type.required else None]
    return next(value for kinds, value in _NOTHING if isinstance(column.type, kinds))


# Labels and bodies are text (bodies escaped), JSON is compact text, instants are ISO text or numbers, flags are 0 or 1, blobs are
# bytes. A `Form` has, for one type of column, the conversions to and from this form, and a form in which values of two databases
# can be compared.

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


def _label(value: Any) -> str:
    if type(value) is str and value.isascii() and "\x00" not in value:
        return value
    return check_label("", value)


def _body(value: Any) -> str:
    if type(value) is not str:
        raise refused(value, "text")
    return escape_text(unescape_text(value), nul=False) if LEAD in value else value


def _json(value: Any) -> str:
    """The JSON text, with odd numbers (-0, 20 digits, exponents) as JSONB keeps them. Numeric affinity gives plain numbers."""
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


def _body_to_copy(value: str) -> str:
    return escape_text(unescape_text(value), nul=True) if "\x00" in value else value


def _json_to_file(text: str) -> str:
    """Compact JSON text; Postgres writes JSONB with spaces."""
    if ": " not in text and ", " not in text:
        return text
    value = _decoded(text)
    return str(encode(value, "", _ANY_SIZE)) if "\\u" in text or _BIG_NUMBER.search(text) else orjson.dumps(value).decode()


def _json_logical(text: str) -> str:
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


def _fitting_integer(value: Any) -> int:
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


def _flag(value: Any) -> int:
    if type(value) not in (int, float):
        raise refused(value, "0 or 1")
    return 1 if value else 0


def _iso(value: Any) -> str:
    instant = _parsed(value)
    if len(value) == 24 and value[10] == "T" and value[19] == "." and value[23] == "Z":
        return str(value)
    return iso_ms(instant)


def _seconds(value: Any) -> str:
    instant = _parsed(value)
    return value if len(value) == 19 and value[10] == " " else _sql_text(instant)


def _sql_text(instant: datetime) -> str:
    """The text of a SqlSeconds column: to the second, or with the milliseconds that a raw INSERT may have written."""
    timespec = "milliseconds" if instant.microsecond >= 1000 else "seconds"
    return instant.replace(tzinfo=None).isoformat(" ", timespec=timespec)


def _parsed(value: Any) -> datetime:
    if type(value) is not str:
        raise refused(value, "an instant as text")
    try:
        instant = datetime.fromisoformat(value)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidValue("", f"{shown(value)} is no instant.") from None


def _blob(value: Any) -> bytes:
    if type(value) is not bytes:
        raise refused(value, "bytes")
    return value


_FORMS: tuple[tuple[tuple[type, ...], Form], ...] = (
    ((Label, EnumText), Form(_label)),
    ((FreeText,), Form(_body, from_server=_body, to_copy=_body_to_copy, logical=_body, large=True)),
    ((Json,), Form(_json, from_server=from_jsonb, to_copy=to_jsonb, to_file=_json_to_file, logical=_json_logical, large=True)),
    ((Bool,), Form(_flag, from_server=int, to_copy=bool)),
    ((IsoMs,), Form(_iso, from_server=lambda value: iso_ms(value.replace(tzinfo=UTC)))),
    (
        (SqlSeconds,),
        Form(_seconds, from_server=lambda value: _sql_text(value.replace(tzinfo=UTC)), to_copy=lambda value: value + "Z"),
    ),
    ((EpochReal, Float), Form(_real, from_server=_real, logical=lambda value: value if math.isfinite(value) else repr(value))),
    ((EpochMs, Integer), Form(_fitting_integer)),
    ((LargeBinary,), Form(_blob, large=True)),
)
