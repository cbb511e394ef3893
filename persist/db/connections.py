"""Connections that a store keeps, those that a host passes, and how many transactions a pool has connections for."""

import time
from collections.abc import Callable
from typing import Any, cast

from sqlalchemy import AssertionPool, Connection, Engine, Pool, QueuePool, SingletonThreadPool, StaticPool
from sqlalchemy.exc import InvalidRequestError

from persist.db.sqlalchemy_private import in_greenlet, isolation_on_connect, max_connections
from persist.errors import InvalidValue, UnsupportedEngine

# A checkout costs several times as much as an empty transaction; on a server it also takes a round trip to test the connection
# (pre-ping). A connection that was used a moment ago needs no test. Older ones are returned to the pool, which tests them.

Lent = tuple[Connection, Any]
"""A connection that a transaction has, and the driver's connection below it."""


class ConnectionCache:
    """Holds up to `maximum` connections for `seconds` each. Thread-safe: list.append and list.pop are atomic."""

    def __init__(self, maximum: int, seconds: float, return_to_pool: Callable[[Connection], None]) -> None:
        self._maximum, self._seconds, self._return_to_pool = maximum, seconds, return_to_pool
        self._connections: list[tuple[float, Connection, Any]] = []

    def take(self) -> Lent | None:
        """Remove and return the most recently used connection; None if none is fresh. Stale ones are returned to their pool."""
        while True:
            try:
                since, connection, driver = self._connections.pop()
            except IndexError:
                return None
            if time.monotonic() - since < self._seconds:
                return connection, driver
            self._return_to_pool(connection)

    def take_if(self, ready: Callable[[Any], bool]) -> Lent | None:
        """Remove and return the most recently used connection if it is fresh and `ready`; else leave it and return None."""
        try:
            since, connection, driver = self._connections.pop()
        except IndexError:
            return None
        if time.monotonic() - since < self._seconds and ready(driver):
            return connection, driver
        self._connections.append((since, connection, driver))
        return None

    @property
    def has_room(self) -> bool:
        return len(self._connections) < self._maximum

    @property
    def cached(self) -> list[Any]:
        return [driver for _, _, driver in self._connections]

    def put(self, connection: Connection, driver: Any) -> None:
        if len(self._connections) < self._maximum:
            self._connections.append((time.monotonic(), connection, driver))
        else:
            self._return_to_pool(connection)

    def close(self) -> None:
        while self._connections:
            self._return_to_pool(self._connections.pop()[1])


_INSTEAD = {
    "AsyncConnection": "it is asynchronous: join it with an AsyncStore, or join what its run_sync gives",
    "AsyncSession": "it is asynchronous: join it with an AsyncStore",
    "sessionmaker": "it makes sessions: join one of them, `with maker() as session`",
    "async_sessionmaker": "it makes sessions: join one of them, `async with maker() as session`",
    "AsyncEngine": "it is an engine: join a connection, `async with engine.begin() as connection`",
    "Engine": "it is an engine: join a connection, `with engine.begin() as connection`",
}
_DRIVERS = {"pysqlite", "aiosqlite", "psycopg", "asyncpg"}

ONLY_INSIDE_RUN_SYNC = (
    "it belongs to an asynchronous engine: use it inside run_sync, or join the AsyncConnection with an AsyncStore."
)


def session_in(given: object, *, asynchronous: bool) -> Any:
    """The session of SQLAlchemy's ORM that was given in the place of a connection, itself or by its registry, else None."""
    names = {kind.__name__ for kind in type(given).__mro__}
    if names & {"scoped_session", "async_scoped_session"}:
        return session_in(cast("Callable[[], object]", given)(), asynchronous=asynchronous)
    if asynchronous and "Session" in names:
        raise InvalidValue("connection", "it is synchronous: join the AsyncSession itself, or use a Store.")
    return given if ("AsyncSession" if asynchronous else "Session") in names else None


