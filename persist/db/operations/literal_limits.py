"""Lists with a literal limit: Postgres cannot know that a parameter is small, and would plan anew each time."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import literal_column
from sqlalchemy.sql.elements import ColumnElement

from persist.db.statements.prepared import LIMIT, Row, Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.shortened import Shortened

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
