"""How erased things are found: by rows of their own, by rows of other tables, and by what other things lead to.

Each way is asked twice: of the tables, by a query, and of what the tables have no more, row by row, which is in the event log and
in the quarantine. So what a query finds is found there, too.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from json import dumps, loads
from typing import Any

from sqlalchemy import Column, ColumnElement, or_, select, tuple_

from persist.db.operations.bounded_deletion import Condition
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

Key = tuple[str, ...]
Values = Sequence[str]


@dataclass(frozen=True, slots=True)
class Equal:
    """Selects rows in which one of these columns holds one of the values."""

    columns: tuple[ColumnElement[Any], ...]

    def __call__(self, values: Values) -> Condition:
        return or_(*(column.in_(values) for column in self.columns))

    def matches(self, row: Mapping[str, Any], values: Collection[str]) -> bool:
        """Whether a row says so, be it one of the event log or of the quarantine."""
        return any(row.get(str(column.key)) in values for column in self.columns)


def equal(*columns: ColumnElement[Any]) -> Equal:
    """Select the rows in which one of the columns holds one of the values."""
    return Equal(columns)


@dataclass(frozen=True, slots=True)
class Together(Equal):
    """Selects rows in which the columns hold what one of the values says of them all, as `Lead` writes it."""

    def __call__(self, values: Values) -> Condition:
        return tuple_(*self.columns).in_([tuple(loads(value)) for value in values])

    def matches(self, row: Mapping[str, Any], values: Collection[str]) -> bool:
        return _named(row, self.columns) in values


By = Mapping[str, Equal]


@dataclass(frozen=True, slots=True)
class Way:
    """How a selector finds things: by rows of one table, of their own or another, in which `key` holds the key of a thing.

    Both the tables and what is no longer in them, the event log and the quarantine, are asked by the same ways.
    """

    selector: str
    by: Equal
    key: tuple[ColumnElement[Any], ...]

    @property
    def table(self) -> str:
        return _table_of(self.key)

    def told(self, cells: Mapping[str, Any], values: Collection[str]) -> Key | None:
        """The key that a row of the table says, if the selector finds the row."""
        return _cells(cells, self.key) if self.by.matches(cells, values) else None


Follow = Callable[[Iterable[str]], dict[str, list[str]]]
"""Says which selectors find what these names lead to."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Rows whose columns `of` hold the key of a thing, and in which other columns name things of other kinds.

    Without such columns it is the key that leads on. Both the tables and what is no longer in them are asked by the same leads.
    """

    of: tuple[ColumnElement[Any], ...]
    follow: Follow
    columns: tuple[ColumnElement[Any], ...] = ()

    @property
    def table(self) -> str:
        return _table_of(self.of)

    def found(self, work: UnitOfWork, keys: Sequence[Key]) -> dict[str, list[str]]:
        """What leads on from these things."""
        if not self.columns:
            return self.follow(id for (id,) in keys)
        (of,) = self.of
        there = [column.is_not(None) for column in self.columns]
        query = select(*self.columns).where(of.in_([id for (id,) in keys]), *there).distinct()
        return self.follow(_joined(tuple(row)) for row in work.found(query, unreadable=OnUnreadable.LEAVE_OUT))

    def told(self, cells: Mapping[str, Any], found: Container[Key]) -> dict[str, list[str]]:
        """What a row of the table says that leads on, if it is of a thing that was found."""
        named = _named(cells, self.columns) if self.columns and _cells(cells, self.of) in found else None
        return {} if named is None else self.follow([named])


def _table_of(columns: Sequence[ColumnElement[Any]]) -> str:
    (table,) = {column.table.name for column in columns if isinstance(column, Column)}
    return table


def _cells(cells: Mapping[str, Any], columns: Sequence[ColumnElement[Any]]) -> Key | None:
    """The text in these columns; None if one of them has none."""
    found = tuple(cell for column in columns if isinstance(cell := cells.get(str(column.key)), str))
    return found if len(found) == len(columns) else None


def _named(cells: Mapping[str, Any], columns: Sequence[ColumnElement[Any]]) -> str | None:
    found = _cells(cells, columns)
    return None if found is None else _joined(found)


def _joined(names: Key) -> str:
    """One name for what several columns name together."""
    return names[0] if len(names) == 1 else dumps(names)
