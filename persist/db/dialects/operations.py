"""Administrative operations and queries that SQLite and Postgres implement differently."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Executable, MetaData, Table
from sqlalchemy.sql.elements import ColumnElement

from persist.db.dialects.findings import Problem
from persist.db.dialects.upgrade_steps import Step

Ask = Callable[[Executable], Any]
"""Executes a statement in the caller's transaction and returns a CursorResult."""

Facts = dict[str, Any]
"""A JSON object."""

Progress = Callable[[int, int], object]
"""`progress(done, total)`, in pages."""


class Definition(NamedTuple):
    """The definition of a column, index or constraint: the `essential` part, and the `detail` that only raw writers notice."""

    essential: str
    detail: str = ""


class ForeignReference(NamedTuple):
    """A foreign key of another program's table that refuses to let a row go: where it is, and what it refers to."""

    schema: str | None
    table: str
    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]


Catalog = Mapping[tuple[str, str, str], Definition]
"""(kind, table, name) -> definition; the kinds are table, column, index, unique index and constraint.

The detail of a table distinguishes tables that persist made from those of other programs, where that can be detected."""


@dataclass(frozen=True, slots=True)
class Catalogs:
    """The expected and the found catalog, in comparable form. `names_only`: definitions could not be compared."""

    expected: Catalog
    found: Catalog
    names_only: bool = False


class DatabaseOperations(ABC):
    """Administrative operations on one database.

    Methods with `ask` only read, inside the caller's transaction. The other methods open a separate connection.
    """

    @abstractmethod
    def facts(self, ask: Ask) -> Facts:
        """Facts about the whole database: its kind, version, location and size."""

    @abstractmethod
    def settings(self, ask: Ask) -> Facts:
        """The database settings that affect durability and speed, by name."""

    @abstractmethod
    def table_facts(self, ask: Ask) -> dict[str, Facts]:
        """Storage facts by table: `bytes` including indexes (None if unknown), and others that depend on the database."""

    @abstractmethod
    def index_facts(self, ask: Ask) -> list[Facts]:
        """Facts about every index: `table`, `name`, `bytes` (None if unknown), and `scans` where the database counts them."""

    @abstractmethod
    def stored_size(self, column: ColumnElement[Any]) -> ColumnElement[int]:
        """The SQL expression for the stored size of a value in bytes."""

    @abstractmethod
    def integrity(self, ask: Ask, *, full: bool) -> Iterator[Problem]:
        """Find damage of the database file; `full` also compares indexes with their tables."""

    def role_seeing_some(self, ask: Ask, tables: Sequence[Table]) -> str | None:
        """The database role of the caller if it sees some rows of one of these tables alone; None if it sees all."""
        return None

    def writers(self, ask: Ask) -> frozenset[str]:
        """The other transactions that have written or locked a row and are not over yet, each by a name of its own.

        Empty where a transaction that may write has locked the whole database.
        """
        return frozenset()

    def left_of(self, connection: Connection, steps: Sequence[Step]) -> list[Step]:
        """The steps of an upgrade without those that are done, where one was cut short."""
        return list(steps)

    @abstractmethod
    def orphans(self, ask: Ask, tables: Iterable[Table]) -> Iterator[tuple[Table, str, int]]:
        """Find rows whose foreign key refers to a missing row: their table, the one that they refer to, and how many."""

    @abstractmethod
    def foreign_references(self, ask: Ask, tables: Sequence[Table]) -> list[ForeignReference]:
        """Find the foreign keys of other tables that refuse to delete rows of these tables."""

    @abstractmethod
    def surroundings(self, ask: Ask, tables: Iterable[Table]) -> Iterator[Problem]:
        """Find problems outside the rows: settings, the file's location, invalid indexes, sequences that lag."""

    @abstractmethod
    def catalogs(self, ask: Ask, metadata: MetaData) -> Catalogs:
        """Read the catalog that the models define and the catalog of the database."""

    @abstractmethod
    def checkpoint(self, mode: str) -> tuple[int, int, int]:
        """Checkpoint the write-ahead log: (busy, log, checkpointed).

        Raises UnsupportedEngine where the server does this itself.
        """

    @abstractmethod
    def tidy(self) -> None:
        """Run cheap maintenance that never blocks other connections, for an hourly job."""

    rewrites: bool
    """Whether deleted bytes stay in a file that `vacuum` rewrites."""

    @abstractmethod
    def overwrite_deleted(self, ask: Ask) -> Callable[[], object]:
        """Let the transaction overwrite what it deletes, where the database leaves that to its users; returns what undoes it."""

    @abstractmethod
    def vacuum(self, tables: Sequence[Table]) -> None:
        """Reclaim free space."""

    @abstractmethod
    def backup(self, target: Path, *, progress: Progress | None, overwrite: bool) -> tuple[int, int]:
        """Write a consistent copy while others write: (pages, bytes).

        Raises UnsupportedEngine where the database has its own tool.
        """
