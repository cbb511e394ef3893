"""What an operator does with a database and asks of it, where the two databases differ."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Executable, MetaData, Table
from sqlalchemy.sql.elements import ColumnElement

from persist.db.dialects.findings import Problem

Ask = Callable[[Executable], Any]
"""Runs a statement in the caller's transaction; a CursorResult."""

Facts = dict[str, Any]
"""A JSON object."""

Progress = Callable[[int, int], object]
"""`progress(done, total)`, in pages."""


class Definition(NamedTuple):
    """How a column, index or constraint is defined: what must be so, and what only raw writers notice."""

    essential: str
    detail: str = ""


Catalog = Mapping[tuple[str, str, str], Definition]
"""(kind, table, name) -> definition; the kinds are table, column, index, unique index and constraint.

The detail of a table tells one that persist made from one of another program, where they can be told apart."""


@dataclass(frozen=True, slots=True)
class Catalogs:
    """What the models ask for and what is there, in the same words. `names_only`: there was no way to compare definitions."""

    expected: Catalog
    found: Catalog
    names_only: bool = False


class DatabaseOperations(ABC):
    """One database. What takes `ask` only reads, inside the caller's transaction; the others use a connection of their own."""

    @abstractmethod
    def facts(self, ask: Ask) -> Facts:
        """The database as a whole: what and where it is, and its size."""

    @abstractmethod
    def settings(self, ask: Ask) -> Facts:
        """The settings that matter for durability and speed, by their names."""

    @abstractmethod
    def table_facts(self, ask: Ask) -> dict[str, Facts]:
        """By table: `bytes` with its indexes (None where the database does not know), and what else is known of its storage."""

    @abstractmethod
    def index_facts(self, ask: Ask) -> list[Facts]:
        """Every index: `table`, `name`, `bytes`, and `scans` where the database counts them."""

    @abstractmethod
    def stored_size(self, column: ColumnElement[Any]) -> ColumnElement[int]:
        """The bytes that a value takes."""

    @abstractmethod
    def integrity(self, ask: Ask, *, full: bool) -> Iterator[Problem]:
        """Damage of the file itself; `full` compares indexes with their tables too."""

    @abstractmethod
    def references(self, ask: Ask, tables: Iterable[Table]) -> Iterator[Problem]:
        """Rows whose parent is not there."""

    @abstractmethod
    def surroundings(self, ask: Ask, tables: Iterable[Table]) -> Iterator[Problem]:
        """What is wrong around the rows: settings, the file's place, invalid indexes, sequences that lag."""

    @abstractmethod
    def catalogs(self, ask: Ask, metadata: MetaData) -> Catalogs:
        """What the models ask for, and what is there."""

    @abstractmethod
    def checkpoint(self, mode: str) -> tuple[int, int, int]:
        """Move the write-ahead log into the database: (busy, log, checkpointed). UnsupportedEngine where a server does it."""

    @abstractmethod
    def tidy(self) -> None:
        """What is cheap and never in the way of others: for a job that runs every hour."""

    @abstractmethod
    def vacuum(self, tables: Sequence[Table]) -> None:
        """Give free space back."""

    @abstractmethod
    def backup(self, target: Path, *, progress: Progress | None, overwrite: bool) -> tuple[int, int]:
        """Write a consistent copy while others write: (pages, bytes). UnsupportedEngine where a tool of the database does it."""
