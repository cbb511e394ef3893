"""The interface of a dialect's connections: engines, cached connections, and how a connection returns after its transaction."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, QueuePool
from sqlalchemy.pool import PoolProxiedConnection

from persist.db.connections import ConnectionCache, Lent
from persist.db.values.clock import Clock, system_clock

_NAME = "persist"
QUIET: dict[str, Any] = {"hide_parameters": True, "logging_name": _NAME}
"""Arguments of create_engine."""


logging.getLogger(f"sqlalchemy.engine.Engine.{_NAME}").addFilter(lambda record: record.levelno > logging.DEBUG)


class Pinned(NamedTuple):
    """A connection that is checked out for recorders, and the function that restores it for the pool."""

    pooled: PoolProxiedConnection
    restore: Callable[[], None] | None


class Connections(ABC):
    """The connections of one store to its database."""

    disposed: bool = False
    """Whether the store is closed: a connection released after that is closed instead of cached."""

    idle: dict[bool, ConnectionCache] | None = None
    """Cached connections for the next writer (True) and reader (False); None where every transaction uses the pool."""

    @property
    def writer(self) -> Engine:
        return self._engine_for(write=True)

    @property
    def reader(self) -> Engine:
        return self._engine_for(write=False)

    def _engine_for(self, *, write: bool) -> Engine:
        made: dict[bool, Engine] = vars(self).setdefault("_made", {})  # two threads at the same time both get the first engine
        return made.get(write) or made.setdefault(write, self._make_engine(write=write))

    @abstractmethod
    def _make_engine(self, *, write: bool) -> Engine:
        """Create the engine for write transactions or for snapshots; both may be one engine."""

    @property
    def engines(self) -> list[Engine]:
        return list({id(engine): engine for engine in vars(self).get("_made", {}).values()}.values())

    def open_first(self, fill: Callable[[Any], object] | None) -> Any:
        """Open the first driver connection before an engine exists, or None. `fill` makes the tables of a missing file."""
        return None

    clock: Clock = staticmethod(system_clock)
    """The clock of a store that was given none: the server's, where there is one."""

    def check_server(self, driver: Any) -> None:  # noqa: B027  # a file has no server
        """Raise UnsupportedEngine if a first connection reaches a server that persist does not run on."""

    def prepare_database(self, driver: Any) -> None:  # noqa: B027  # a server is set up by who runs it
        """Set up the database for use; called once, after the schema is verified or upgraded and before any other write."""

    def connect_first(self, *, write: bool) -> Connection:
        return (self.writer if write else self.reader).connect()

    @abstractmethod
    def lend(self, *, write: bool) -> Lent:
        """Return a connection for one write transaction or one snapshot, cached or from the pool, and the driver's."""

    def ready_to_read(self) -> Lent | None:
        """Return a cached connection on which a snapshot can begin without blocking, or None."""
        return None if self.idle is None else self.idle[False].take_if(self._can_begin_now)

    def _can_begin_now(self, driver: Any) -> bool:
        """Whether a transaction can begin on a cached driver connection without blocking."""
        return True

    @property
    def has_room_for_reader(self) -> bool:
        """Whether the connection of a snapshot would be cached, so that its release does not block."""
        return self.idle is not None and self.idle[False].has_room

    def release(self, connection: Connection, *, write: bool, driver: Any = None) -> None:
        """Cache, return or close a connection. `driver`: the driver's, if SQLAlchemy ran nothing on it since it was lent."""
        begun = False
        if driver is None:
            if connection.closed or connection.invalidated:
                connection.close()
                return
            driver, begun = connection.connection.driver_connection, connection.get_transaction() is not None
        if self.disposed or not self.usable(driver):
            self.discard(connection)
        elif self.idle is None or begun or self._in_transaction(driver):
            connection.close()  # after a failed COMMIT the transaction is still open, though not active
        else:
            self.idle[write].put(connection, driver)

    @abstractmethod
    def _in_transaction(self, driver: Any) -> bool:
        """Whether a driver connection is inside a transaction."""

    def discard(self, connection: Connection) -> None:
        """Close a connection without its pool: a pool would try a rollback and log a traceback, or keep it though disposed of."""
        connection.invalidate()
        connection.close()

    def usable(self, driver: Any) -> bool:
        return True

    def alive(self, driver: Any) -> bool:
        """Whether the database has left an idle connection open, as far as is known without a round trip."""
        return True

    @abstractmethod
    def prepare_pinned(self, driver: Any) -> Callable[[], None]:
        """Set up a driver connection that stays checked out for recorders; return a function that restores it."""

    def take_pinned(self) -> "Pinned | None":
        """A pinned connection that another store on the same server gave back; None where each store has its own."""
        return None

    def give_back_pinned(self, pinned: "Pinned") -> bool:
        """Take a pinned connection after a store's write, for whichever store writes next. False: the store keeps it."""
        return False

    def prepare_inline(self, driver: Any) -> Callable[[], None] | None:
        """Set up a connection that raises instead of waiting, as `prepare_pinned` does; None where every commit has to wait."""
        return None

    def wal_bytes(self) -> int | None:
        """The size of the write-ahead log beside the file; None where there is no such file."""
        return None

    @property
    def lent(self) -> int:
        """How many connections the pools have lent: to open transactions, to recorders, and to the cache for the next ones."""
        pools = {id(engine.pool): engine.pool for engine in self.engines}.values()
        return sum(pool.checkedout() for pool in pools if isinstance(pool, QueuePool))

    def dispose(self) -> None:
        """Close every connection of the store. A connection in use is closed when it is released."""
        self.disposed = True
        for idle in (self.idle or {}).values():
            idle.close()
        for engine in self.engines:
            engine.dispose()

    def abandon(self, pinned: Sequence[Any]) -> None:
        """Drop inherited connections in a forked child, but not their descriptors. `pinned`: None for each that was in use."""
        for engine in self.engines:
            engine.dispose(close=False)
