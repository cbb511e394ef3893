"""The first readable row of a queue: an unreadable row must not block the rows behind it."""

from typing import Any

from sqlalchemy import Select, literal_column

from persist.db.statements.prepared import LIMIT, Row, Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable, is_unreadable


class FirstReadable:
    """An ordered SELECT of which only the first readable row is wanted."""

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
