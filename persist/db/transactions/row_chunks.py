"""Large results, read a chunk at a time, so that memory does not grow with them."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from persist.db.statements.prepared import Row, Statement
from persist.db.transactions.unit_of_work import UnitOfWork


def chunks(work: UnitOfWork, prepared: Statement, rows: int, **values: Any) -> Iterator[Sequence[Row]]:
    """Yield the decoded rows of a prepared SELECT, `rows` at a time. A caller's own driver may hold all rows in memory."""
    if work.own_connection is None:  # a caller's connection may be in autocommit, where Postgres keeps no cursor
        found = work.rows(prepared, **values)
        yield from (found[start : start + rows] for start in range(0, len(found), rows))
        return
    transactions = work.runtime.transactions
    with closing(transactions.reading_cursor(transactions.driver_of(work.own_connection))) as cursor:
        yield from work.runtime.prepared[prepared].chunks(cursor, values, rows, work.by(prepared.unreadable))