def connection_of(session: Any) -> Connection:
    """The connection of a session's transaction, which begins if it has not. Raises InvalidValue where it has several or none."""
    try:
        connection: Connection = session.connection()
    except InvalidRequestError as error:
        raise InvalidValue("connection", f"the session gives none; join one of session.connection(…): {error}") from error
    return connection


def check_connection(given: object, name: str, *, asynchronous: bool) -> Any:
    """The given object if it is an open connection that the store of dialect `name` can join; else InvalidValue."""
    names = [kind.__name__ for kind in type(given).__mro__]
    if asynchronous and isinstance(given, Connection):
        raise InvalidValue("connection", "it is synchronous: join the AsyncConnection itself, or use a Store.")
    if not isinstance(given, Connection) and not (asynchronous and "AsyncConnection" in names):
        advice = next((_INSTEAD[kind] for kind in names if kind in _INSTEAD), None)
        raise InvalidValue("connection", f"{advice or f'expected one of SQLAlchemy, got {type(given).__name__}'}.")
    connection: Any = given
    if (asynchronous and connection.sync_connection is None) or connection.closed:
        raise InvalidValue("connection", "it is not open.")
    if connection.dialect.name != name:
        raise InvalidValue("connection", "it belongs to another kind of database than this store.")
    if connection.dialect.driver not in _DRIVERS:
        raise InvalidValue(
            "connection", f"its driver is {connection.dialect.driver}, expected one of {', '.join(sorted(_DRIVERS))}."
        )
    return connection


def check_engine(given: object) -> Engine:
    """The given synchronous engine. Raises UnsupportedEngine for an asynchronous one, InvalidValue for other types."""
    engine: Any = getattr(given, "sync_engine", given)
    if not isinstance(engine, Engine):
        raise InvalidValue("engine", f"expected an engine of SQLAlchemy's create_engine, got {type(given).__name__}.")
    if engine.dialect.is_async:
        raise UnsupportedEngine(
            f"an asynchronous engine ({engine.dialect.name}+{engine.dialect.driver})",
            "a store works on a synchronous one, AsyncStore too, which has threads for that: open the store by its URL, or over"
            " an engine of create_engine. Verbs in a transaction of this engine: AsyncStore.join(connection);"
            " tables: await connection.run_sync(persist.upgrade).",
        )
    return engine


def check_reachable(connection: Connection) -> None:
    """Raise InvalidValue for an asynchronous engine's connection outside of run_sync, where a statement would fail halfway."""
    if connection.dialect.is_async and not in_greenlet():
        raise InvalidValue("connection", ONLY_INSIDE_RUN_SYNC)


def commits_by_itself(connection: Connection) -> bool:
    """Whether the connection, or its engine, has the isolation level AUTOCOMMIT."""
    level = connection.get_execution_options().get("isolation_level")
    return (level or isolation_on_connect(connection)) == "AUTOCOMMIT"


MAX = 25
"""The maximum number of concurrent transactions of a kind (writing or reading), for which persist's own pools are sized."""


def width(pool: Pool) -> int:
    """How many connections a pool hands out at the same time, counted up to 51, the most that a store uses."""
    if isinstance(pool, StaticPool | AssertionPool):
        return 1
    limit = max_connections(pool) if isinstance(pool, QueuePool) else None
    return 2 * MAX + 1 if limit is None else min(2 * MAX + 1, limit)


def check_for_recorders(pool: Pool) -> None:
    """Raises InvalidValue where a recorder would be given the very connection that a transaction is on, and commit or end it."""
    if isinstance(pool, StaticPool | AssertionPool | SingletonThreadPool):
        raise InvalidValue("engine", f"its {type(pool).__name__} has no connection for a recorder alone, as a QueuePool has.")


def shares(connections: int, *, one_writer: bool) -> tuple[int, int]:
    """The numbers of concurrent writers and readers: a writer can open a reader, and of three one is for recorders."""
    free = connections - 1 if connections > 2 else connections
    writers = 1 if one_writer else max(1, min(MAX, free // 2))
    return writers, max(1, min(MAX, free - writers))
