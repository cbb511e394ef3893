"""Transactions on SQLite: BEGIN IMMEDIATE for every write, and the write lock inside of a host's own transaction."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table

from persist.db.concurrency.writer_lock import SHORT, Cancelled, Waiting
from persist.db.connections.host_connections import commits_by_itself
from persist.db.dialects.sqlite.connections import SqliteConnections
from persist.db.dialects.sqlite.errors import error_name
from persist.db.dialects.sqlite.event_log import SqliteEventLog
from persist.db.dialects.sqlite.raw_writes import MARK_JOINED, UNMARK_JOINED, mark_lent, unmark_lent
from persist.db.dialects.transactions import AUTOCOMMIT, Transactions
from persist.db.schema.base import VERSION_TABLE
from persist.errors import InvalidValue

if TYPE_CHECKING:
    from persist.settings import Settings

_SLICE_MS = int(1000 * SHORT)


class SqliteTransactions(Transactions):
    """The transactions of one store on a SQLite file, or on the single connection to `:memory:`."""

    def __init__(self, connections: SqliteConnections, event_log: SqliteEventLog, settings: "Settings") -> None:
        self._connections, self._event_log, self._settings = connections, event_log, settings
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
        elif waiting is None:
            driver.execute("BEGIN IMMEDIATE")
        else:
            self._begin_immediate(driver, waiting)
        return driver

    def _prepare_lent(self, connection: Connection, driver: Any, *, write: bool) -> None:
        if self._event_log.kept:
            self._event_log.say_whether_kept(driver)
        if write:
            mark_lent(driver, connection.info)
            self._references.keep(driver, connection.info, driver, connection.engine.pool)

    def _begin_immediate(self, driver: Any, waiting: Waiting) -> None:
        """BEGIN IMMEDIATE within busy_timeout, less the time already spent waiting.

        A cancellable wait is split into slices, since interrupt() does not end a busy wait.
        """
        timeout, now, cancelled = self._settings.busy_timeout_ms, time.monotonic(), waiting.cancelled
        waited = int(1000 * (now - waiting.since))
        if cancelled is None and (waited < _SLICE_MS or not self._owned):
            driver.execute("BEGIN IMMEDIATE")
            return
        left = min(timeout, max(_SLICE_MS, timeout - waited))  # wait for one slice at least, for locks that are held briefly
        deadline = now + left / 1000
        driver.execute(f"PRAGMA busy_timeout={left if cancelled is None else min(_SLICE_MS, left)}")
        try:
            while True:
                if cancelled is not None and cancelled():
                    raise Cancelled
                try:
                    driver.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    if not error_name(error).startswith("SQLITE_BUSY") or time.monotonic() >= deadline:
                        raise
        finally:
            driver.execute(f"PRAGMA busy_timeout={timeout}")

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
