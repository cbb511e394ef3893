"""SQLite: WAL, one writer, pragmas on every connection, BEGIN IMMEDIATE for every write."""

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, StaticPool, Table
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from persist.db.concurrency.writer_lock import Cancelled, Waiting
from persist.db.connections.connection_cache import ConnectionCache
from persist.db.connections.host_connections import commits_by_itself
from persist.db.dialects.database_files import IN_USE, warn_of_network
from persist.db.dialects.interface import AUTOCOMMIT, Dialect
from persist.db.dialects.sqlite.connector import SqliteConnector
from persist.db.dialects.sqlite.errors import error_name, meaning
from persist.db.dialects.sqlite.event_guards import FUNCTION
from persist.db.dialects.sqlite.rereading import REREADER
from persist.db.dialects.sqlite.wal import never_waiting
from persist.db.dialects.wakeups import Wakeups
from persist.db.schema.base import VERSION_TABLE
from persist.db.values.command_words import command_word
from persist.errors import InvalidValue, PersistError, StoreBusy
from persist.lazy_imports import lazy_modules

if TYPE_CHECKING:
    from persist.settings import Settings

with lazy_modules(globals()):
    from persist.db.dialects.sqlite import wakeups as sqlite_wakeups

log = logging.getLogger("persist")

_SLICE_MS = 100
_FIVE_ATTEMPTS = 2.0
"""Seconds that five attempts to take the write lock need with the pauses between them, even with a short busy_timeout."""
_IDLE_SECONDS = 3600.0


