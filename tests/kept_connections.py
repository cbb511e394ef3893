"""Connections that go from test to test, below stores that do not.

Opening the connections of a store takes most of the time of a small test: a server starts a process for each, which then learns
the catalog, and each dialect prepares its statements anew. The stores of the fixtures `store` and `other` are therefore opened on
the dialect of a store that an earlier test closed on the same database. Everything else of such a store is new: clock, ids,
locks, recorders, threads. What opening and closing of connections do is proven by the tests that call `Store.open` or
`open_store`.

A test that patches something by `monkeypatch` gets new connections, because these may be what it patches.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sqlalchemy import event

from persist import AsyncStore, Store
from persist.db.dialects.backends import dialect_for
from persist.db.dialects.interface import Dialect
from persist.settings import current_settings
from tests.async_portal import Portal, PortalStore
from tests.database_cleaning import MARK

_MAX_DATABASES = 3


class Closeable(Protocol):
    """What can be kept."""

    def close(self) -> object:
        """Give up what it holds."""


T = TypeVar("T", bound=Closeable)


class KeptConnections:
    """What closed tests left open, by the URL of its database; that of the databases used last."""

    def __init__(self) -> None:
        self._idle: dict[str, list[Closeable]] = {}

    def take(self, url: str, kind: type[T]) -> T | None:
        """One of its kind to this database, if one was kept."""
        for kept in self._idle.get(url, []):
            if isinstance(kept, kind):
                self._idle[url].remove(kept)
                return kept
        return None

    def put(self, url: str, kept: Closeable) -> None:
        """Keep one that its test needs no longer."""
        self._idle[url] = [*self._idle.pop(url, []), kept]
        for old in list(self._idle)[:-_MAX_DATABASES]:
            self.drop(old)

    def drop(self, url: str) -> None:
        """Close what is kept of a database."""
        for kept in self._idle.pop(url, []):
            kept.close()

    def close(self) -> None:
        """Close everything."""
        for url in list(self._idle):
            self.drop(url)


class KeptDialect:
    """A dialect with its connections, and the stores that tests open on it, one after the other."""

    def __init__(self, url: str) -> None:
        self._settings = current_settings()
        self._dialect: Dialect = dialect_for(marked(url), self._settings)
        self._store: Any = None
        if url.startswith("postgresql"):
            event.listen(self._dialect.connections.writer.pool, "checkin", _tell_what_it_wrote)

    def open(self, clock: Callable[[], Any], portal: Portal | None) -> Any:
        """A new Store, or an AsyncStore of the portal."""

        def on_dialect() -> Store:
            return Store.on_dialect(self._dialect, self._settings, clock)

        async def asynchronous() -> AsyncStore:
            return AsyncStore(await asyncio.to_thread(on_dialect))

        self._store = on_dialect() if portal is None else PortalStore(portal, portal.call(asynchronous))
        return self._store

    def close_store(self) -> bool:
        """Close the store and leave its connections open; False if they cannot be used again."""
        connections = self._dialect.connections
        held = vars(connections)
        held["dispose"] = lambda: None
        try:
            self._store.close()
        finally:
            del held["dispose"]
        for idle in (connections.idle or {}).values():
            idle.close()  # each goes to the pool, which ends what the connection may still be doing
        held["open_first"] = lambda fill: None  # there are connections already
        in_use = any(engine.pool.checkedout() for engine in connections.engines)  # type: ignore[attr-defined]  # of QueuePool
        return not (connections.disposed or in_use)

    def close(self) -> None:
        """Close the connections."""
        self._dialect.connections.dispose()


def _tell_what_it_wrote(driver: Any, record: object) -> None:
    """Have the server count at once what this connection wrote to the catalogs: tests.database_cleaning looks at the count."""
    if driver is not None and driver.info.server_version >= 150000:
        driver.pgconn.exec_(b"SELECT pg_stat_force_next_flush()")


def marked(url: str) -> str:
    """The URL under which a server's list of connections shows that they are kept."""
    return url if url.startswith("sqlite") else f"{url}{'&' if '?' in url else '?'}application_name={MARK}"
