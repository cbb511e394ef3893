"""What a copy holds where its source holds nothing: other programs' files allow NULL where persist's own tables do not.

Reads take such a NULL as None. What replaces it is another instant of the row, the default of a new row, or an empty value.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Column, Float, Integer, LargeBinary, UniqueConstraint
from sqlalchemy.dialects.sqlite.base import SQLiteDDLCompiler, SQLiteDialect
from sqlalchemy.schema import CreateColumn

from persist.db.schema.column_types import Bool, EnumText, Json
from persist.db.schema.instants import EpochMs, EpochReal, EpochS, Instant, IsoMs, SqlSeconds
from persist.errors import InvalidValue

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
    """What replaces NULL in the column at `place`: the first instant of the row that is known, else the value.

    Without a value nothing can replace it: rows are found or told apart by the column, or each of its words says something else.
    """

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
    """The other instants of a row that have to be known, and that are stored as those of the column are."""
    if not isinstance(column.type, Instant):
        return []
    others = [other for other in column.table.columns if other is not column and not other.nullable]
    return [other for other in others if type(other.type) is type(column.type)]


def filled(rows: Sequence[Row], columns: Columns, lacking: frozenset[str], counts: Counter[str]) -> list[Row]:
    """The rows, in the published form, with a value in every column of `lacking`. `counts`: what was replaced, by table.column.

    Raises InvalidValue where a row lacks what nothing can replace.
    """
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
    return tuple(_filling(columns, column) for column in columns if column.name in lacking)


def _filling(columns: Columns, column: Column[Any]) -> _Filling:
    places = tuple(columns.index(other) for other in instants_for(column) if other in columns)
    value = constant_of(column)
    if value is None and not (tells_apart(column) or column.foreign_keys or isinstance(column.type, EnumText)):
        value = _nothing(column)
    return _Filling(columns.index(column), places, value)


def _nothing(column: Column[Any]) -> Any:
    if isinstance(column.type, Json):
        return _EMPTY[column.type.shape if column.type.required else None]
    return next(value for kinds, value in _NOTHING if isinstance(column.type, kinds))
