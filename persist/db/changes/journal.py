"""The rows that a transaction's statements change, for the event log: each has a twin that also returns what it wrote."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Column, Delete, Insert, Table, Update

from persist.db.schema.column_types import FreeText
from persist.db.schema.instants import EpochMs
from persist.db.sqlalchemy_private import updated_values
from persist.db.statements.prepared import Row, Statement

# Tables without a declaration are not logged: the event log itself, `_meta`, and those with `Table.info["unlogged"]`, whose rows
# a rebuild copies.


@dataclass(frozen=True, slots=True)
class StreamRule:
    """How the stream of a table's rows is found.

    column         the column that names the stream: `<prefix>:<value>`, or the value alone if the prefix is empty
    through        else the foreign key to the row that has the stream
    neither        the stream of the verb that wrote the row (that of its other rows), or else the domain's `shared` stream
    always_shared  always the shared stream, since rows of several streams refer to these rows
    """

    prefix: str
    shared: str
    column: str | None = None
    through: str | None = None
    always_shared: bool = False

    def name(self, value: str) -> str:
        """The id of the stream for a value of `column`."""
        return f"{self.prefix}:{value}" if self.prefix else value

    def value(self, stream: str) -> str | None:
        """The value of `column` that such a stream is named after; None if it is the shared one or another."""
        value = stream.removeprefix(f"{self.prefix}:") if self.prefix else stream
        return None if stream == self.shared or (self.prefix and value == stream) else value


@dataclass(frozen=True, slots=True)
class Streams:
    """Declares the streams of one domain's tables."""

    prefix: str
    shared: str
    """The domain's stream for rows without a stream."""

    def by(self, column: str, *tables: Table) -> None:
        """Rows of these tables belong to the stream that the column names; NULL means the shared stream."""
        for table in tables:
            assert column in table.c, (table.name, column)
            table.info["stream"] = StreamRule(self.prefix, self.shared, column=column)

    def over(self, root: Table) -> None:
        """Rows of the table, and those below it by foreign keys, belong to the stream that the table's key names."""
        (key,) = root.primary_key
        self.by(str(key.key), root)
        for table, column in rows_below(root).items():
            self.by(str(column.key), table)

    def through(self, column: str, *tables: Table) -> None:
        """Rows of these tables belong to the stream of the row that the foreign key `column` names."""
        for table in tables:
            parent(table, column)
            table.info["stream"] = StreamRule(self.prefix, self.shared, through=column)

    def unowned(self, *tables: Table) -> None:
        """Rows of these tables belong to the stream of the writing verb, or to the shared stream if the verb has none."""
        for table in tables:
            table.info["stream"] = StreamRule(self.prefix, self.shared)

    def always_shared(self, *tables: Table) -> None:
        """Rows of these tables belong to the shared stream, since rows of several other streams refer to them."""
        for table in tables:
            table.info["stream"] = StreamRule(self.prefix, self.shared, always_shared=True)


def deltas_of(table: Table, part: str, column: str) -> None:
    """Rows of the table extend `column` of the row that `part` refers to: folding or deleting them is no event."""
    parent(table, part)
    table.info["deltas_of"] = (part, column)


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """The names of tables and columns with which a database logs rows of a `deltas_of` table by its own triggers."""

    table: str
    columns: tuple[str, ...]
    texts: tuple[str, ...]
    at: str
    link: str
    parent: str
    parent_key: str
    stream: str
    """The column of the parent that names the stream."""
    type: str = "part.delta"


@dataclass(frozen=True, slots=True)
class LogTables:
    """The tables that a database's own triggers log to.

    all        the stream whose head counts the positions of all events on SQLite
    positions  the sequence that gives them on Postgres
    """

    log: Table
    heads: Table
    all: str
    positions: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of an event, in the order in which they are written: position, stream, seq, type, instant, data."""
        log = self.log.c
        return tuple(str(column.name) for column in (log.position, log.stream_id, log.seq, log.type, log.at, log.data))


def delta_table_of(table: Table) -> DeltaTable | None:
    """The names for a table that was declared with `deltas_of`; None for any other table."""
    if "deltas_of" not in table.info:
        return None
    part, _ = table.info["deltas_of"]
    (link,) = table.c[part].foreign_keys
    rule = place_of(link.column.table)
    assert rule is not None
    assert rule.column is not None
    assert not rule.prefix, "the database would have to say the prefix"
    names = tuple(str(column.name) for column in table.columns)
    texts = tuple(str(column.name) for column in table.columns if isinstance(column.type, FreeText))
    (at,) = [str(column.name) for column in table.columns if isinstance(column.type, EpochMs)]
    return DeltaTable(table.name, names, texts, at, part, link.column.table.name, link.column.name, rule.column)


def rows_below(root: Table) -> dict[Table, Column[Any]]:
    """The tables with a foreign key of one column to the key of the root, each with that column."""
    return {
        table: column
        for table in root.metadata.tables.values()
        for constraint in table.foreign_key_constraints
        if len(constraint.columns) == 1 and constraint.referred_table is root and table is not root
        for column in constraint.columns
    }


def parent(table: Table, column: str) -> Table:
    """The table that the single-column foreign key on `column` refers to."""
    for constraint in table.foreign_key_constraints:
        if [one.name for one in constraint.columns] == [column]:
            return constraint.referred_table
    raise LookupError(f"{table.name}.{column} refers to no table")


def place_of(table: Table) -> StreamRule | None:
    """The stream rule of a table; None if the table is not logged."""
    rule: StreamRule | None = table.info.get("stream")
    return rule


def logged_tables(tables: Iterable[Table]) -> list[Table]:
    """The tables whose rows make events, in the given order."""
    return [table for table in tables if place_of(table) is not None]


def key_of(table: Table) -> list[str]:
    """The columns that identify a row: `info["key"]` or else the primary key, preceded by the scope column if it has a scope."""
    scope = table.info.get("key_scope")
    key = table.info.get("key") or [str(column.name) for column in table.primary_key.columns]
    return [scope, *key] if scope is not None and scope not in key else list(key)


COMMITTED = "events committed"
"""The observers' topic for the list of a committed transaction's events."""


class Op(StrEnum):
    """What happened to a row: written with all columns (PUT), changed in some columns (SET), or deleted (DELETE)."""

    PUT = "put"
    SET = "set"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Change:
    """One changed row: for a PUT all columns; for a SET its key and what was set; for a DELETE its key; and its stream's."""

    table: Table
    op: Op
    row: Mapping[str, Any]


