"""Counts that stop at a number of rows, so that their cost does not grow with the table."""

from typing import Any

from sqlalchemy import FromClause, Integer, Select, func, literal_column, select

from persist.db.statements.prepared import Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.counts import Count


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
        """Count in the work's transaction."""
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
