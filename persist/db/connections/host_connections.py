"""Checks of connections and engines that a host application passes to a store, with advice for objects of other types."""

from typing import Any

from sqlalchemy import Connection, Engine

from persist.db.sqlalchemy_private import in_greenlet, isolation_on_connect
from persist.errors import InvalidValue, UnsupportedEngine

_INSTEAD = {
    "AsyncConnection": "it is asynchronous: join it with an AsyncStore, or join what its run_sync gives",
    "AsyncSession": "it is a session: join `await session.connection()`",
    "async_scoped_session": "it is a session: join `await session.connection()`",
    "AsyncEngine": "it is an engine: join a connection, `async with engine.begin() as connection`",
    "Session": "it is a session: join `session.connection()`",
    "scoped_session": "it is a session: join `session.connection()`",
    "Engine": "it is an engine: join a connection, `with engine.begin() as connection`",
}
_DRIVERS = {"pysqlite", "aiosqlite", "psycopg", "asyncpg"}

ONLY_INSIDE_RUN_SYNC = (
    "it belongs to an asynchronous engine: use it inside run_sync, or join the AsyncConnection with an AsyncStore."
)


def check_connection(given: object, name: str, *, asynchronous: bool) -> Any:
    """The given object if it is an open connection that the store can join; else InvalidValue.

    `name`: the dialect of the store. `asynchronous`: the store is an AsyncStore, which takes an AsyncConnection.
    """
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
    """The given object if it is a synchronous engine.

    Raises UnsupportedEngine for an asynchronous one, InvalidValue for other types.
    """
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
