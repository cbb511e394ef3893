"""`Keyset`: a list that is read page by page, declared once by values, order and filters; counts; the first row."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, FromClause, Integer, Select, func, literal_column, select

from persist.db.expressions.keyset import behind
from persist.db.schema.instants import Instant
from persist.db.statements.prepared import LIMIT, Row, Statement
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable, is_unreadable
from persist.db.unreadable.excerpts import Shortened
from persist.db.values.arguments import Count, check_label
from persist.db.values.clock import EPOCH, epoch_ms, epoch_us, from_epoch_ms
from persist.db.values.frozen import Value
from persist.db.values.pages import Page, PagedList, check_limit, decode_cursor, optional_limit
from persist.errors import InvalidValue


class FirstReadable:
    """An ordered SELECT of which only the first readable row is wanted: an unreadable row must not block those behind it."""

    __slots__ = ("_first", "_some")

    def __init__(self, query: Select[Any]) -> None:
        self._first = Statement(query.limit(literal_column("1")))
        self._some = Statement(query.limit(LIMIT), unreadable=OnUnreadable.LEAVE_OUT)

    def find(self, work: UnitOfWork, **values: Any) -> Row | None:
        row = work.row(self._first, **values)
        if row is None or not any(map(is_unreadable, row)):
            return row
        return next(iter(work.rows(self._some, limit=1, **values)), None)


def counting(rows: Select[Any], most: int, *, of: FromClause | None = None) -> Select[Any]:
    """SELECT of how many rows there are, at most one more than `most`: a literal, since the planner knows no parameters."""
    ones = rows.with_only_columns(literal_column("1", Integer()).label("one"), maintain_column_froms=True)
    ones = ones.order_by(None).limit(literal_column(str(most + 1)))
    if of is not None:
        ones = ones.correlate(of)  # named here: auto-correlation does not reach two levels up
    return select(func.count()).select_from(ones.subquery("some"))


class BoundedCount:
    """How many rows a SELECT has: exact up to `most`; beyond that what the planner expects, if it says so."""

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


_ROWS = (21, 51, 101, 1001)


def limit_of(rows: int | None) -> ColumnElement[Any]:
    """The LIMIT of a statement for so many rows; the parameter `limit` for None."""
    return LIMIT if rows is None else literal_column(str(rows))


def page_rows(work: UnitOfWork, statement: Callable[[int | None], Statement], limit: int, values: Mapping[str, Any]) -> list[Row]:
    """More rows than `limit`, if there are: by `statement`, or by one with the parameter where unreadable rows were left out."""
    rows = work.rows(statement(next(rows for rows in _ROWS if rows > limit)), **values)
    return work.rows(statement(None), **values, limit=limit + 1) if isinstance(rows, Shortened) else rows
