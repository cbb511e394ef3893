"""Raw rows of a SQLite file: storage classes, text that is not UTF-8, and values that violate a CHECK."""

import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Column, Table, and_, literal, literal_column, type_coerce
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import NullType

from persist.db.dialects.quoting import quoted
from persist.db.dialects.raw_rows import Cell, Cells, Columns, Place, RawRows
from persist.db.dialects.sqlite.host_references import leave_unchecked
from persist.db.unreadable.conditions import BadText, text_or_bad


class SqliteRawRows(RawRows):
    """Raw rows on SQLite; inside the `with` block text is decoded by `text_or_bad`."""

    word = "sqlite"

    def __init__(self, driver: sqlite3.Connection) -> None:
        super().__init__(driver)
        self._with_rowid: dict[str, bool] = {}

    def __enter__(self) -> Self:
        self._text_before = self._driver.text_factory
        self._driver.text_factory = text_or_bad
        self._driver.execute("PRAGMA ignore_check_constraints=ON")  # a row that is inserted again may violate a CHECK
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._driver.text_factory = self._text_before
        self._driver.execute("PRAGMA ignore_check_constraints=OFF")

    def may_spoil(self, column: Column[Any]) -> bool:
        return True

    def scan(self, table: Table, key: Sequence[str], columns: Columns) -> Iterator[tuple[Any, ...]]:
        names = ", ".join(quoted(name) for name in [*key, *(column.name for column in columns)])
        yield from self._driver.execute(f"SELECT {names} FROM {self._named(table)}")

    def values(self, table: Table, place: Place, columns: Columns) -> tuple[Any, ...] | None:
        where, values = self._at(table, place)
        names = ", ".join(quoted(column.name) for column in columns)
        query = f"SELECT {names} FROM {self._named(table)} WHERE {where}"
        return self._driver.execute(query, values).fetchone()  # type: ignore[no-any-return]  # the driver's rows are tuples

    def cell(self, value: Any) -> Cell:
        if value is None:
            return None
        if isinstance(value, BadText):
            return {"text_base64": b64encode(value).decode()}
        if isinstance(value, bytes):
            return {"blob": b64encode(value).decode()}
        if isinstance(value, float):
            return {"real": repr(value)}
        return {"integer" if isinstance(value, int) else "text": value}

    def names(self, table: Table) -> list[str]:
        return [row[1] for row in self._driver.execute(f"PRAGMA table_info({quoted(table.name)})")]

    def find(self, table: Table, where: Cells) -> list[Place]:
        terms = [self._term(cell) for cell in where.values()]
        condition = " AND ".join(f"{quoted(name)} IS {term}" for name, (term, _) in zip(where, terms, strict=True))
        place = ", ".join(map(quoted, self._place(table)))
        sql = f"SELECT {place} FROM {self._named(table)} WHERE {condition}"
        return self._driver.execute(sql, [value for _, values in terms for value in values]).fetchall()  # type: ignore[no-any-return]  # rows are tuples

    def cells(self, table: Table, place: Place) -> dict[str, Cell]:
        where, values = self._at(table, place)
        names = self.names(table)
        listed = ", ".join(map(quoted, names))
        row = self._driver.execute(f"SELECT {listed} FROM {self._named(table)} WHERE {where}", values).fetchone()
        return {name: self.cell(value) for name, value in zip(names, row, strict=True)}

    def at(self, table: Table, place: Place) -> ColumnElement[bool]:
        names = self._place(table)
        columns = [literal_column(name) if name == "rowid" else type_coerce(table.c[name], NullType()) for name in names]
        return and_(*[column == literal(value) for column, value in zip(columns, place, strict=True)])

    def leave_unchecked(self) -> Callable[[], None]:
        return leave_unchecked(self._driver)

    def insert(self, table: Table, cells: Cells) -> None:
        terms = [self._term(cell) for cell in cells.values()]
        marks = ", ".join(term for term, _ in terms)
        sql = f"INSERT INTO {self._named(table)} ({', '.join(map(quoted, cells))}) VALUES ({marks})"
        self._driver.execute(sql, [value for _, values in terms for value in values])

    def _named(self, table: Table) -> str:
        return quoted(table.name)

    def _at(self, table: Table, place: Place) -> tuple[str, list[Any]]:
        terms = [self._value(value) for value in place]
        where = " AND ".join(f"{quoted(name)} IS {term}" for name, (term, _) in zip(self._place(table), terms, strict=True))
        return where, [value for _, values in terms for value in values]

    def _place(self, table: Table) -> list[str]:
        """The columns that identify a row: rowid, or the primary key in the file for a WITHOUT ROWID table."""
        if table.name not in self._with_rowid:
            try:
                self._driver.execute(f"SELECT rowid FROM {self._named(table)} LIMIT 0")
                self._with_rowid[table.name] = True
            except sqlite3.OperationalError:
                self._with_rowid[table.name] = False
        if self._with_rowid[table.name]:
            return ["rowid"]
        rows = self._driver.execute(f"PRAGMA table_info({quoted(table.name)})").fetchall()
        return [row[1] for row in sorted(rows, key=lambda row: int(row[5])) if row[5]]

    def _term(self, cell: Cell) -> tuple[str, list[Any]]:
        if cell is None:
            return "NULL", []
        (form,) = cell
        if form == "text_base64":
            return "CAST(? AS TEXT)", [b64decode(cell[form])]
        if form == "blob":
            return "?", [b64decode(cell[form])]
        return "?", [float(cell[form]) if form == "real" else cell[form]]

    def _value(self, value: Any) -> tuple[str, list[Any]]:
        return ("CAST(? AS TEXT)" if isinstance(value, BadText) else "?"), [value]
