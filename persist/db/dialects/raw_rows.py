"""Raw rows: values are read, deleted and inserted again exactly as stored, without conversion by column types."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Column, Table
from sqlalchemy.sql.elements import ColumnElement

from persist.db.values.escaping import quoted
from persist.errors import StoreBusy

Cell = Mapping[str, Any] | None
"""One stored value in a form that JSON preserves, keyed by its storage form; None for NULL."""
Cells = Mapping[str, Cell]
"""Cells by column name."""
Place = tuple[Any, ...]
"""Identifies a row within one transaction, such as its rowid or ctid."""
Columns = Sequence[Column[Any]]


class RawRows(ABC):
    """Raw access to rows in one transaction. Inside the `with` block the driver connection is only for raw values."""

    word: str
    """The name of the database whose storage forms the cells use."""
    as_stored = "{}"
    """The SQL text that reads a column for `cell`."""
    inserting = ""
    """What an INSERT says before its VALUES."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    @abstractmethod
    def __enter__(self) -> Self:
        """Switch the connection to raw values."""

    @abstractmethod
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Switch the connection back."""

    # -- reading

    def may_spoil(self, column: Column[Any]) -> bool:
        """Whether the column can hold a value that its type cannot read."""
        return True

    @abstractmethod
    def scan(self, table: Table, key: Sequence[str], columns: Columns) -> Iterator[tuple[Any, ...]]:
        """Iterate over all rows: the key columns for `cell`, then `columns` in the form that `unreadable.conditions` checks."""

    @abstractmethod
    def values(self, table: Table, place: Place, columns: Columns) -> tuple[Any, ...] | None:
        """The columns of one row in the form of `scan`, without the key; None if the row is gone."""

    @abstractmethod
    def cell(self, value: Any) -> Cell:
        """Convert a key value from `scan` to a cell."""

    @abstractmethod
    def names(self, table: Table) -> list[str]:
        """The names of the columns in the database, including columns that the models do not know."""

    @abstractmethod
    def find(self, table: Table, where: Cells) -> list[Place]:
        """Find the rows with these values and lock them against other writers."""

    def cells(self, table: Table, place: Place) -> dict[str, Cell]:
        """All columns of one row, as cells."""
        where, values = self._at(table, place)
        names = self.names(table)
        listed = ", ".join(self.as_stored.format(quoted(name)) for name in names)
        row = self._driver.execute(f"SELECT {listed} FROM {self._named(table)} WHERE {where}", values).fetchone()
        return {name: self.cell(value) for name, value in zip(names, row, strict=True)}

    @abstractmethod
    def at(self, table: Table, place: Place) -> ColumnElement[bool]:
        """The WHERE condition for one row, for statements that use the column types."""

    # -- writing

    def leave_unchecked(self) -> Callable[[], None]:
        """Check no foreign keys, before a transaction; returns what goes back to how it was, after it."""
        return lambda: None

    def delete(self, table: Table, place: Place) -> None:
        """Delete one row to which no row refers any more."""
        where, values = self._at(table, place)
        self._one(f"DELETE FROM {self._named(table)} WHERE {where}", values)

    def set(self, table: Table, place: Place, cells: Cells) -> None:
        terms = [self._term(cell) for cell in cells.values()]
        listed = ", ".join(f"{quoted(name)} = {term}" for name, (term, _) in zip(cells, terms, strict=True))
        where, values = self._at(table, place)
        self._one(f"UPDATE {self._named(table)} SET {listed} WHERE {where}", [*(v for _, some in terms for v in some), *values])

    def insert(self, table: Table, cells: Cells) -> None:
        """Insert a row again. A driver error, for instance for a key that exists, is not translated."""
        terms = [self._term(cell) for cell in cells.values()]
        names, marks = ", ".join(map(quoted, cells)), ", ".join(term for term, _ in terms)
        sql = f"INSERT INTO {self._named(table)} ({names}) {self.inserting}VALUES ({marks})"
        self._driver.execute(sql, [value for _, values in terms for value in values])

    def _one(self, sql: str, values: Sequence[Any]) -> None:
        if self._driver.execute(sql, values).rowcount != 1:
            raise StoreBusy(0.0, "another writer changed the row at that moment")

    @abstractmethod
    def _named(self, table: Table) -> str:
        """The quoted name of the table for SQL text."""

    @abstractmethod
    def _at(self, table: Table, place: Place) -> tuple[str, list[Any]]:
        """The WHERE condition for one row as SQL text, and its parameters."""

    @abstractmethod
    def _term(self, cell: Cell) -> tuple[str, list[Any]]:
        """The SQL text of a value, and its parameters."""
