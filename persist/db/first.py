"""The first row of a queue: a row that cannot be read must not keep from anybody what waits behind it."""

from typing import Any

from sqlalchemy import Select, literal_column

from persist.db.hot import LIMIT, Hot, Row
from persist.db.spoilt import Spoilt, is_unreadable
from persist.db.work import Work

_LOOKS = (16, 256, 4096, 65_536)
"""How many rows are looked at, where the first ones cannot be read."""


class FirstReadable:
    """A SELECT in an order of its own, whose first row is wanted."""

    __slots__ = ("_first", "_some")

    def __init__(self, query: Select[Any]) -> None:
        self._first = Hot(query.limit(literal_column("1")))
        self._some = Hot(query.limit(LIMIT), spoilt=Spoilt.LEAVE_OUT)

    def find(self, work: Work, **values: Any) -> Row | None:
        """The first row that can be read; those before it are reported."""
        row = work.row(self._first, **values)
        if row is None or not any(map(is_unreadable, row)):
            return row
        for many in _LOOKS:
            if rows := work.rows(self._some, limit=many, **values):
                return rows[0]
        return None
