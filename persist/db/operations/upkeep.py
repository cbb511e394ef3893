"""What pruning, erasing, exporting, the doctor and adoption have to know of a domain, beside its foreign keys."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, CursorResult, Executable, Table, delete, exists, select
from sqlalchemy.sql.elements import BindParameter

from persist.db.changes.journal import rows_below
from persist.db.dialects.interface import Dialect, Problem
from persist.db.dialects.sqlite.foreign_files import ForeignFile
from persist.db.operations.bounded_deletion import Condition, DependentRows, Ids
from persist.db.operations.erasing import By, Erasable, ErasableRows, holding
from persist.db.operations.pruning import AgedRows, Pruning
from persist.db.schema.base import Shapes
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import StandIns, UnitOfWork
from persist.errors import InvalidValue, NotFound, UnsupportedEngine

_NONE: Mapping[Table, Any] = MappingProxyType({})


class Aggregate:
    """Rows of a root table, with the rows of other tables below.

    also   tables that name their row of the root in this column without a foreign key to it; they go first
    first  tables below that go before the others, in this order
    """

    def __init__(self, root: Table, *, also: Mapping[Table, str] = _NONE, first: Iterable[Table] = ()) -> None:
        (key,) = root.primary_key
        self.root, self.key = root, key
        below = {**{table: table.c[name] for table, name in also.items()}, **rows_below(root)}
        self.below: Mapping[Table, Column[Any]] = {table: below[table] for table in dict.fromkeys([*first, *below])}
        """The tables below the root, with the column that holds the root's key, in the order in which their rows go."""

    def delete(self, work: UnitOfWork, id: str) -> bool:
        """Delete a row of the root with everything below it; False for an unknown id. Ends the batch of the transaction."""
        lock, *below, root = self._deletion
        key = {"row_id": work.label(str(self.key.key), id)}
        with work.batch(last=True) as batch:
            batch.lock(lock, **key)  # what others are writing below it is there or waits
            for statement in below:
                batch.run(statement, **key)
            deleted = batch.run(root, **key)
        return deleted.result == 1

    @cached_property
    def _deletion(self) -> Sequence[Statement]:
        this = self.key == param("row_id")
        is_empty = [~exists().where(column == self.key) for column in self.below.values()]
        return (
            Statement(select(self.key).where(this).with_for_update()),
            *(Statement(delete(table).where(column == param("row_id"))) for table, column in reversed([*self.below.items()])),
            Statement(delete(self.root).where(this, *is_empty)),
        )


def the_id() -> BindParameter[str]:
    """The parameter for the id of the exported session, run or conversation."""
    return param("session")


def scope_of_id() -> BindParameter[str]:
    """The parameter for the exported id as scope columns of this database store it ('' in the file of that id itself)."""
    return param("scope")


