"""Large results, read a chunk at a time, so that memory does not grow with them."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from persist.db.hot import Hot, Row
from persist.db.work import Work


def chunks(work: Work, hot: Hot, rows: int, **values: Any) -> Iterator[Sequence[Row]]:
    """Of a hot SELECT `rows` rows at a time, decoded. A driver of the caller's may hold all of them at once."""
    if work.own_connection is None:  # which may be in autocommit, where a server keeps no cursor
        yield from work.select(hot.statement, values).partitions(rows)
        return
    dialect, driver = work.runtime.dialect, work.own_connection.connection.driver_connection
    with closing(dialect.reading_cursor(driver)) as cursor:
        yield from work.runtime.hot[hot].chunks(cursor, values, rows, work.by(hot.spoilt))
