"""What the statements of a transaction changed, row by row: kept only where the database's log of events is on.

A writing hot statement has a twin that also returns the rows it wrote. What it returns is a `Change`, and the changes of one
verb (or of one flush of a recorder) are a `Deed`: what becomes an event when the transaction ends.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Delete, Insert, Table, Update

from persist.db.hot import Hot, Row
from persist.db.streams import key_of, place_of

COMMITTED = "events committed"
"""The topic of what observers are told: the events of one transaction."""


class Op(StrEnum):
    """What became of a row: written whole, changed in some columns, deleted."""

    PUT = "put"
    SET = "set"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Change:
    """One row: for a PUT every column, for a SET its key and what was set, for a DELETE its key; and what names its stream."""

    table: Table
    op: Op
    row: Mapping[str, Any]


@dataclass(slots=True)
class Deed:
    """The changes of one verb; `stream` where whoever did it knows."""

    name: str
    stream: str | None = None
    changes: list[Change] = field(default_factory=list)
    data: Any = ...
    """What a caller appends, instead of changes."""


class Twin:
    """A writing statement that returns what it changed, beside what it returns anyway."""

    __slots__ = ("_names", "_op", "_own", "_table", "hot")

    def __init__(self, statement: Insert | Update | Delete) -> None:
        table = statement.table
        assert isinstance(table, Table)
        self._table = table
        self._op = Op.PUT if isinstance(statement, Insert) else Op.SET if isinstance(statement, Update) else Op.DELETE
        self._names = _returned(table, statement, self._op)
        # labels keep them apart from the same columns returned to the caller
        returning = statement.returning(*(table.c[name].label(f"_{name}") for name in self._names))
        for remembered in ("exported_columns", "_all_selected_columns"):
            returning.__dict__.pop(remembered, None)  # a statement that ran before has handed them on without the new ones
        self.hot = Hot(returning)
        self._own = len(returning.exported_columns) - len(self._names)

    def split(self, rows: list[Row]) -> tuple[list[Row], list[Change]]:
        """What the caller asked for, and what happened."""
        own, names = self._own, self._names
        changes = [Change(self._table, self._op, dict(zip(names, row[own:], strict=True))) for row in rows]
        return [row[:own] for row in rows], changes


def twin_of(hot: Hot) -> Twin | None:
    """The statement's twin, made when first asked for; None where what it does is no event."""
    if hot.twin is _UNMADE:
        hot.twin = _make(hot)
    twin: Twin | None = hot.twin
    return twin


_UNMADE = Hot.UNMADE


def _make(hot: Hot) -> Twin | None:
    statement = hot.statement
    if hot.silent or not isinstance(statement, Insert | Update | Delete):
        return None
    table = statement.table
    assert isinstance(table, Table), "hot statements write tables"
    if place_of(table) is None or (isinstance(statement, Delete) and "tail_of" in table.info):
        return None
    return Twin(statement)


def _returned(table: Table, statement: Insert | Update | Delete, op: Op) -> list[str]:
    if op is Op.PUT:
        return [str(column.name) for column in table.columns]
    place = place_of(table)
    assert place is not None
    names = dict.fromkeys(key_of(table))
    for name in (place.column, place.through):
        if name is not None:
            names[name] = None
    if isinstance(statement, Update):
        assert statement._values is not None, "an UPDATE of ours says what it sets"
        names |= dict.fromkeys(str(getattr(column, "name", column)) for column in statement._values)
    return [str(name) for name in names]


class Journal:
    """The deeds of one transaction, in order."""

    __slots__ = ("deeds",)

    def __init__(self) -> None:
        self.deeds: list[Deed] = []

    def open(self, name: str, stream: str | None = None) -> None:
        """What follows is part of a new deed."""
        self.deeds.append(Deed(name, stream))

    def add(self, changes: list[Change]) -> None:
        """To the deed of the moment."""
        if not self.deeds:
            self.open("")
        self.deeds[-1].changes += changes

    def run(
        self, hot: Hot, values: Mapping[str, Any], execute: Callable[[Hot, Mapping[str, Any]], list[Row]]
    ) -> list[Row] | None:
        """Run the statement's twin and keep what it changed; its own rows. None: it has no twin, and was not run."""
        twin = twin_of(hot)
        if twin is None:
            return None
        rows, changes = twin.split(execute(twin.hot, values))
        if changes:
            self.add(changes)
        return rows

    def mark(self) -> tuple[int, int]:
        """Where it stands, to go back to."""
        return len(self.deeds), len(self.deeds[-1].changes) if self.deeds else 0

    def back(self, mark: tuple[int, int]) -> None:
        """Forget what was done since: it was rolled back."""
        deeds, changes = mark
        del self.deeds[deeds:]
        if deeds and self.deeds:  # they may have been taken meanwhile
            del self.deeds[-1].changes[changes:]

    def take(self) -> list[Deed]:
        """The deeds that changed something; none are left."""
        taken, self.deeds = [deed for deed in self.deeds if deed.changes or deed.data is not ...], []
        return taken
