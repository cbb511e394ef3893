"""Adopting SQLite files that other programs made: the rules of each domain, and the record of what was changed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, CursorResult, Executable, Table
from sqlalchemy.sql.elements import ColumnElement

from persist.db.dialects.interface import Dialect
from persist.db.dialects.sqlite.foreign_files import ForeignFile
from persist.errors import InvalidValue, NotFound, UnsupportedEngine


def file_to_adopt(dialect: Dialect) -> Path:
    """The path of the SQLite file to adopt.

    Raises UnsupportedEngine for a server, InvalidValue for a database in memory, NotFound if the file does not exist.
    """
    if not dialect.one_file:
        raise UnsupportedEngine(dialect.name, "only files are adopted; adopt the SQLite file, then copy it here.")
    if dialect.path is None:
        raise InvalidValue("url", "a database in memory has no file to adopt.")
    if not dialect.path.exists():
        raise NotFound("SQLite file", str(dialect.path))
    return dialect.path


@dataclass(frozen=True, slots=True)
class Settled:
    """Rows that were changed to fit the schema: `count` rows of `table`; `rule` describes the change."""

    table: str
    rule: str
    count: int


@dataclass(frozen=True, slots=True)
class Notice:
    """Something in the file that was left unchanged: `count` values or rows of `subject`."""

    subject: str
    message: str
    count: int


class Takeover:
    """The adoption of one file: runs statements in its single transaction, and records what was changed.

    `brought`: the tables and columns that the file had before.
    """

    def __init__(self, file: ForeignFile, brought: Mapping[str, Iterable[str]]) -> None:
        self._file = file
        self._brought = {table: frozenset(columns) for table, columns in brought.items()}
        self.settled: list[Settled] = []
        self.notices: list[Notice] = []
        self.moved = 0
        self.facts: dict[str, str] = {}
        """The keys and values to write to `_meta`, which name the owner of the file."""

    @property
    def connection(self) -> Connection:
        """The connection in whose transaction the file is adopted."""
        return self._file.connection

    def brought(self, table: Table, column: str | None = None) -> bool:
        """Whether the file had the table, or the column, before the adoption."""
        columns = self._brought.get(table.name)
        return columns is not None and (column is None or column in columns)

    def run(self, statement: Executable) -> int:
        """Execute; the number of rows changed."""
        return self._result(statement).rowcount

    def rows(self, statement: Executable) -> list[tuple[Any, ...]]:
        """Execute; every row, for small results."""
        return [tuple(row) for row in self._result(statement)]

    def _result(self, statement: Executable) -> CursorResult[Any]:
        result = self.connection.execute(statement)
        assert isinstance(result, CursorResult)
        return result

    def settle(self, table: Table, rule: str, count: int) -> None:
        """Record rows that were changed, if `count` is not 0."""
        if count:
            self.settled.append(Settled(table.name, rule, count))

    def notice(self, subject: str, message: str, count: int = 1) -> None:
        """Record something that was left unchanged, if `count` is not 0."""
        if count:
            self.notices.append(Notice(subject, message, count))

    def set_aside(self, table: Table, target: str, rowids: Sequence[int]) -> None:
        """Move the rows with these rowids from a table into the separate table `target`."""
        if rowids:
            self._file.set_aside(table.name, target, rowids)


Step = Callable[[Takeover], None]


@dataclass(frozen=True, slots=True)
class Rules:
    """A domain's rules for files that another program wrote."""

    values: Mapping[Column[Any], ColumnElement[Any]] = field(default_factory=dict)
    """The value of a column in existing rows, for a column that the file did not have."""

    always_written: frozenset[Column[Any]] = frozenset()
    """Columns that allow NULL, but that persist always writes: a file may declare them NOT NULL."""

    other_keys: Mapping[Table, Sequence[frozenset[str]]] = field(default_factory=dict)
    """Primary keys that a table may have instead of the model's, as sets of column names."""

    too_unique: Mapping[Table, Sequence[str]] = field(default_factory=dict)
    """The columns of a UNIQUE constraint of early releases, which is removed by rebuilding the table."""

    settle: Sequence[Step] = ()
    """Steps that change rows to fit the schema. They run after all columns and before the unique indexes are created."""

    fill: Sequence[Step] = ()
    """Steps that fill tables that the file did not have. They run after all indexes are created."""