@dataclass(slots=True)
class VerbChanges:
    """The changes of one verb, in order. `stream`: the event's stream, if the verb names it."""

    name: str
    stream: str | None = None
    changes: list[Change] = field(default_factory=list)
    data: Any = ...
    """The data of an event that a caller appends directly, instead of changes; `...` if there is none."""


class ReturningStatement:
    """A writing statement that returns the caller's columns, followed by the columns of its changes."""

    __slots__ = ("_caller_width", "_names", "_op", "_table", "prepared")

    def __init__(self, statement: Insert | Update | Delete) -> None:
        table = statement.table
        assert isinstance(table, Table)
        self._table = table
        self._op = Op.PUT if isinstance(statement, Insert) else Op.SET if isinstance(statement, Update) else Op.DELETE
        self._names = _returned(table, statement, self._op)
        # Labels keep these columns apart from the same columns in the caller's RETURNING.
        returning = statement.returning(*(table.c[name].label(f"_{name}") for name in self._names))
        for memoized in ("exported_columns", "_all_selected_columns"):
            returning.__dict__.pop(memoized, None)  # copied from a statement that ran before, so without the new columns
        self.prepared = Statement(returning)
        self._caller_width = len(returning.exported_columns) - len(self._names)

    def split(self, rows: list[Row]) -> tuple[list[Row], list[Change]]:
        width, names = self._caller_width, self._names
        changes = [Change(self._table, self._op, dict(zip(names, row[width:], strict=True))) for row in rows]
        return [row[:width] for row in rows], changes


def twin_of(prepared: Statement) -> ReturningStatement | None:
    """The statement's twin, made on first use; None if the statement makes no event."""
    if prepared.twin is _UNMADE:
        statement, made = prepared.statement, None
        if not prepared.silent and isinstance(statement, Insert | Update | Delete):
            table = statement.table
            assert isinstance(table, Table), "prepared statements write tables"
            if place_of(table) is not None and not (isinstance(statement, Delete) and "deltas_of" in table.info):
                made = ReturningStatement(statement)
        prepared.twin = made  # at once, as other threads use it
    twin: ReturningStatement | None = prepared.twin
    return twin


_UNMADE = Statement.UNMADE


def _returned(table: Table, statement: Insert | Update | Delete, op: Op) -> list[str]:
    if op is Op.PUT:
        return [str(column.name) for column in table.columns]
    rule = place_of(table)
    assert rule is not None
    names = dict.fromkeys(key_of(table))
    for name in (rule.column, rule.through):
        if name is not None:
            names[name] = None
    if isinstance(statement, Update):
        names |= dict.fromkeys(str(getattr(column, "name", column)) for column in updated_values(statement))
    return [str(name) for name in names]


class Journal:
    """The changes of one transaction, verb by verb, in order."""

    __slots__ = ("verbs",)

    def __init__(self) -> None:
        self.verbs: list[VerbChanges] = []

    def begin_verb(self, name: str, stream: str | None = None) -> None:
        self.verbs.append(VerbChanges(name, stream))

    def add(self, changes: list[Change]) -> None:
        """Add changes to the current verb, or to one without a name if none has begun."""
        if not self.verbs:
            self.begin_verb("")
        self.verbs[-1].changes += changes

    def run(
        self, prepared: Statement, values: Mapping[str, Any], execute: Callable[[Statement, Mapping[str, Any]], list[Row]]
    ) -> list[Row] | None:
        """Run the statement's twin, record its changes and return the caller's rows. None: it has no twin and was not run."""
        twin = twin_of(prepared)
        if twin is None:
            return None
        rows, changes = twin.split(execute(twin.prepared, values))
        if changes:
            self.add(changes)
        return rows

    def mark(self) -> tuple[int, int]:
        """The current end of the journal, for `rollback_to`."""
        return len(self.verbs), len(self.verbs[-1].changes) if self.verbs else 0

    def rollback_to(self, mark: tuple[int, int]) -> None:
        """Forget the changes since the mark, which were rolled back."""
        verbs, changes = mark
        del self.verbs[verbs:]
        if verbs and self.verbs:  # `drain` may have emptied the journal since the mark
            del self.verbs[-1].changes[changes:]

    def drain(self) -> list[VerbChanges]:
        """Remove all verbs, and return those that changed a row or have data."""
        drained, self.verbs = [verb for verb in self.verbs if verb.changes or verb.data is not ...], []
        return drained
