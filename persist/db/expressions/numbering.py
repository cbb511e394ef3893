"""The number of a new row: the highest one so far and one more, whatever another program has written as a number."""

from typing import Any

from sqlalchemy import BigInteger, cast, func, literal_column
from sqlalchemy.sql.elements import ColumnElement

from persist.db.values.counts import UNBOUNDED


def next_number(column: ColumnElement[Any]) -> ColumnElement[int]:
    """The number after the highest of the rows, 1 without any. A fraction, which SQLite may hold, is cut off."""
    return func.coalesce(cast(func.max(column), BigInteger), literal_column("0")) + literal_column("1")


def has_next(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """A condition that leaves out rows whose number is not counted on from; in SQLite texts and blobs are higher than numbers."""
    return column < literal_column(str(UNBOUNDED))
