"""Transactions on SQLite: BEGIN IMMEDIATE for every write, and the write lock inside of a host's own transaction."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table

from persist.db.concurrency.writer_lock import Waiting
from persist.db.connections.host_connections import commits_by_itself
from persist.db.dialects.sqlite import write_lock
from persist.db.dialects.sqlite.connections import SqliteConnections
from persist.db.dialects.sqlite.event_log import SqliteEventLog
from persist.db.dialects.sqlite.raw_writes import MARK_JOINED, UNMARK_JOINED, mark_lent, unmark_lent
from persist.db.dialects.transactions import AUTOCOMMIT, Transactions
from persist.db.schema.base import VERSION_TABLE
from persist.errors import InvalidValue

if TYPE_CHECKING:
    from persist.settings import Settings


class SqliteTransactions(Transactions):
    """The transactions of one store on a SQLite file, or on the single connection to `:memory:`."""

    def __init__(self, connections: SqliteConnections, event_log: SqliteEventLog, settings: "Settings") -> None:
        self._connections, self._event_log = connections, event_log
        self._timeout = settings.busy_timeout_ms / 1000
        self._owned, self._in_memory = connections.owned, connections.path is None
        self._references = connections.references

    def begin(self, connection: Connection, *, write: bool, driver: Any = None, waiting: Waiting | None = None) -> Any:
        if not self._owned and not connection.in_transaction():
            connection.begin()
        driver = driver or connection.connection.driver_connection
        if self._in_memory:
            driver.execute(f"PRAGMA query_only={'OFF' if write else 'ON'}")
        if not self._owned:
            self._prepare_lent(connection, driver, write=write)
        if driver.in_transaction:
            if write:
                _lock(driver)
        elif not write:
            driver.execute("BEGIN")
        elif self._owned:
            write_lock.begin(driver, self._timeout, waiting)
        elif waiting is None or waiting.cancelled is None:  # a host's engine says how long it waits, and how
            driver.execute("BEGIN IMMEDIATE")
        else:
            write_lock.begin_patiently(driver, waiting)
        return driver

    def _prepare_lent(self, connection: Connection, driver: Any, *, write: bool) -> None:
        if self._event_log.kept:
            self._event_log.say_whether_kept(driver)
        if write:
            mark_lent(driver, connection.info)
            self._references.keep(driver, connection.info, driver, connection.engine.pool)

    def end(self, connection: Connection | None, driver: Any, *, commit: bool) -> None:
        lent = None if self._owned or connection is None else connection.connection.driver_connection
        try:
            super().end(connection, driver, commit=commit)
        finally:
            if lent is not None:
                unmark_lent(lent)

    def end_read(self, connection: Connection | None, driver: Any) -> None:
        self.end(connection, driver, commit=True)

    def ends_at_once(self, connection: Connection, driver: Any) -> bool:
        return driver is not None and self._connections.has_room_for_reader

    def join(self, connection: Connection) -> None:
        if commits_by_itself(connection):
            raise InvalidValue("connection", AUTOCOMMIT)
        if not connection.in_transaction():
            connection.begin()  # the host's engine decides how to begin
        if self._event_log.kept:
            theirs: Any = connection.connection.dbapi_connection
            say = self._event_log.say_whether_kept
            getattr(theirs, "run_async", lambda say: say(theirs))(say)  # run_async exists on async drivers
        cursor = connection.connection.cursor()
        driver: Any = connection.connection.driver_connection
        self._references.keep(connection.connection, connection.info, driver, connection.engine.pool)
        try:
            if driver.in_transaction:
                _lock(cursor)
            else:  # outside of a transaction, the release of a savepoint would commit
                cursor.execute("BEGIN IMMEDIATE")
        finally:
            cursor.close()

    def keep_references(self, tables: Callable[[], Sequence[Table]]) -> None:
        self._references.tables = tables

    def mark_joined(self, connection: Connection, *, marked: bool) -> None:
        connection.exec_driver_sql(MARK_JOINED if marked else UNMARK_JOINED)

    def runner(self, driver: Any) -> Any:
        return driver

    def begin_pinned(self, runner: Any) -> None:
        if not self._owned and self._event_log.kept:
            self._event_log.say_whether_kept(runner)
        if self._in_memory:
            runner.execute("PRAGMA query_only=OFF")
        if self._owned:
            write_lock.begin(runner, self._timeout)
        else:
            runner.execute("BEGIN IMMEDIATE")

    def driver_of(self, connection: Connection) -> Any:
        return connection.connection.driver_connection

    def reading_cursor(self, driver: Any) -> Any:
        return driver.cursor()

    def interrupt(self, driver: Any) -> None:
        driver.interrupt()


def _lock(driver: Any) -> None:
    """Take the write lock with an UPDATE of no row: the host's engine may have begun a deferred transaction."""
    try:
        driver.execute(f"UPDATE {VERSION_TABLE} SET version_num = version_num WHERE 0")
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):  # a transaction that creates the tables takes the lock itself
            raise
