"""Deleting a row with all that depends on it, a bounded number of rows in one transaction."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, Table, case, column, delete, func, literal, select, tuple_, update
from sqlalchemy import table as table_named

from persist.db.dialects.backends import operations_of
from persist.db.dialects.interface import ForeignReference
from persist.db.statements.prepared import Row, noted_deletions
from persist.db.transactions.snapshots import Chain, refusing
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import Conflict, PersistError


def role_seeing_some(work: UnitOfWork, tables: Sequence[Table]) -> str | None:
    """The role to which row security shows some rows of these tables alone; None if it sees all, as on SQLite."""
    return operations_of(work.runtime.dialect).role_seeing_some(work.select, tables)


def may_be_hidden(work: UnitOfWork, tables: Sequence[Table]) -> bool:
    """Whether these tables may have rows that this transaction does not see."""
    return role_seeing_some(work, tables) is not None


Condition = ColumnElement[bool]
Ids = Sequence[Any]


@dataclass(frozen=True, slots=True)
class DependentRows:
    """A table with rows that depend on deleted keys, as `of` selects them. They go in `order`, by default of their key."""

    table: Table
    of: Callable[[Ids], Condition]
    key: Sequence[ColumnElement[Any]] = ()
    order: Sequence[ColumnElement[Any]] = ()
    parent: Column[Any] | None = None
    """A column that refers to another row of the same item and table. It is emptied where that row goes first."""


@dataclass(frozen=True, slots=True)
class Units:
    """Dependent rows that go one by one, with the rows below, in an order: an item that was deleted in part keeps whole units."""

    table: Table
    key: ColumnElement[Any]
    of: Callable[[Ids], Condition]
    order: Sequence[ColumnElement[Any]]
    below: Sequence[DependentRows]

    def first(self, id: Any, most: int) -> Select[Any]:
        """SELECT of the keys of the first units of an item."""
        return select(self.key).where(self.of([id])).order_by(*self.order).limit(literal(most))


def fitting(work: UnitOfWork, below: Sequence[DependentRows], ids: Ids, most: int) -> int:
    """How many of the first `ids` go together without deleting more than `most` dependent rows; 0: not even the first does."""
    count = len(ids)
    while count and _exceeds(work, below, ids[:count], most):
        count //= 2
    return count


def count_below(work: UnitOfWork, below: Sequence[DependentRows], ids: Ids) -> Counter[str]:
    """How many rows of each table depend on the ids."""
    rows: Counter[str] = Counter()
    for one in below:
        found: Sequence[Row] = work.found(select(func.count()).select_from(one.table).where(one.of(ids)))
        rows[one.table.name] += int(found[0][0])
    return rows


def delete_below(work: UnitOfWork, below: Sequence[DependentRows], ids: Ids) -> Counter[str]:
    """Delete all rows that depend on the ids; how many of each table."""
    rows: Counter[str] = Counter()
    for one in below:
        rows[one.table.name] += delete_rows(work, one.table, one.of(ids))
    return rows


def delete_some(work: UnitOfWork, below: Sequence[DependentRows], units: Units | None, id: Any, most: int) -> Counter[str]:
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


def _delete_first(work: UnitOfWork, below: Sequence[DependentRows], id: Any, most: int) -> Counter[str]:
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


def _exceeds(work: UnitOfWork, below: Sequence[DependentRows], ids: Ids, most: int) -> bool:
    """Whether more than `most` rows depend on the ids, in one statement. Many direct dependents end the counting."""
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


# Where another program's reference says ON DELETE CASCADE or SET NULL, nothing is in the way.

log = logging.getLogger("persist")


def explained(work: UnitOfWork, error: Conflict) -> Conflict:
    """The error of a refused deletion with what refers to the rows, if `work`, in which nothing is deleted, finds that."""
    deletions = noted_deletions(error)
    if not deletions:
        return error
    found: Counter[str] = Counter()
    try:
        tables, references = [*work.runtime.tables()], refusing(work, error, error)
        for statement, values in deletions if references else ():
            if statement.whereclause is not None and isinstance(statement.table, Table):
                found += _direct(work, references, tables, statement.table, statement.whereclause, values)
    except Exception as other:
        log.warning("what refers to the rows cannot be said: %s", type(other).__name__)
    if not found:
        return error
    listed = "; ".join(f"{name} ({count:,})" for name, count in found.items())
    return Conflict(f"The database refuses the deletion because of {listed}. These go first.", constraint=error.constraint)


def in_the_way(
    work: UnitOfWork, references: Sequence[Chain], tables: Sequence[Table], table: Table, condition: ColumnElement[bool]
) -> Counter[str]:
    """How many rows refer to those of a table that meet the condition, or to rows below them, by what they are called."""
    found = _direct(work, references, tables, table, condition, {})
    if not found.total():
        whole = {of.name: of for of in tables}
        found |= Counter({name_of(one): min(1, _count(work, one, whole[one[-1].parent])) for one in references})
    return +found


def _direct(
    work: UnitOfWork,
    references: Sequence[Chain],
    tables: Sequence[Table],
    table: Table,
    condition: ColumnElement[bool],
    values: Mapping[str, Any],
) -> Counter[str]:
    """The counts of `in_the_way` by foreign keys alone. `values`: the parameters of the condition."""
    found: Counter[str] = Counter()
    for below, of in _below(tables, table, condition):
        for one in references:
            if one[-1].parent == below.name:
                found[name_of(one)] += _count(work, one, below, of, values)
    return +found


def name_of(chain: Chain) -> str:
    """What rows with such a reference are called in a report."""
    one = chain[0]
    where = one.table if one.schema is None else f"{one.schema}.{one.table}"
    return f"{where}: rows that refer to {one.parent} by {', '.join(one.columns)}"


def _below(tables: Sequence[Table], table: Table, condition: ColumnElement[bool]) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    yield table, condition
    for child in tables:
        for key in child.foreign_key_constraints if child is not table else ():
            if key.referred_table is table:
                own, theirs = [*key.columns], [element.column for element in key.elements]
                these = select(*theirs).where(condition)
                yield from _below(tables, child, row_value(own).in_(these))


def _count(
    work: UnitOfWork, chain: Chain, table: Table, of: ColumnElement[bool] | None = None, values: Mapping[str, Any] | None = None
) -> int:
    """How many rows refer by the chain to rows of persist's table, or to those that meet the condition."""
    keys = select(*(table.c[name] for name in chain[-1].parent_columns))
    keys = keys if of is None else keys.where(of)
    for one, below in pairwise(reversed(chain)):
        keys = _referring(one, keys, below.parent_columns)
    referring = _referring(chain[0], keys)
    point = work.savepoint()
    try:
        count = int(work.select(referring, values).scalar() or 0)
    except Exception as error:
        point.rollback()
        if not isinstance(work.runtime.translate(error), PersistError):
            raise
        return 1
    point.commit()
    return count


def _referring(one: ForeignReference, keys: Select[Any], columns: Sequence[str] = ()) -> Select[Any]:
    """SELECT of these columns of the rows that refer to the keys; without columns of their number."""
    own: list[ColumnElement[Any]] = [column(name) for name in one.columns]
    theirs = table_named(one.table, schema=one.schema)
    wanted: list[ColumnElement[Any]] = [column(name) for name in columns] or [func.count()]
    return select(*wanted).select_from(theirs).where(row_value(own).in_(keys))
