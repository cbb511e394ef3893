"""Rows as the database keeps them, whatever is in them: read without column types, moved and brought back without a change."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Column, Table
from sqlalchemy.sql.elements import ColumnElement

from persist.errors import StoreBusy

Cell = Mapping[str, Any] | None
"""One value in a form that JSON keeps whole, by how the database keeps it; None for NULL."""
Cells = Mapping[str, Cell]
"""Values by the names of their columns."""
Place = tuple[Any, ...]
"""What finds a row again within one transaction."""
Columns = Sequence[Column[Any]]


class RawRows(ABC):
    """One transaction on a driver connection. While entered, the connection gives and takes values raw, and nothing else."""

    word: str
    """Which database's forms cells have."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    @abstractmethod
    def __enter__(self) -> Self:
        """Change what the connection does with values."""

    @abstractmethod
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Change it back."""

    # -- looking

    @abstractmethod
    def may_spoil(self, column: Column[Any]) -> bool:
        """Whether the column can hold at all what its type cannot read."""

    @abstractmethod
    def may_be_null(self, column: Column[Any]) -> bool:
        """Whether nothing is as good as a value, where one of these forms is asked for."""

    @abstractmethod
    def scan(self, table: Table, key: Sequence[str], columns: Columns) -> Iterator[tuple[Any, ...]]:
        """Every row, on demand: its key for `cell`, then the columns in the forms that `unreadable.conditions` looks at."""

    @abstractmethod
    def values(self, table: Table, place: Place, columns: Columns) -> tuple[Any, ...] | None:
        """The columns of one row, as `scan` gives them, without the key; None where the row is gone."""

    @abstractmethod
    def cell(self, value: Any) -> Cell:
        """A value that `scan` gave as a part of a key."""

    @abstractmethod
    def names(self, table: Table) -> list[str]:
        """The columns that are really there, those of others included."""

    @abstractmethod
    def find(self, table: Table, where: Cells) -> list[Place]:
        """The rows with these values, locked against other writers."""

    @abstractmethod
    def cells(self, table: Table, place: Place) -> dict[str, Cell]:
        """All of a row."""

    @abstractmethod
    def at(self, table: Table, place: Place) -> ColumnElement[bool]:
        """The condition for one row, for statements that read it by its types."""

    # -- writing

    @abstractmethod
    def check_references(self, on: bool) -> bool:
        """Before a transaction: whether rows may refer to nothing in it; whether they might until now."""

    def delete(self, table: Table, place: Place) -> None:
        """Delete one row, which nothing refers to any more."""
        where, values = self._at(table, place)
        self._one(f"DELETE FROM {self._named(table)} WHERE {where}", values)

    def set(self, table: Table, place: Place, cells: Cells) -> None:
        """Change some values of one row."""
        terms = [self._term(cell) for cell in cells.values()]
        listed = ", ".join(f"{quoted(name)} = {term}" for name, (term, _) in zip(cells, terms, strict=True))
        where, values = self._at(table, place)
        self._one(f"UPDATE {self._named(table)} SET {listed} WHERE {where}", [*(v for _, some in terms for v in some), *values])

    @abstractmethod
    def insert(self, table: Table, cells: Cells) -> None:
        """Bring a row back. What the driver raises where its key is taken comes out as it is."""

    def _one(self, sql: str, values: Sequence[Any]) -> None:
        if self._driver.execute(sql, values).rowcount != 1:
            raise StoreBusy(0.0, "another writer changed the row at that moment")

    @abstractmethod
    def _named(self, table: Table) -> str:
        """The table for SQL text."""

    @abstractmethod
    def _at(self, table: Table, place: Place) -> tuple[str, list[Any]]:
        """The condition for one row, and its parameters."""

    @abstractmethod
    def _term(self, cell: Cell) -> tuple[str, list[Any]]:
        """The value for SQL text, and its parameters."""


def quoted(name: str) -> str:
    """An identifier for SQL text."""
    return '"' + name.replace('"', '""') + '"'
