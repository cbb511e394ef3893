"""How erased things are found: by rows of their own, by rows of other tables, and by what other things lead to.

Each way is used twice: as a query of the tables, and as a check of each row that only the event log or the quarantine has. So a
way finds the same in all three.
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
        """Whether a row of the event log or of the quarantine has one of the values."""
        return any(row.get(str(column.key)) in values for column in self.columns)


def equal(*columns: ColumnElement[Any]) -> Equal:
    """Select the rows in which one of the columns holds one of the values."""
    return Equal(columns)


@dataclass(frozen=True, slots=True)
class EqualTuple(Equal):
    """Selects rows whose columns equal one of the values, each of which is a JSON list of texts, as `Lead` makes it."""

    def __call__(self, values: Values) -> Condition:
        return tuple_(*self.columns).in_([tuple(loads(value)) for value in values])

    def matches(self, row: Mapping[str, Any], values: Collection[str]) -> bool:
        return _named(row, self.columns) in values


By = Mapping[str, Equal]


@dataclass(frozen=True, slots=True)
class Way:
    """How a selector finds things: by rows of one table in which the columns `key` hold the key of a thing.

    The tables, the event log and the quarantine are read by the same ways.
    """

    selector: str
    by: Equal
    key: tuple[ColumnElement[Any], ...]

    @property
    def table(self) -> str:
        return _table_of(self.key)

    def key_in(self, cells: Mapping[str, Any], values: Collection[str]) -> Key | None:
        """The key of the thing in a row of the table, if the selector finds the row."""
        return _cells(cells, self.key) if self.by.matches(cells, values) else None


Follow = Callable[[Iterable[str]], dict[str, list[str]]]
"""Maps names to the selectors that find things by them."""


@dataclass(frozen=True, slots=True)
class Lead:
    """How an erased thing leads to things of other kinds: by rows with its key in `of` and names of others in `columns`.

    Without `columns` the key itself is followed. The tables, the event log and the quarantine are read by the same leads.
    """

    of: tuple[ColumnElement[Any], ...]
    follow: Follow
    columns: tuple[ColumnElement[Any], ...] = ()

    @property
    def table(self) -> str:
        return _table_of(self.of)

    def found(self, work: UnitOfWork, keys: Sequence[Key]) -> dict[str, list[str]]:
        """The names to which these things lead, by the selector that finds them."""
        if not self.columns:
            return self.follow(id for (id,) in keys)
        (of,) = self.of
        there = [column.is_not(None) for column in self.columns]
        query = select(*self.columns).where(of.in_([id for (id,) in keys]), *there).distinct()
        return self.follow(_joined(tuple(row)) for row in work.found(query, unreadable=OnUnreadable.LEAVE_OUT))

    def names_in(self, cells: Mapping[str, Any], found: Container[Key]) -> dict[str, list[str]]:
        """The names in a row of the table, by the selector that finds them, if the row is of a found thing."""
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