def parent_key() -> BindParameter[str]:
    """The parameter for the key of the parent row, for rows in `Rows.then`."""
    return param("row_key")


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table, in an order, each followed by its child rows.

    then    the child rows, whose conditions use `parent_key()`
    shared  the rows may belong to other exports too; an import requires an existing row to be equal
    """

    table: Table
    where: ColumnElement[bool]
    order: tuple[Column[object], ...]
    then: tuple["Rows", ...] = ()
    shared: bool = False
    statement: Statement = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "statement", Statement(select(self.table).where(self.where).order_by(*self.order)))


@dataclass(frozen=True, eq=False)
class Exported:
    """One kind of export, such as a session, selected by id. In `rows` parents come before children.

    `kind` is its name in messages. `also`: a column that people know it by, whose values need not be unique.
    """

    kind: str
    key: Column[str]
    rows: tuple[Rows, ...]
    also: Column[str] | None = None
    found: Statement = field(init=False)
    named: Statement | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "found", Statement(select(self.key).where(self.key == the_id())))
        named = None if self.also is None else Statement(select(self.key).where(self.also == the_id()).order_by(self.key))
        object.__setattr__(self, "named", named)


def file_to_adopt(dialect: Dialect) -> Path:
    """The path of the SQLite file to adopt. Raises UnsupportedEngine, InvalidValue for one in memory, or NotFound."""
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
    """Adopts a file: runs statements in its transaction, and records changes. `brought`: its former tables and columns."""

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
        return self._file.connection

    def brought(self, table: Table, column: str | None = None) -> bool:
        """Whether the file had the table, or the column, before the adoption."""
        columns = self._brought.get(table.name)
        return columns is not None and (column is None or column in columns)

    def run(self, statement: Executable) -> int:
        result = self.connection.execute(statement)
        assert isinstance(result, CursorResult)
        return result.rowcount

    def rows(self, statement: Executable) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.connection.execute(statement)]

    def settle(self, table: Table, rule: str, count: int) -> None:
        """Record rows that were changed, if `count` is not 0."""
        if count:
            self.settled.append(Settled(table.name, rule, count))

    def notice(self, subject: str, message: str, count: int = 1) -> None:
        """Record something that was left unchanged, if `count` is not 0."""
        if count:
            self.notices.append(Notice(subject, message, count))

    def set_aside(self, table: Table, target: str, rowids: Sequence[int]) -> None:
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


Checkup = Callable[[UnitOfWork], Iterator[Problem]]
Incomplete = Callable[[UnitOfWork], Iterator[tuple[Table, Mapping[str, Any], str]]]
Hangs = Callable[[UnitOfWork, Mapping[str, Any], dict[Any, Any]], Iterator[tuple[Table, Mapping[str, Any], str | None]]]
"""The rows that hang on a row, by table and key; for one that stays, the column to empty. The dictionary is a cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The upkeep of one domain. What is left out, the domain has no need of.

    prunings   rows that go by age, in the order of pruning
    erasables  kinds of a person's data, in the order of erasing
    exports    kinds of single exports
    checkup    the doctor's check
    shapes     rules for stored values beyond their columns' types
    stand_ins  values that replace unreadable ones, where a row is better repaired than moved to the quarantine
    adoption   how tables of other programs are taken over
    incomplete finds rows that lack what they consist of, by table and key, with a sentence that says what is missing
    hanging    by table, rows that are useless without a row, without a foreign key to it: they are set aside with the row
    """

    prunings: Sequence[Pruning] = ()
    erasables: Sequence[Erasable] = ()
    exports: Sequence[Exported] = ()
    checkup: Checkup | None = None
    shapes: Shapes = field(default_factory=dict)
    stand_ins: StandIns = field(default_factory=dict)
    adoption: Rules | None = None
    incomplete: Incomplete | None = None
    hanging: Mapping[Table, Hangs] = field(default_factory=dict)


def aged(
    aggregate: Aggregate,
    at: ColumnElement[Any],
    *,
    only: Mapping[Table, Condition] = _NONE,
    order: Mapping[Table, Sequence[ColumnElement[Any]]] = _NONE,
    **options: Any,
) -> AgedRows:
    """The pruning by the age `at`. `only`: of these tables only such rows go. `options`: as of AgedRows."""

    def belonging(table: Table, column: Column[Any]) -> DependentRows:
        def of(ids: Ids) -> Condition:
            return column.in_(ids) & only[table] if table in only else column.in_(ids)

        return DependentRows(table, of, order=order.get(table, ()))

    return AgedRows(aggregate.root, at, aggregate.key, below=[belonging(*one) for one in aggregate.below.items()], **options)


def erasable(aggregate: Aggregate, by: By, *, kind: type[ErasableRows] = ErasableRows, **options: Any) -> ErasableRows:
    """What is erased whole, found `by` columns of the root. `kind`, `options`: as of ErasableRows."""
    below = [holding(table, str(column.key)) for table, column in aggregate.below.items()]
    return kind(aggregate.root, (str(aggregate.key.key),), by, below, **options)


def exported(
    aggregate: Aggregate,
    kind: str,
    *,
    order: Mapping[Table, Sequence[Column[Any]]] = _NONE,
    before: Sequence[Rows] = (),
    after: Sequence[Rows] = (),
    also: Column[str] | None = None,
) -> Exported:
    """The export of a root row and all rows below, with `before` and `after` rows around."""
    id = the_id()
    below = [
        Rows(table, column == id, tuple(order.get(table, table.primary_key.columns))) for table, column in aggregate.below.items()
    ]
    root = Rows(aggregate.root, aggregate.key == id, (aggregate.key,))
    return Exported(kind, aggregate.key, (*before, root, *below, *after), also)
