"""Lists that return everything, and with a `limit` a page of it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Select, bindparam, tuple_

from persist.db.schema.instants import Instant
from persist.db.statements.prepared import LIMIT, Row, Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_label
from persist.db.values.clock import EPOCH, epoch_us
from persist.db.values.pages import PagedList, decode_cursor, optional_limit
from persist.errors import InvalidValue

T = TypeVar("T")


class OptionalPages(Generic[T]):
    """A list in the order of the columns `by`: labels and instants that are never NULL, and unique together.

    `name`: to which list its cursors belong. `key`: the values of these columns in an item.
    """

    def __init__(
        self,
        name: str,
        query: Select[Any],
        by: Sequence[ColumnElement[Any]],
        key: Callable[[T], Sequence[Any]],
        *,
        descending: bool = False,
    ) -> None:
        order, place = [column.desc() if descending else column for column in by], tuple_(*by)
        last = tuple_(*(bindparam(f"after_{number}", type_=column.type) for number, column in enumerate(by)))
        ordered = query.order_by(*order)
        self._name, self._key = name, key
        self._kinds = tuple(int if isinstance(column.type, Instant) else str for column in by)
        self._all, self._first = Statement(ordered), Statement(ordered.limit(LIMIT))
        self._rest = Statement(ordered.where(place < last if descending else place > last).limit(LIMIT))

    def read(
        self,
        work: UnitOfWork,
        make: Callable[[Row], T],
        limit: int | None,
        after: str | None,
        values: Mapping[str, Any] | None = None,
    ) -> PagedList[T]:
        """The items, all of them without a `limit`. `values`: of the query's parameters. Raises InvalidValue."""
        maximum, values = optional_limit(limit, after), values or {}
        if maximum is None:
            return PagedList(make(row) for row in work.rows(self._all, **values))
        last = {} if after is None else self._last(after, values)
        rows = work.rows(self._rest if last else self._first, **values, **last, limit=maximum + 1)
        return PagedList.of(rows, maximum, make, name=self._name, filters=values, key=lambda _, item: self._stored(item))

    def _stored(self, item: T) -> list[Any]:
        return [epoch_us(value) if isinstance(value, datetime) else str(value) for value in self._key(item)]

    def _last(self, after: str, values: Mapping[str, Any]) -> dict[str, Any]:
        place = decode_cursor(check_label("after", after), self._name, values, self._kinds)
        try:
            found = [EPOCH + timedelta(microseconds=value) if type(value) is int else value for value in place]
        except OverflowError:
            raise InvalidValue("after", "this is not a cursor.") from None
        return {f"after_{number}": value for number, value in enumerate(found)}
