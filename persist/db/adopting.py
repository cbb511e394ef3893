"""What a domain says about files that other programs made, and what is noted down while one is taken over."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, CursorResult, Executable, Table
from sqlalchemy.sql.elements import ColumnElement

from persist.db.dialects.base import Dialect
from persist.db.dialects.foreign_files import ForeignFile
from persist.errors import InvalidValue, NotFound, UnsupportedEngine


def file_to_adopt(dialect: Dialect) -> Path:
    """The file, which another program may have made: UnsupportedEngine, InvalidValue or NotFound where there is none."""
    if not dialect.one_file:
        raise UnsupportedEngine(dialect.name, "only files are adopted; adopt the SQLite file, then copy it here.")
    if dialect.path is None:
        raise InvalidValue("url", "a database in memory has no file to adopt.")
    if not dialect.path.exists():
        raise NotFound("SQLite file", str(dialect.path))
    return dialect.path


@dataclass(frozen=True, slots=True)
class Settled:
    """Rows that were changed so that the schema's rules hold: `count` rows of `table`, by `rule`."""

    table: str
    rule: str
    count: int


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that is in the file and was left as it is: `count` values or rows of `subject`."""

    subject: str
    message: str
    count: int


class Takeover:
    """One file being taken over: statements run in its one transaction, and everything that is done is noted."""

    def __init__(self, file: ForeignFile, brought: Mapping[str, Iterable[str]]) -> None:
        self._file = file
        self._brought = {table: frozenset(columns) for table, columns in brought.items()}
        self.settled: list[Settled] = []
        self.notices: list[Notice] = []
        self.moved = 0
        self.facts: dict[str, str] = {}
        """What `_meta` will say about whose file it is."""

    @property
    def connection(self) -> Connection:
        """The connection of the transaction."""
        return self._file.connection

    def brought(self, table: Table, column: str | None = None) -> bool:
        """Whether the file came with the table, or with the column."""
        columns = self._brought.get(table.name)
        return columns is not None and (column is None or column in columns)

    def run(self, statement: Executable) -> int:
        """Execute; how many rows it changed."""
        return self._result(statement).rowcount

    def rows(self, statement: Executable) -> list[tuple[Any, ...]]:
        """Every row of a small result."""
        return [tuple(row) for row in self._result(statement)]

    def _result(self, statement: Executable) -> CursorResult[Any]:
        result = self.connection.execute(statement)
        assert isinstance(result, CursorResult)
        return result

    def settle(self, table: Table, rule: str, count: int) -> None:
        """Note rows that were changed, if there were any."""
        if count:
            self.settled.append(Settled(table.name, rule, count))

    def notice(self, subject: str, message: str, count: int = 1) -> None:
        """Note what was left as it is, if it is there."""
        if count:
            self.notices.append(Notice(subject, message, count))

    def set_aside(self, table: Table, target: str, rowids: Sequence[int]) -> None:
        """Move rows into a table of their own."""
        if rowids:
            self._file.set_aside(table.name, target, rowids)


Step = Callable[[Takeover], None]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a domain knows about rows that it did not write."""

    values: Mapping[Column[Any], ColumnElement[Any]] = field(default_factory=dict)
    """What a column says, where the file came without it, in the rows that are there."""

    always_written: frozenset[Column[Any]] = frozenset()
    """Columns that may be NULL and never are in rows of ours, so that a file may forbid it."""

    other_keys: Mapping[Table, Sequence[frozenset[str]]] = field(default_factory=dict)
    """Keys a table may have instead of the model's."""

    too_unique: Mapping[Table, Sequence[str]] = field(default_factory=dict)
    """A UNIQUE of early releases that must go, by rebuilding the table."""

    settle: Sequence[Step] = ()
    """Makes rows fit, when every column is there and before unique indexes are."""

    fill: Sequence[Step] = ()
    """Fills tables that the file did not have, when every index is there."""
