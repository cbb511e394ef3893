"""What a host may lend a store, a connection or an engine, and what it should give instead of anything else."""

from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.util import concurrency

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
    """The caller's connection to a database of that name, which an AsyncStore wants to be asynchronous; else InvalidValue."""
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
    """A synchronous engine of the caller's. UnsupportedEngine for an asynchronous one, InvalidValue for anything else."""
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
    """InvalidValue for a connection of an asynchronous engine outside of run_sync, before a statement is left halfway."""
    if connection.dialect.is_async and not concurrency.in_greenlet():
        raise InvalidValue("connection", ONLY_INSIDE_RUN_SYNC)


def commits_by_itself(connection: Connection) -> bool:
    """Whether SQLAlchemy was told, for the connection or for its engine, that each statement is to be a transaction."""
    level = connection.get_execution_options().get("isolation_level")
    return (level or getattr(connection.dialect, "_on_connect_isolation_level", None)) == "AUTOCOMMIT"
