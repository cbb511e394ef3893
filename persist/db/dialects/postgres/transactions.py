"""Transactions on Postgres: READ COMMITTED writes and snapshot reads, whose BEGIN travels with the first statement."""

from itertools import count
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, event

from persist.db.concurrency.writer_lock import Waiting
from persist.db.dialects.event_log import EventLogSupport
from persist.db.dialects.postgres.connections import PostgresConnections
from persist.db.dialects.postgres.event_guards import NUMBERS, SETTING
from persist.db.dialects.postgres.raw_writes import MARK, MARK_JOINED, UNMARK_JOINED
from persist.db.dialects.postgres.timeouts import interrupt
from persist.db.dialects.transactions import AUTOCOMMIT, Transactions
from persist.db.expressions.locking import LOCK_TIMEOUT
from persist.errors import InvalidValue
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.dialects.postgres import pipelining
else:
    pipelining = lazy_module("persist.db.dialects.postgres.pipelining")

_cursors = count()
_PIPELINED = "persist"
"""Where the `info` of SQLAlchemy's connection has its PipelinedConnection."""


class PostgresTransactions(Transactions):
    """The transactions of one store on a Postgres database."""

    def __init__(self, psycopg: Any, connections: PostgresConnections, event_log: EventLogSupport) -> None:
        self._psycopg, self._connections, self._event_log = psycopg, connections, event_log
        if connections.owned and not connections.of_schema:
            event.listen(connections.engine, "do_execute", _begin_before)
            event.listen(connections.engine, "do_executemany", _begin_before)

    def begin(self, connection: Connection, *, write: bool, driver: Any = None, waiting: Waiting | None = None) -> Any:
        driver = driver or connection.connection.driver_connection
        connections = self._connections
        if not connections.owned:
            if not connection.in_transaction():
                connection.begin()
            if write:
                driver.execute(self._settings, prepare=False)
            return driver

        def renewed() -> tuple[Any, Any]:
            connection.invalidate()
            new: Any = connection.connection.driver_connection
            connection.info[_PIPELINED] = pipelined
            return new, connections.names(new)

        pipelined = pipelining.PipelinedConnection(driver, connections.names(driver))
        pipelined.begin(write=write, settings=self._settings if write else None, renew=renewed)
        connection.info[_PIPELINED] = pipelined
        return pipelined

    @property
    def _settings(self) -> bytes:
        """The SELECT that limits the wait for row locks, marks the writer, and says that events are recorded.

        A pooler's next client must not find these settings, so they are never made for the session.
        """
        logged = f", set_config('{SETTING}', 'on', true), set_config('{NUMBERS}', 'on', true)" if self._event_log.kept else ""
        return f"SELECT set_config('lock_timeout', '{LOCK_TIMEOUT}', true), {MARK}{logged}".encode()

    def end_read(self, connection: Connection | None, driver: Any) -> None:
        if connection is not None and (driver is None or connection.get_transaction() is not None):
            connection.commit()
        elif driver.begins:
            driver.commit()
        else:
            self._connections.deferred_commits.send(driver.driver)

    def ends_at_once(self, connection: Connection, driver: Any) -> bool:
        return driver is not None and self._connections.has_room_for_reader and connection.get_transaction() is None

    def join(self, connection: Connection) -> None:
        theirs: Any = connection.connection.dbapi_connection  # any driver that SQLAlchemy supports, not only psycopg
        if theirs.autocommit:
            raise InvalidValue("connection", AUTOCOMMIT)
        if not connection.in_transaction():
            connection.begin()
        if self._event_log.kept:
            connection.exec_driver_sql(f"SET LOCAL {SETTING} = 'on'")
            connection.exec_driver_sql(f"SET LOCAL {NUMBERS} = 'on'")

    def mark_joined(self, connection: Connection, *, marked: bool) -> None:
        connection.exec_driver_sql(MARK_JOINED if marked else UNMARK_JOINED)

    def runner(self, driver: Any) -> Any:
        return pipelining.PipelinedConnection(driver, self._connections.names(driver))

    def begin_pinned(self, runner: Any) -> None:
        runner.begin(write=True, settings=self._settings)

    def driver_of(self, connection: Connection) -> Any:
        pipelined = _pipelined(connection)
        return connection.connection.driver_connection if pipelined is None else pipelined.start()

    def reading_cursor(self, driver: Any) -> Any:
        return driver.cursor(f"persist_{next(_cursors)}", binary=True)  # binary: bytea in text form is twice as long

    def interrupt(self, driver: Any) -> None:
        interrupt(self._psycopg, driver.driver)


def _begin_before(cursor: Any, statement: Any, parameters: Any, context: Any) -> None:
    """Send the BEGIN that waits for a statement, before SQLAlchemy executes one."""
    pipelined = _pipelined(context.root_connection)
    if pipelined is not None:
        pipelined.start()


def _pipelined(connection: Connection) -> "pipelining.PipelinedConnection | None":
    try:
        found: pipelining.PipelinedConnection | None = connection.info.get(_PIPELINED)
    except NotImplementedError:  # SQLAlchemy looks at a new connection, which has no `info` yet
        return None
    return found
