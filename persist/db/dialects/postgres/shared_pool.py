"""The connection pool that the stores of many schemas share, and each store's view of the pool."""

import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from sqlalchemy import Connection, Engine, Text, func, literal_column

from persist.db.concurrency.fork_count import in_each_child
from persist.db.connections import Lent
from persist.db.dialects.connections import Pinned
from persist.db.dialects.interface import EVENTS, Notify, Wakeups
from persist.db.dialects.postgres.connections import PostgresConnections, connection_timeouts
from persist.db.dialects.postgres.urls import server_url
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.statements.prepared import PLACE_OF_CHANNEL

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect
from persist.db.dialects.postgres.wakeups import Heard, PostgresEventLog, SharedListener, channel

NO_SCHEMA = "pg_no_schema"
"""The schema of a connection that no store has checked out. The server refuses to create one of that name."""

_NOTIFY: Notify = partial(func.pg_notify, literal_column(f"'{PLACE_OF_CHANNEL}'", Text()))
"""Makes the SQL that notifies the readers of events, the same for every schema."""

_MAX_PINNED = 4
_FRESH = 1.0
"""Seconds after which a pinned connection that nobody used goes back to the pool."""


_pools: WeakSet["SharedPool"] = WeakSet()
_inherited: list[Any] = []


def _after_fork_in_child() -> None:
    """Leave the connections to the parent: references keep them from being closed in the child."""
    for pool in list(_pools):
        _inherited.append((pool, pool.engine.pool))
        pool.engine.dispose(close=False)
    _pools.clear()


in_each_child(_after_fork_in_child)


class SharedPool:
    """The connections of a server to one database, and the connections that recorders gave back, whatever their schema."""

    def __init__(self, psycopg: Any, dialect: "Dialect") -> None:
        """`dialect`: that of no schema, whose connections the stores share."""
        self.psycopg, self.dialect = psycopg, dialect
        self.connections = cast("PostgresConnections", dialect.connections)
        self.engine = self.connections.engine
        self._listeners: dict[str | None, SharedListener] = {}
        self._listening = threading.Lock()
        self._pinned: deque[tuple[float, Pinned]] = deque()
        _pools.add(self)

    def of_schema(self, schema: str) -> "SchemaConnections":
        return SchemaConnections(self, schema)

    def listener(self, listen_url: str | None) -> SharedListener:
        with self._listening:
            found = self._listeners.get(listen_url)
            if found is None:
                url = self.engine.url if listen_url is None else server_url(listen_url)
                _, parameters = self.engine.dialect.create_connect_args(url)  # several hosts are joined as libpq expects
                found = self._listeners[listen_url] = SharedListener({**connection_timeouts(url), **parameters})
            return found

    def take_pinned(self) -> Pinned | None:
        """Take the connection that a recorder used last; None if there is none. Others that were not used are let go."""
        while True:
            try:
                _, pinned = self._pinned.pop()
            except IndexError:
                return None
            if self.connections.alive(pinned.pooled.driver_connection):
                break
            pinned.pooled.invalidate()
        while self._pinned and time.monotonic() - self._pinned[0][0] > _FRESH:
            try:
                _, stale = self._pinned.popleft()
            except IndexError:  # another thread was faster
                break
            self._let_go(stale)
        return pinned

    def give_back_pinned(self, pinned: Pinned) -> None:
        """Keep the connection for the next recorder, or return it to the pool if enough are kept."""
        if len(self._pinned) < _MAX_PINNED:
            self._pinned.append((time.monotonic(), pinned))
        else:
            self._let_go(pinned)

    def prepare_anew(self, driver: Any) -> None:
        """Free the prepared statements of an idle connection where those of other schemas leave no room for new ones."""
        names = self.connections.names(driver)
        if names.worn:
            driver.pgconn.exec_(b"DEALLOCATE ALL")
            names.forget()

    def close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        while self._pinned:
            self._let_go(self._pinned.pop()[1])
        self.connections.dispose()
        self.engine.dispose()  # also of what no store has asked for, such as the list of tenants

    def _let_go(self, pinned: Pinned) -> None:
        if not self.connections.usable(pinned.pooled.driver_connection):
            pinned.pooled.invalidate()
        elif pinned.restore is not None:
            pinned.restore()
        pinned.pooled.close()


class SchemaConnections(PostgresConnections):
    """The connections of one schema's store. The engine, the caches and what is known of each connection are the pool's."""

    of_schema = True

    def __init__(self, pool: SharedPool, schema: str) -> None:
        vars(self).update(vars(pool.connections))
        vars(self).pop("_made", None)
        self._pool, self._schema = pool, schema
        self._map = {SCHEMA_TOKEN: schema}

    @property
    def engines(self) -> list[Engine]:
        return self._pool.connections.engines

    def lend(self, *, write: bool) -> Lent:
        connection, driver = self._pool.connections.lend(write=write)
        self._pool.prepare_anew(driver)
        return self._mapped(connection), driver

    def connect_first(self, *, write: bool) -> Connection:
        return self.lend(write=write)[0]

    def ready_to_read(self) -> Lent | None:
        ready = super().ready_to_read()
        return None if ready is None else (self._mapped(ready[0]), ready[1])

    def _mapped(self, connection: Connection) -> Connection:
        return connection.execution_options(schema_translate_map=self._map)

    def take_pinned(self) -> Pinned | None:
        return self._pool.take_pinned()

    def give_back_pinned(self, pinned: Pinned) -> bool:
        driver: Any = pinned.pooled.driver_connection
        if self._pool.connections.disposed or not self.usable(driver) or self._in_transaction(driver):
            return False
        self._pool.give_back_pinned(pinned)
        return True

    def dispose(self) -> None:
        """Close no connection: those that the store released are others' now."""
        self.disposed = True

    def release(self, connection: Connection, *, write: bool, driver: Any = None) -> None:
        self._pool.connections.release(connection, write=write, driver=driver)


class SharedEventLog(PostgresEventLog):
    """The event log of one schema, whose readers wait at the listener that all schemas share."""

    def __init__(self, pool: SharedPool, schema: str) -> None:
        super().__init__(pool.engine, schema, pooled=cast("PostgresEventLog", pool.dialect.event_log).pooled)
        self._pool = pool
        self.channel = channel(schema)
        self.notify = _NOTIFY

    def wakeups(self, listen_url: str | None, topic: str = EVENTS) -> Wakeups:
        if listen_url is None and self.pooled:
            return super().wakeups(listen_url, topic)
        return Heard(self._pool.listener(listen_url), channel(self._schema, topic))
