"""Deleting a row with all that depends on it, a bounded number of rows in one transaction."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    FromClause,
    Integer,
    Select,
    Table,
    case,
    column,
    delete,
    func,
    literal,
    literal_column,
    select,
    tuple_,
    update,
)
from sqlalchemy import table as table_named

from persist.db.dialects.backends import operations_of
from persist.db.dialects.interface import ForeignReference
from persist.db.expressions.keyset import behind
from persist.db.schema.instants import Instant
from persist.db.statements.prepared import LIMIT, Row, Statement, noted_deletions
from persist.db.statements.row_values import Values
from persist.db.transactions.snapshots import is_referred
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable, is_unreadable
from persist.db.unreadable.excerpts import Shortened
from persist.db.values.arguments import Count, check_label
from persist.db.values.clock import EPOCH, epoch_ms, epoch_us, from_epoch_ms
from persist.db.values.frozen import Value
from persist.db.values.pages import Page, PagedList, check_limit, decode_cursor, optional_limit
from persist.errors import Conflict, InvalidValue, PersistError

# Whether row security may hide rows: then what no visible row names may be named all the same.


def role_seeing_some(work: UnitOfWork, tables: Sequence[Table]) -> str | None:
    """The role to which row security shows some rows of these tables alone; None if it sees all, as on SQLite."""
    return operations_of(work.runtime.dialect).role_seeing_some(work.select, tables)


def may_be_hidden(work: UnitOfWork, tables: Sequence[Table]) -> bool:
    """Whether these tables may have rows that this transaction does not see."""
    return role_seeing_some(work, tables) is not None


class FirstReadable:
    """An ordered SELECT of which only the first readable row is wanted: an unreadable row must not block those behind it."""

    __slots__ = ("_first", "_some")

    def __init__(self, query: Select[Any]) -> None:
        self._first = Statement(query.limit(literal_column("1")))
        self._some = Statement(query.limit(LIMIT), unreadable=OnUnreadable.LEAVE_OUT)

    def find(self, work: UnitOfWork, **values: Any) -> Row | None:
        """Return the first readable row, or None; unreadable rows before it are reported."""
        row = work.row(self._first, **values)
        if row is None or not any(map(is_unreadable, row)):
            return row
        return next(iter(work.rows(self._some, limit=1, **values)), None)


def counting(rows: Select[Any], most: int, *, of: FromClause | None = None) -> Select[Any]:
    """SELECT of how many rows there are, at most one more than `most`. `of`: what the rows' conditions compare with, outside.

    The limit is a literal: Postgres cannot know that a parameter is small, and would plan to read all rows.
    """
    ones = rows.with_only_columns(literal_column("1", Integer()).label("one"), maintain_column_froms=True)
    ones = ones.order_by(None).limit(literal_column(str(most + 1)))
    if of is not None:
        ones = ones.correlate(of)  # named here: auto-correlation does not reach two levels up
    return select(func.count()).select_from(ones.subquery("some"))


class BoundedCount:
    """How many rows a SELECT has: exact up to `most`, and beyond that what the database's planner expects.

    A database whose planner does not say how many it expects gives `most`, as the number that there are at least.
    """

    def __init__(self, rows: Select[Any], most: int) -> None:
        self.most = most
        self.statement = Statement(counting(rows, most))
        """Gives the number of rows, or `most` plus one if there are more."""
        self._rows = Statement(rows)

    def count(self, work: UnitOfWork, **values: Any) -> Count:
        row = work.row(self.statement, **values)
        assert row is not None
        return self.counted(work, int(row[0]), **values)

    def counted(self, work: UnitOfWork, found: int, **values: Any) -> Count:
        """The count where the statement has given `found`."""
        if found <= self.most:
            return Count(found)
        expected = work.expected_rows(self._rows, **values)
        if expected is None:
            return Count(self.most, "at_least")
        return Count(max(expected, self.most + 1), "estimate")


V = TypeVar("V", bound=Value)
_NONE: Mapping[str, Any] = {}
_ALL = 0


class Keyset(Generic[V]):
    """A list in the order of columns that are never NULL, and unique together. A statement is made per set of filters.

    name            to which list its cursors belong
    values          what is listed, of all rows that meet `where`
    order           labels, whole numbers and instants; a cursor holds the last item's `places`, by default of the same names
    filters         the condition of each filter, with a parameter of its name
    exact           a cursor holds instants in microseconds: for columns that store them
    literal_limits  see persist.db.operations.bounded_deletion
    """

    def __init__(
        self,
        name: str,
        values: Values[V],
        order: Sequence[ColumnElement[Any]],
        filters: Mapping[str, ColumnElement[bool]] = _NONE,
        *,
        where: Sequence[ColumnElement[bool]] = (),
        places: Sequence[str] | None = None,
        descending: bool = True,
        exact: bool = False,
        literal_limits: bool = False,
    ) -> None:
        self._name, self._make, self._order, self._filters = name, values, tuple(order), filters
        self._where, self._descending, self._exact = tuple(where), descending, exact
        self._places = tuple(places or (str(column.key) for column in order))
        self._parameters = tuple(f"after_{place}" for place in range(len(self._order)))
        self._kinds = tuple(int if isinstance(column.type, (Instant, Integer)) else str for column in order)
        self._is_instant = tuple(isinstance(column.type, Instant) for column in order)
        self._literal_limits = literal_limits
        self._statement = cache(self._declared)

    def page(
        self,
        work: UnitOfWork,
        limit: int,
        after: str | None,
        filters: Mapping[str, Any] = _NONE,
        *,
        make: Callable[[Row], V] | None = None,
    ) -> Page[V]:
        """A page after the cursor. A None filter only binds the cursor. `make`: makes an item of a row. Raises InvalidValue."""
        limit = check_limit(limit)
        last = _NONE if after is None else self._last(after, filters)
        given = {name: value for name, value in filters.items() if value is not None}
        if self._literal_limits:
            rows = page_rows(work, lambda rows: self._statement(rows, bool(last), *given), limit, {**given, **last})
        else:
            rows = work.rows(self._statement(None, bool(last), *given), **given, **last, limit=limit + 1)
        return Page.of(rows, limit, make or self._make, name=self._name, filters=filters, key=self._key)

    def pages(
        self,
        work: UnitOfWork,
        limit: int | None,
        after: str | None,
        filters: Mapping[str, Any] = _NONE,
        *,
        make: Callable[[Row], V] | None = None,
    ) -> PagedList[V]:
        """Everything without a `limit`, and with one a page. Raises InvalidValue."""
        maximum = optional_limit(limit, after)
        if maximum is None:
            return PagedList(map(make or self._make, work.rows(self._statement(_ALL, False, *filters), **filters)))
        page = self.page(work, maximum, after, filters, make=make)
        return PagedList(page.items, page.cursor)

    def first(self, work: UnitOfWork, limit: int, filters: Mapping[str, Any] = _NONE) -> list[V]:
        """The first items, without a cursor. `limit`: checked, and of any size."""
        return [self._make(row) for row in work.rows(self._statement(None, False, *filters), **filters, limit=limit)]

    def _declared(self, rows: int | None, goes_on: bool, *given: str) -> Statement:
        query = select(*self._make.columns).where(*self._where, *(self._filters[name] for name in given))
        query = query.order_by(*(column.desc() if self._descending else column for column in self._order))
        if goes_on:
            query = query.where(behind(self._order, self._parameters, descending=self._descending))
        return Statement(query if rows == _ALL else query.limit(limit_of(rows)))

    def _key(self, _: Row, item: V) -> list[Any]:
        return [self._stored(getattr(item, place)) for place in self._places]

    def _stored(self, value: Any) -> int | str:
        if isinstance(value, datetime):
            return epoch_us(value) if self._exact else epoch_ms(value)
        return value if type(value) is int else str(value)

    def _last(self, after: str, filters: Mapping[str, Any]) -> dict[str, Any]:
        key = decode_cursor(check_label("after", after), self._name, filters, self._kinds)
        for place, is_instant in enumerate(self._is_instant):
            if is_instant:
                key[place] = _from_epoch_us(key[place]) if self._exact else from_epoch_ms(key[place])
        return dict(zip(self._parameters, key, strict=True))


def _from_epoch_us(value: int) -> datetime:
    try:
        return EPOCH + timedelta(microseconds=value)
    except OverflowError:
        raise InvalidValue("after", "this is not a cursor.") from None


# Lists with a literal limit: Postgres cannot know that a parameter is small, and would plan anew each time.

_ROWS = (21, 51, 101, 1001)


def limit_of(rows: int | None) -> ColumnElement[Any]:
    """The LIMIT of a statement for so many rows; the parameter `limit` for None."""
    return LIMIT if rows is None else literal_column(str(rows))


def page_rows(work: UnitOfWork, statement: Callable[[int | None], Statement], limit: int, values: Mapping[str, Any]) -> list[Row]:
    """More rows than `limit`, which is 1000 at most, if there are so many.

    `statement`: the list with the limit of that many rows; with the parameter where unreadable rows were left out.
    """
    rows = work.rows(statement(next(rows for rows in _ROWS if rows > limit)), **values)
    return work.rows(statement(None), **values, limit=limit + 1) if isinstance(rows, Shortened) else rows


# Deleting a row with all that depends on it, a bounded number of rows in one transaction.

Condition = ColumnElement[bool]
Ids = Sequence[Any]


@dataclass(frozen=True, slots=True)
class DependentRows:
    """A table with rows that depend on the deleted rows: `of` makes the condition that selects them, from the deleted keys.

    `key`: the columns that identify a row, by default the primary key. Rows go in the order of `order`, by default of the key.
    """

    table: Table
    of: Callable[[Ids], Condition]
    key: Sequence[ColumnElement[Any]] = ()
    order: Sequence[ColumnElement[Any]] = ()
    parent: Column[Any] | None = None
    """A column that refers to another row of the same item and table. It is emptied where that row goes first."""


@dataclass(frozen=True, slots=True)
class Units:
    """Dependent rows that go one by one, with the rows below, such as a chat's messages with their parts.

    An item that was deleted in part therefore keeps whole units. The units go in the order of `order`.
    """

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


# Rows of other programs' tables that refer to rows of persist, and so keep these from being deleted.
#
# Where such a reference says ON DELETE CASCADE or SET NULL, the database does what it says, and nothing is in the way.

log = logging.getLogger("persist")


def explained(work: UnitOfWork, error: Conflict) -> Conflict:
    """The error of a refused deletion, with what refers to the rows: table, column and how many rows. Else the same error.

    `work`: a transaction in which nothing of the deletion is left. An error that this meets is not raised.
    """
    deletions = noted_deletions(error)
    if not deletions or not is_referred(work, error, error):
        return error
    found: Counter[str] = Counter()
    try:
        tables = [*work.runtime.tables()]
        references = operations_of(work.runtime.dialect).foreign_references(work.select, tables)
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
    work: UnitOfWork,
    references: Sequence[ForeignReference],
    tables: Sequence[Table],
    table: Table,
    condition: ColumnElement[bool],
) -> Counter[str]:
    """How many rows refer to those rows of a table that meet the condition, or to rows below them, by what they are called.

    `references`: those that refuse a deletion. Where none refers to such a row, but to what belongs to it without a foreign key,
    such as a session's messages, each counts as one. So does a table that may not be read.
    """
    found = _direct(work, references, tables, table, condition, {})
    if not found.total():
        whole = {of.name: of for of in tables}
        found.update({name_of(one): min(1, _count(work, one, _keys(one, whole[one.parent]), {})) for one in references})
    return +found


def _direct(
    work: UnitOfWork,
    references: Sequence[ForeignReference],
    tables: Sequence[Table],
    table: Table,
    condition: ColumnElement[bool],
    values: Mapping[str, Any],
) -> Counter[str]:
    """The counts of `in_the_way` by foreign keys alone. `values`: the parameters of the condition."""
    found: Counter[str] = Counter()
    for below, of in _below(tables, table, condition):
        for one in references:
            if one.parent == below.name:
                found[name_of(one)] += _count(work, one, _keys(one, below).where(of), values)
    return +found


def name_of(one: ForeignReference) -> str:
    """What rows with such a reference are called in a report."""
    where = one.table if one.schema is None else f"{one.schema}.{one.table}"
    return f"{where}: rows that refer to {one.parent} by {', '.join(one.columns)}"


def _below(tables: Sequence[Table], table: Table, condition: ColumnElement[bool]) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    """The table with the condition of its rows, and every table with rows that refer to these, directly or not."""
    yield table, condition
    for child in tables:
        for key in child.foreign_key_constraints if child is not table else ():
            if key.referred_table is table:
                own, theirs = [*key.columns], [element.column for element in key.elements]
                these = select(*theirs).where(condition)
                yield from _below(tables, child, row_value(own).in_(these))


def _keys(one: ForeignReference, table: Table) -> Any:
    return select(*(table.c[name] for name in one.parent_columns))


def _count(work: UnitOfWork, one: ForeignReference, keys: Any, values: Mapping[str, Any]) -> int:
    own: list[ColumnElement[Any]] = [column(name) for name in one.columns]
    theirs = table_named(one.table, *own, schema=one.schema)  # type: ignore[arg-type]  # they are columns without a table
    referring = select(func.count()).select_from(theirs).where(row_value(own).in_(keys))
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