class SqliteDialect(Dialect):
    """The dialect of a SQLite file, or of `:memory:` with a single connection."""

    name = "sqlite"
    rereader = REREADER
    schema = None
    one_writer = True
    one_file = True
    kind = SQLiteDialect_pysqlite

    def __init__(
        self,
        path: Path | None,
        settings: "Settings",
        *,
        read_only: bool = False,
        page_size: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.in_memory = path is None
        self.autocommits_single_statement = path is not None
        self.patience = max(settings.busy_timeout_ms / 1000, _FIVE_ATTEMPTS)
        self._settings = settings
        self._owned = engine is None
        self._unkept: set[int] = set()
        self._connector = SqliteConnector(
            path, settings, self._say_whether_logged, read_only=read_only, page_size=page_size, engine=engine
        )
        IN_USE.add(self)
        if path is not None and self._owned:
            warn_of_network(path)
            self.idle = {write: ConnectionCache(1 if write else 5, _IDLE_SECONDS, self.give_back) for write in (True, False)}

    @classmethod
    def of_engine(cls, engine: Engine, settings: "Settings") -> "SqliteDialect":
        """Create the dialect for a caller's engine; log a warning for wrong pragmas, but change none."""
        self = cls.lent(engine, settings)
        with self.writer.connect() as connection:
            if not connection.exec_driver_sql("PRAGMA foreign_keys").scalar():
                log.warning("foreign_keys is OFF on this engine: deleting a session will leave its messages behind")
            if not self.in_memory and connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
                log.warning("journal_mode is not WAL on this engine: readers and the writer will block each other")
            connection.rollback()
        return self

    @classmethod
    def lent(cls, engine: Engine, settings: "Settings") -> "SqliteDialect":
        """Create the dialect for a caller's engine without checking its pragmas."""
        name = engine.url.database
        in_memory = name in (None, "", ":memory:") or isinstance(engine.pool, StaticPool)
        return cls(None if in_memory or name is None else Path(name), settings, engine=engine)

    def _make_engine(self, *, write: bool) -> Engine:
        return self.writer if self.in_memory and not write else self._connector.engine(write=write)

    def first(self) -> Any:
        return self._connector.first()

    def settle(self, driver: Any) -> None:
        self._connector.settle(driver)

    def dispose(self) -> None:
        IN_USE.discard(self)
        super().dispose()
        self._connector.close()

    def _say_whether_logged(self, connection: Any) -> Any:
        """Define the SQL function that tells guard triggers whether the connection records events.

        The returned value must be awaited if the connection is asynchronous.
        """
        key = id(connection)
        return connection.create_function(FUNCTION, 0, lambda: self.keeps_log and key not in self._unkept)

    def begin(self, connection: Connection, *, write: bool, waiting: Waiting | None = None) -> Any:
        if not self._owned and not connection.in_transaction():
            connection.begin()
        driver = _driver(connection)
        if self.keeps_log and not self._owned:
            self._say_whether_logged(driver)
        if self.in_memory:
            driver.execute(f"PRAGMA query_only={'OFF' if write else 'ON'}")
        if not driver.in_transaction:
            if write:
                self._begin_immediate(driver, waiting or Waiting())
            else:
                driver.execute("BEGIN")
        elif write:
            self._lock(driver)
        return driver

    def _begin_immediate(self, driver: Any, waiting: Waiting) -> None:
        """BEGIN IMMEDIATE within busy_timeout, less the time already spent waiting.

        A cancellable wait is split into slices, since interrupt() does not end a busy wait.
        """
        timeout, now, cancelled = self._settings.busy_timeout_ms, time.monotonic(), waiting.cancelled
        waited = 0 if waiting.since is None else int(1000 * (now - waiting.since))
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

    def _lock(self, driver: Any) -> None:
        """Take the write lock with an UPDATE of no row: the host's engine may have begun a deferred transaction."""
        try:
            driver.execute(f"UPDATE {VERSION_TABLE} SET version_num = version_num WHERE 0")
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):  # a transaction that creates the tables takes the lock itself
                raise

    def join(self, connection: Connection) -> None:
        if commits_by_itself(connection):
            raise InvalidValue("connection", AUTOCOMMIT)
        if not connection.in_transaction():
            connection.begin()  # the host's engine decides how to begin
        if self.keeps_log:
            theirs: Any = connection.connection.dbapi_connection
            getattr(theirs, "run_async", lambda say: say(theirs))(self._say_whether_logged)  # run_async exists on async drivers
        cursor = connection.connection.cursor()
        try:
            if self.in_transaction(connection.connection.driver_connection):
                self._lock(cursor)
            else:  # outside of a transaction, the release of a savepoint would commit
                cursor.execute("BEGIN IMMEDIATE")
        finally:
            cursor.close()

    def begin_pinned(self, runner: Any) -> None:
        if self.keeps_log and not self._owned:
            self._say_whether_logged(runner)
        if self.in_memory:
            runner.execute("PRAGMA query_only=OFF")
        runner.execute("BEGIN IMMEDIATE")

    def prepare_pinned(self, driver: Any) -> Callable[[], None]:
        before = driver.isolation_level

        def restore() -> None:
            driver.isolation_level = before

        driver.isolation_level = None
        return restore

    def prepare_inline(self, driver: Any) -> Callable[[], None] | None:
        return never_waiting(driver, self._settings) if self._owned and not self.read_only else None

    def interrupt(self, driver: Any) -> None:
        driver.interrupt()

    def usable(self, driver: Any) -> bool:
        return True

    def in_transaction(self, driver: Any) -> bool:
        return bool(driver.in_transaction)

    def translate_driver_error(self, error: BaseException) -> PersistError | None:
        if not isinstance(error, sqlite3.Error):
            return None
        return meaning(error, str(self.path or ":memory:"), self._settings.busy_timeout_ms / 1000, read_only=self.read_only)

    def retryable(self, error: PersistError) -> bool:
        return isinstance(error, StoreBusy)

    def to_plain_json(self, text: str) -> str:
        return text

    def tables(self, connection: Connection) -> set[str]:
        rows = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {name for (name,) in rows if not name.startswith("sqlite_")}

    @contextmanager
    def leave_log_to_database(self, driver: Any) -> Iterator[None]:
        self._unkept.add(id(driver))
        try:
            yield
        finally:
            self._unkept.discard(id(driver))

    def count_on(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Do nothing: SQLite generates the number after the highest one in the table."""

    def wakeups(self, listen_url: str | None) -> Wakeups:
        return sqlite_wakeups.FileWakeups(self.path) if self.path is not None else Wakeups()

    def upgrade_command(self) -> str:
        return f"persist upgrade --url {command_word(f'sqlite:///{self.path}')}"

    def reading_cursor(self, driver: Any) -> Any:
        return driver.cursor()


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection
