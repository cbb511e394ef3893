"""One cell of a database that holds the scene, spoilt as another program might have, and a verb called on what is left.

All of it happens in one transaction that is undone, so that the next cell finds the scene as it was.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Boolean, Column, Float, Integer, LargeBinary, Table, TypeDecorator

from persist.db.schema.column_types import EnumText, Json
from persist.db.schema.instants import Instant
from persist.errors import PersistError
from persist.schema.metadata import domain_of, metadata
from tests.programs.raw_rows import before_guards
from tests.statemachines.both_databases import Undo
from tests.statemachines.scene import Verb, arguments
from tests.statemachines.single_call import work_of

_NOT_NULL = re.compile(r"(?<!IS) NOT NULL")
NOT_UTF8 = "CAST(x'fffe' AS TEXT)"


@dataclass(frozen=True)
class Cell:
    """A column of the row at that place of its table, and the SQL of what is put there."""

    table: Table
    column: str
    place: int
    value: str

    @property
    def is_key(self) -> bool:
        """Whether rows are found by it: nobody finds what is asked for then."""
        column = self.table.c[self.column]
        return column.primary_key or bool(column.foreign_keys)

    @property
    def is_shared(self) -> bool:
        """Whether many rows of other tables are read with it."""
        return self.table.name == "message_types"

    def __str__(self) -> str:
        return f"{self.table.name}.{self.column}[{self.place}] = {self.value}"


def lite_values(column: Column[Any]) -> list[str]:
    """What any column of SQLite takes, and no program of ours writes there."""
    kind = column.type
    if isinstance(kind, Json):
        return ["'not json'", "'[1]'", "'null'", "'{}'", NOT_UTF8]
    if isinstance(kind, Instant):
        return ["'soon'", "9000000000000000000", NOT_UTF8]
    if isinstance(kind, EnumText):
        return ["'unheard of'", "x'ff'", NOT_UTF8]
    stored: Any = kind.impl_instance if isinstance(kind, TypeDecorator) else kind
    if isinstance(stored, Integer | Float | Boolean):
        return ["'soon'", "x'ff'"]
    return ["'text'"] if isinstance(stored, LargeBinary) else [NOT_UTF8, "x'ff'"]


def pg_values(column: Column[Any]) -> list[str]:
    """What the types of Postgres let in."""
    kind = column.type
    if isinstance(kind, Json):
        return ["'[1]'", "'null'"]
    if isinstance(kind, Instant):
        return ["'infinity'", "9000000000000000000", "'NaN'"]
    return ["'unheard of'"] if isinstance(kind, EnumText) else []


def cells(table: Table, *, lite: bool) -> Iterator[Cell]:
    """Every column of the table with each value, in its first row and in its second row by turns."""
    for column in table.columns:
        for number, value in enumerate((lite_values if lite else pg_values)(column)):
            yield Cell(table, column.name, number % 2, value)


def refused_cells(table: Table, rows: int) -> Iterator[Cell]:
    """Every column of text in each other row of a file, with what the driver refuses: a sweep may write just this row."""
    known = set(cells(table, lite=True))
    for column in table.columns:
        if NOT_UTF8 in lite_values(column):
            yield from {Cell(table, column.name, place, NOT_UTF8) for place in range(rows)} - known


def spoil(tx: Any, cell: Cell) -> bool:
    """Put it there; False where there is no such row, or the database refuses."""
    work, driver = work_of(tx), _driver(tx)
    if work.runtime.dialect.schema is None:
        driver.execute("PRAGMA ignore_check_constraints=ON")
        driver.execute("PRAGMA defer_foreign_keys=ON")
        try:
            return bool(
                driver.execute(_statement(cell.table, f'"{cell.table.name}"', cell.column, cell.value, cell.place)).rowcount
            )
        except sqlite3.Error:
            return False
        finally:
            driver.execute("PRAGMA ignore_check_constraints=OFF")
    try:
        with driver.transaction():
            name = f'"{work.runtime.dialect.schema}"."{cell.table.name}"'
            return bool(driver.execute(_statement(cell.table, name, cell.column, cell.value, cell.place)).rowcount)
    except psycopg.Error:
        return False


@contextmanager
def spoilt_beforehand(path: Path, cell: Cell) -> Iterator[Cell | None]:
    """A cell of a table with row guards, spoilt by another connection in the block. Yields what each attempt has yet to spoil.

    Every connection reads the schema again after the guards were taken away and brought back, which takes longer than the verbs:
    once per cell is enough.
    """
    name, column = cell.table.name, cell.column
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA synchronous=OFF")
        raw.execute("PRAGMA ignore_check_constraints=ON")
        found = raw.execute(f'SELECT rowid, "{column}" FROM {name} ORDER BY rowid LIMIT 1 OFFSET {cell.place}').fetchall()
        spoilt = bool(found) and _written(raw, f'UPDATE {name} SET "{column}" = {cell.value} WHERE rowid = ?', found[0][0])
        yield None if spoilt else cell
        if spoilt:
            assert _written(raw, f'UPDATE {name} SET "{column}" = ? WHERE rowid = ?', found[0][1], found[0][0])


def _written(raw: sqlite3.Connection, statement: str, *values: Any) -> bool:
    """Whether the statement changed a row, in a transaction of its own that no row guard sees."""
    try:
        with raw:
            raw.execute("BEGIN IMMEDIATE")
            with before_guards(raw):
                return bool(raw.execute(statement, values).rowcount)
    except sqlite3.Error:
        return False


def _driver(tx: Any) -> Any:
    work = work_of(tx)
    return work.runtime.transactions.driver_of(work.connection)


def _statement(table: Table, name: str, column: str, value: str, place: int = 0) -> str:
    key = ", ".join(f'"{one.name}"' for one in table.primary_key.columns) or ("ctid" if "." in name else "rowid")
    row = f"({key}) IN (SELECT {key} FROM {name} ORDER BY {key} LIMIT 1 OFFSET {place})"
    return f'UPDATE {name} SET "{column}" = {value} WHERE {row}'


def loosened(path: Path) -> None:
    """Let every column of a file take NULL, as files of other programs do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA writable_schema=ON")
        for name, sql in raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
            raw.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (_NOT_NULL.sub("", sql), name))
        raw.execute("PRAGMA writable_schema=RESET")


def spoil_row(path: Path, table: Table) -> None:
    """Every column of a file's first row of the table at once, but for what other rows find it by."""
    columns = [column for column in table.columns if not column.primary_key and not column.foreign_keys]
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA ignore_check_constraints=ON")
        with before_guards(raw):
            for column in columns:
                with suppress(sqlite3.IntegrityError):
                    raw.execute(_statement(table, f'"{table.name}"', column.name, NOT_UTF8))


class Attempt:
    """What a verb answers over a spoilt cell, or over none, and then its statements in a file; whatever it wrote is undone."""

    def __init__(self, store: Any, verb: Verb, ids: Any, cell: Cell | None) -> None:
        self.applies, self.value = True, None
        self.error: Exception | None = None
        self.size: int | None = None
        self.statements: list[str] = []
        with suppress(Undo), store.begin() as tx:
            if cell is not None and not spoil(tx, cell):
                self.applies = False
                raise Undo
            if cell is None and (trace := getattr(_driver(tx), "set_trace_callback", None)):
                trace(self.statements.append)
            try:
                self.value = verb.call(tx, arguments(verb, ids))
                self.size = size(self.value)
            except Exception as error:
                self.error = error
            finally:
                if cell is None and trace:
                    trace(None)
            raise Undo

    def asks(self, table: Table) -> bool:
        """Whether a statement of the verb named the table."""
        return any(table.name in statement for statement in self.statements)

    @property
    def is_bare(self) -> bool:
        """Whether it failed with what is no error of ours."""
        return self.error is not None and not isinstance(self.error, PersistError)


def size(value: Any) -> int | None:
    """How many there are in a list or a page; None for anything else."""
    items = getattr(value, "items", value)
    return len(items) if isinstance(items, list) else None


def tables(domain: str) -> list[Table]:
    """Those of a domain."""
    return [table for table in metadata.sorted_tables if domain_of(table) == domain]
