"""Records the rows that the statements of a transaction change. Used only if the database's event log is on.

Each writing statement has a twin, a `ReturningStatement`, that also returns the rows it wrote. Each such row is a `Change`. The
changes of one verb (or of one flush of a recorder) are a `VerbChanges`, which becomes an event when the transaction ends.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Delete, Insert, Table, Update

from persist.db.changes.event_streams import key_of, place_of
from persist.db.sqlalchemy_private import updated_values
from persist.db.statements.prepared import Row, Statement

COMMITTED = "events committed"
"""The observers' topic for the list of a committed transaction's events."""


class Op(StrEnum):
    """What happened to a row: written with all columns (PUT), changed in some columns (SET), or deleted (DELETE)."""

    PUT = "put"
    SET = "set"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Change:
    """One changed row: for a PUT all columns; for a SET its key and the columns that were set; for a DELETE its key.

    SET and DELETE also have the columns that name the stream.
    """

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
    """A writing statement that returns the columns of its changes, behind those that it returns to its caller."""

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
        """The rows with the caller's columns, and the changes."""
        width, names = self._caller_width, self._names
        changes = [Change(self._table, self._op, dict(zip(names, row[width:], strict=True))) for row in rows]
        return [row[:width] for row in rows], changes


def twin_of(prepared: Statement) -> ReturningStatement | None:
    """The statement's twin, made on first use; None if the statement makes no event."""
    if prepared.twin is _UNMADE:
        prepared.twin = _make_twin(prepared)
    twin: ReturningStatement | None = prepared.twin
    return twin


_UNMADE = Statement.UNMADE


def _make_twin(prepared: Statement) -> ReturningStatement | None:
    statement = prepared.statement
    if prepared.silent or not isinstance(statement, Insert | Update | Delete):
        return None
    table = statement.table
    assert isinstance(table, Table), "prepared statements write tables"
    if place_of(table) is None or (isinstance(statement, Delete) and "deltas_of" in table.info):
        return None
    return ReturningStatement(statement)


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
        """Begin a verb: the changes that follow belong to it."""
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
