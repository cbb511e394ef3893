"""Counts the round trips of a call on a store, once its statements are prepared and its connections are open."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Table

from persist.schema.metadata import metadata
from tests.roundtrips.proxy import CountingProxy, Flight

_WARM = 2
"""Calls before a count: the first prepares the statements, the second finds every cache filled."""
_DELAYS = (0.005, 0.02, 0.08)
"""How long an answer is kept back, in seconds: longer each time that a slow machine may have spoilt the count."""


class Kept:
    """What is in tables, to be put back after each call. It is kept in temporary tables of one connection."""

    def __init__(self, url: str, tables: list[Table]) -> None:
        # as for cleaning: no trigger is fired; and rows go after those that refer to them, which the nodes of a cluster check
        options = "-c session_replication_role=replica"
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=None, options=options)
        deletes: list[sql.Composable] = []
        inserts: list[sql.Composable] = []
        for table in _with_referring(tables):
            names = {"table": sql.Identifier("persist", table.name), "kept": sql.Identifier(f"kept_{table.name}")}
            self._connection.execute(sql.SQL("CREATE TEMPORARY TABLE {kept} AS SELECT * FROM {table}").format(**names))
            deletes.insert(0, sql.SQL("DELETE FROM {table}").format(**names))
            inserts.append(sql.SQL("INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM {kept}").format(**names))
        self._put_back = sql.SQL("; ").join([*deletes, *inserts])

    def put_back(self) -> None:
        self._connection.execute(self._put_back)

    def close(self) -> None:
        self._connection.close()


def _with_referring(tables: list[Table]) -> list[Table]:
    """The tables and those that refer to them, after what they refer to."""
    found = {table.name for table in tables}
    for table in metadata.sorted_tables:
        if any(key.column.table.name in found for key in table.foreign_keys):
            found.add(table.name)
    return [table for table in metadata.sorted_tables if table.name in found]


class Meter:
    """Counts what goes through a proxy."""

    def __init__(self, proxy: CountingProxy) -> None:
        self._proxy = proxy

    @property
    def url(self) -> str:
        """The URL by which a store is opened whose round trips are counted."""
        return self._proxy.url

    def counted(self) -> AbstractContextManager[list[Flight]]:
        """The flights of what the block calls, also where it is called for the first time."""
        return self._proxy.counted(_DELAYS[1])

    def flights(self, call: Callable[[], object], *, bound: int, undo: Callable[[], object] = lambda: None) -> list[Flight]:
        """The flights of one call, after others of the same. If they are more than the bound, the fewest of several counts."""
        for _ in range(_WARM):
            call()
            undo()
        fewest: list[Flight] | None = None
        for delay in _DELAYS:
            with self._proxy.counted(delay) as flights:
                call()
            undo()
            if fewest is None or len(flights) < len(fewest):
                fewest = flights
            if len(fewest) <= bound:
                break
        assert fewest is not None
        return fewest


@contextmanager
def metered(url: str) -> Iterator[Meter]:
    """A meter of the database. While it is there, drivers prepare each statement at once, not when it was run five times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg, "connect", partial(psycopg.connect, prepare_threshold=0))
        proxy = CountingProxy(url)
        try:
            yield Meter(proxy)
        finally:
            proxy.close()


def complaint(name: str, bound: int, flights: list[Flight]) -> str | None:
    """What is wrong if a call takes more round trips than its bound: each of them, with its statements."""
    if len(flights) <= bound:
        return None
    return f"{name}: {len(flights)} round trips, bound {bound}\n{listed(flights)}"


def require(*complaints: str | None) -> None:
    """Fail the test with the complaints, if there are any."""
    if found := [complaint for complaint in complaints if complaint is not None]:
        pytest.fail("\n".join(found), pytrace=False)


def listed(flights: list[Flight]) -> str:
    """The statements of each round trip, a line each."""
    lines = [
        f"    {number}. {shortened(statement)}" for number, flight in enumerate(flights, 1) for statement in flight.statements
    ]
    return "\n".join(lines)


def shortened(statement: str) -> str:
    return statement if len(statement) <= 160 else f"{statement[:110]} … {statement[-48:]}"
