"""Finds the cells that persist cannot read, by checking the stored values of every row of every table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Column, LargeBinary, Table, select

from persist.db.changes.journal import key_of
from persist.db.dialects.raw_rows import Cells, RawRows
from persist.db.schema.base import Shapes
from persist.db.schema.column_types import EnumText, FreeText, Json, Label
from persist.db.schema.scope_columns import OWN, scope_of
from persist.db.statements.schema_version import version_table
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.conditions import Reader, reader_of
from persist.domains import upkeeps
from persist.errors import shown
from persist.events.models import event_heads, event_log
from persist.schema.metadata import HEAD, metadata

SHAPES: Shapes = {column: shape for upkeep in upkeeps().values() for column, shape in upkeep.shapes.items()}
"""By column, the conditions that a value must meet besides those of the column type."""

_MAX_SHOWN_CHARACTERS = 40
_CONTENT = (FreeText, Json, LargeBinary)
"""The types of columns that hold what callers store; others hold names, numbers, instants and words of a list."""


@dataclass(frozen=True, slots=True)
class Bad:
    """An unreadable cell and the reason. `word`: text that is too long, or not of its column's list: verbs give it."""

    column: str
    reason: str
    word: bool = False


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row with unreadable cells. `name`: the table and the key, for messages."""

    table: Table
    key: Cells
    name: str
    cells: Sequence[Bad]


def bad_rows(work: UnitOfWork) -> Iterator[BadRow]:
    """Yield every row with unreadable cells. Yield nothing if the database is not at this package's revision."""
    if work.select(select(version_table.c.version_num)).scalar() != HEAD:
        return
    there = work.whole_tables.names()
    with work.whole_tables.raw_rows() as raw:
        # event_heads first, which repairs need for events; event_log last, which repairs rewrite
        for table in sorted(metadata.sorted_tables, key=lambda table: (table is event_log) - (table is event_heads)):
            if table.name in there:
                yield from _in_table(raw, table)


def bad_cells(columns: Sequence[Column[Any]], values: Sequence[Any]) -> list[Bad]:
    """Return the unreadable cells of a row. `values`: the stored values, as `RawRows` returns them. NULL is read as None."""
    found = []
    for column, value in zip(columns, values, strict=True):
        if value is not None and (reason := _reader(column)(value)) is not None:
            # verbs search by keys, and refuse a long one
            label = isinstance(column.type, Label) and not (column.primary_key or column.foreign_keys)
            word = type(value) is str and (isinstance(column.type, EnumText) or (label and "\x00" not in value))
            found.append(Bad(column.name, f"{column.name} holds {_described(column, value)}, which is {reason}.", word))
    return found


def columns_of(raw: RawRows, table: Table) -> list[Column[Any]]:
    """Return the columns of a table in this database whose values may be unreadable."""
    there = set(raw.names(table))
    wanted = [column for column in table.columns if column.name in there]
    return [
        column
        for column in wanted
        if raw.may_spoil(column) or column in SHAPES or (isinstance(column.type, Json) and column.type.shape is not None)
    ]


def key_text(table: Table, values: Sequence[Any]) -> str:
    """Format the key of a row for messages. The scope column is left out for rows of the file's own scope."""
    pairs = zip(key_of(table), values, strict=True)
    return ", ".join(_in_text(value) for name, value in pairs if not (value == OWN and scope_of(table.c[name])))


def _in_table(raw: RawRows, table: Table) -> Iterator[BadRow]:
    key, columns = key_of(table), columns_of(raw, table)
    if not columns or not {*key} <= {*raw.names(table)}:
        return
    count, readers = len(key), [_reader(column) for column in columns]
    for row in raw.scan(table, key, columns):
        values = row[count:]
        for reader, value in zip(readers, values, strict=True):
            if value is not None and reader(value) is not None:
                cells = {name: raw.cell(value) for name, value in zip(key, row, strict=False)}
                name = f"{table.name} {key_text(table, row[:count])}"
                yield BadRow(table, cells, name, bad_cells(columns, values))
                break


@cache
def _reader(column: Column[Any]) -> Reader:
    return reader_of(column, SHAPES.get(column))


def _described(column: Column[Any], value: Any) -> str:
    """A stored value for messages: content, which may be a secret, by its size alone."""
    if not isinstance(column.type, _CONTENT):
        return _short(value)
    if isinstance(value, str):
        return f"text of {len(value)} characters"
    return f"{len(value)} bytes" if isinstance(value, bytes) else "a number"


def _short(value: Any) -> str:
    text = shown(bytes(value) if isinstance(value, bytes) else value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"


def _in_text(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() and value else _short(value)
