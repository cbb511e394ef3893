"""One cell at a time, as a damaged disk or another program leaves it: what each column of each table may hold by mistake."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Column, Float, Integer, LargeBinary, Table

from persist.db.dialects.sqlite.event_guards import FUNCTION
from persist.db.schema.column_types import Bool, EnumText, IsoMs, Json, SqlSeconds
from persist.db.schema.instants import Instant
from persist.maintenance.unreadable import SHAPES
from persist.programs.upkeep import UPKEEP as OF_PROGRAMS
from persist.schema.metadata import metadata
from tests.schema.places import Place

NOT_UTF8 = "CAST(x'c328' AS TEXT)"
NO_WORD = "'unheard-of'"
"""A word that is not of its column's list, which verbs give as it is."""
OWN = ("_meta", "quarantine")
"""Tables of the database's own."""

Cell = tuple[Table, Column[Any], str]
"""A table, a column, and what is written there, as SQL says it."""


def spoilt_on_a_file() -> Iterator[Cell]:
    """What SQLite lets a raw writer store, in every column."""
    for table in metadata.sorted_tables:
        for column in table.columns:
            if table.name not in OWN:
                for value in _values(table, column):
                    yield table, column, value


def _values(table: Table, column: Column[Any]) -> list[str]:
    kind = column.type
    if isinstance(kind, Integer) and len(table.primary_key) == 1 and column.primary_key:
        return []  # the number of the row itself, which is never anything else
    if isinstance(kind, LargeBinary):
        return ["'text'", *(["x'00'"] if column in SHAPES else [])]
    if isinstance(kind, Json):
        return ["'{'", NOT_UTF8, *(["'[7]'", "'null'" if not column.nullable else "'7'"] if column in SHAPES else [])]
    if isinstance(kind, Instant):
        return ["'soon'", "x'ff'", *([] if isinstance(kind, IsoMs | SqlSeconds) else ["4611686018427387904"])]
    if isinstance(kind, Integer | Float | Bool):
        return ["'word'", "x'ff'"]
    if isinstance(kind, EnumText) and column not in OF_PROGRAMS.shapes:
        return [NO_WORD, NOT_UTF8]
    return ["x'ff'", NOT_UTF8]


def spoilt_on_a_server() -> Iterator[Cell]:
    """What the types of Postgres let in."""
    referred = {key.column for table in metadata.sorted_tables for key in table.foreign_keys}
    for table in metadata.sorted_tables:
        for column in table.columns:
            bound = column in referred or column.foreign_keys
            if table.name not in OWN and not bound and (value := _server_value(column)) is not None:
                yield table, column, value


def _server_value(column: Column[Any]) -> str | None:
    kind = column.type
    if isinstance(kind, Json):
        return "'7'" if column in SHAPES else None
    if isinstance(kind, IsoMs | SqlSeconds):
        return "'infinity'"
    if isinstance(kind, Instant):
        return "4611686018427387904"
    if isinstance(kind, Float):
        return "'NaN'"
    if isinstance(kind, LargeBinary):
        return r"'\x00'" if column in SHAPES else None
    if isinstance(kind, EnumText) and column not in OF_PROGRAMS.shapes:
        checks = " ".join(str(one.sqltext) for one in column.table.constraints if hasattr(one, "sqltext"))
        return None if f"{column.name} IN" in checks else NO_WORD
    return None


def raw_rows(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, byte for byte, with the storage class of each value."""
    with closing(sqlite3.connect(path)) as raw:
        raw.text_factory = bytes
        found = {}
        for table in metadata.sorted_tables:
            listed = ", ".join(f'typeof("{column.name}"), "{column.name}"' for column in table.columns)
            found[str(table.name)] = sorted(raw.execute(f'SELECT {listed} FROM "{table.name}"').fetchall(), key=repr)
        return found


def server_rows(place: Place) -> dict[str, list[str]]:
    """Every row of every table, as text."""
    with psycopg.connect(place.url) as raw:
        tables = {str(table.name): place.named(table.name) for table in metadata.sorted_tables}
        return {
            name: sorted(text for (text,) in raw.execute(f"SELECT CAST(t AS TEXT) FROM {named} AS t".encode()))
            for name, named in tables.items()
        }


_ROW_GUARDS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? AND name NOT LIKE 'persist_event%'"


def spoil(path: Path, cell: Cell) -> bool:
    """Write it into the first row of the table, past every check; False where there is none."""
    table, column, value = cell
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA ignore_check_constraints=ON")
        raw.create_function(FUNCTION, 0, lambda: True)  # as if it kept the log of events
        key = [f'"{one.name}"' for one in table.primary_key.columns] or ["rowid"]
        chosen = f'SELECT {", ".join(key)} FROM "{table.name}" ORDER BY 1 LIMIT 1'
        where = f"({', '.join(key)}) = ({chosen})"
        guards = raw.execute(_ROW_GUARDS, [table.name]).fetchall()
        for name, _ in guards:
            raw.execute(f'DROP TRIGGER "{name}"')
        done = raw.execute(f'UPDATE "{table.name}" SET "{column.name}" = {value} WHERE {where}').rowcount == 1
        for _, statement in guards:
            raw.execute(statement)
        return done
