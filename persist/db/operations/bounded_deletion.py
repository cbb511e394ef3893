"""Deleting a row with all that depends on it, a bounded number of rows in one transaction."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Select, Table, case, delete, func, literal, select, tuple_, update
from sqlalchemy.sql.elements import ColumnElement

from persist.db.statements.prepared import Row
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

Condition = ColumnElement[bool]
Ids = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Below:
    """A table with rows that depend on the deleted rows: `of` makes the condition that selects them, from the deleted keys.

    `key`: the columns that identify a row, by default the primary key. Of a part of the rows those go first that come first by
    `order`, by default the key.
    """

    table: Table
    of: Callable[[Ids], Condition]
    key: Sequence[ColumnElement[Any]] = ()
    order: Sequence[ColumnElement[Any]] = ()
    parent: Column[Any] | None = None
    """A column that refers to another row of the same item and table. It is emptied where that row goes first."""


@dataclass(frozen=True, slots=True)
class Units:
    """Dependent rows that go one by one with what depends on them, such as the messages of a chat with their parts.

    So what is left of an item of which only a part was deleted is whole. The units go in the order of `order`.
    """

    table: Table
    key: ColumnElement[Any]
    of: Callable[[Ids], Condition]
    order: Sequence[ColumnElement[Any]]
    below: Sequence[Below]

    def first(self, id: Any, most: int) -> Select[Any]:
        """SELECT of the keys of the first units of an item."""
        return select(self.key).where(self.of([id])).order_by(*self.order).limit(literal(most))


def fitting(work: UnitOfWork, below: Sequence[Below], ids: Ids, most: int) -> int:
    """How many of the first `ids` go together without deleting more than `most` dependent rows; 0: not even the first does."""
    count = len(ids)
    while count and _exceeds(work, below, ids[:count], most):
        count //= 2
    return count


def count_below(work: UnitOfWork, below: Sequence[Below], ids: Ids) -> Counter[str]:
    """How many rows of each table depend on the ids."""
    rows: Counter[str] = Counter()
    for one in below:
        found: Sequence[Row] = work.found(select(func.count()).select_from(one.table).where(one.of(ids)))
        rows[one.table.name] += int(found[0][0])
    return rows


def delete_below(work: UnitOfWork, below: Sequence[Below], ids: Ids) -> Counter[str]:
    """Delete all rows that depend on the ids; how many of each table."""
    rows: Counter[str] = Counter()
    for one in below:
        rows[one.table.name] += delete_rows(work, one.table, one.of(ids))
    return rows


def delete_some(work: UnitOfWork, below: Sequence[Below], units: Units | None, id: Any, most: int) -> Counter[str]:
    """Delete at most `most` of the rows that depend on the id, first whole units; how many of each table."""
    if units is not None:
        half = max(most // 2, 1)  # as many units, and as many rows below them
        keys = [row[0] for row in work.found(units.first(id, half), unreadable=OnUnreadable.LEAVE_OUT)]
        count = fitting(work, units.below, keys, half)
        if count:
            rows = delete_below(work, units.below, keys[:count])
            rows[units.table.name] += delete_rows(work, units.table, units.key.in_(keys[:count]))
            return rows
        if keys:
            return _delete_first(work, units.below, keys[0], most)
    return _delete_first(work, below, id, most)


def row_value(columns: Sequence[Any]) -> Any:
    """The columns as what can be looked for in a subquery of as many: the only one itself, or all of them together."""
    return columns[0] if len(columns) == 1 else tuple_(*columns)


def _delete_first(work: UnitOfWork, below: Sequence[Below], id: Any, most: int) -> Counter[str]:
    rows: Counter[str] = Counter()
    for one in below:
        left = most - rows.total()
        if left <= 0:
            break
        key: Sequence[Any] = one.key or tuple(one.table.primary_key.columns)
        first = select(*key).where(one.of([id])).order_by(*(one.order or key)).limit(literal(left))
        if one.parent is not None:
            work.change(update(one.table).where(one.of([id]), one.parent.in_(first)).values({one.parent: None}))
        rows[one.table.name] += delete_rows(work, one.table, one.of([id]), row_value(key).in_(first))
    return rows


def _exceeds(work: UnitOfWork, below: Sequence[Below], ids: Ids, most: int) -> bool:
    """Whether more than `most` rows depend on the ids, asked in one statement.

    What depends on the ids directly is counted first: where there is much of it, the database reads nothing else.
    """
    counted: Any = literal(0)
    for one in below:
        some = select(literal(1).label("one")).select_from(one.table).where(one.of(ids)).limit(literal(most + 1)).subquery()
        here = select(func.count().label("count")).select_from(some).subquery()
        counted = select(case((here.c.count > most, here.c.count), else_=here.c.count + counted)).scalar_subquery()
    found: Sequence[Row] = work.found(select(counted))
    return int(found[0][0]) > most


def delete_rows(work: UnitOfWork, table: Table, *conditions: Condition) -> int:
    """Delete the rows that meet all conditions; the number of rows deleted. An error must end the transaction."""
    return work.change(delete(table).where(*conditions))
