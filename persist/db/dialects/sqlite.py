"""SQLite: WAL, one writer, pragmas on every connection, BEGIN IMMEDIATE for every write."""

import logging
import os
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, QueuePool, StaticPool, Table, create_engine

from persist.db.base import SCHEMA_TOKEN, VERSION_TABLE
from persist.db.dialects import guards
from persist.db.dialects.base import Dialect
from persist.db.dialects.files import make_private_file, warn_of_network
from persist.db.dialects.sqlite_connections import connect
from persist.db.dialects.sqlite_errors import error_name, meaning
from persist.db.dialects.sqlite_journal import never_waiting, use_wal
from persist.db.dialects.wakeups import Wakeups
from persist.db.idle import IdleConnections
from persist.db.locks import Cancelled
from persist.errors import (
    NotFound,
    PersistError,
    StoreBusy,
)
from persist.later import later

if TYPE_CHECKING:
    from persist.db.dialects import sqlite_bulk, sqlite_upkeep, sqlite_wakeups, vector_functions
    from persist.settings import Settings
else:
    sqlite_bulk = later("persist.db.dialects.sqlite_bulk")
    sqlite_upkeep = later("persist.db.dialects.sqlite_upkeep")
    sqlite_wakeups = later("persist.db.dialects.sqlite_wakeups")
    vector_functions = later("persist.db.dialects.vector_functions")

log = logging.getLogger("persist")

_SLICE_MS = 100
_IDLE_SECONDS = 3600.0


class SqliteDialect(Dialect):
    """A SQLite file, or `:memory:` with its one connection."""

    name = "sqlite"
    schema = None
    one_writer = True
    one_file = True

    def __init__(self, path: Path | None, settings: "Settings", *, read_only: bool = False, page_size: int | None = None) -> None:
        self.path = path
        self._page_size = page_size
        self.read_only = read_only
        self.in_memory = path is None
        self.autocommit_one = path is not None
        self._settings = settings
        self._memory: sqlite3.Connection | None = None
        self._unkept: set[int] = set()
        self._settled = False
        self._owned = True
        if path is None:
            self.writer = self._engine(self._connect_memory, StaticPool)
        else:
            warn_of_network(path)
            self.writer = self._engine(lambda: self._connect(query_only=read_only), QueuePool, pool_size=2, max_overflow=2)
            self.idle = {True: IdleConnections(1, _IDLE_SECONDS), False: IdleConnections(5, _IDLE_SECONDS)}

    @classmethod
    def of_engine(cls, engine: Engine, settings: "Settings") -> "SqliteDialect":
        """A caller-owned engine: no pragma is set; what it lacks is said once."""
        self = cls.__new__(cls)
        self._settings = settings
        name = engine.url.database
        self.in_memory = name in (None, "", ":memory:") or isinstance(engine.pool, StaticPool)
        self.path = None if self.in_memory or name is None else Path(name)
        self.writer = engine.execution_options(schema_translate_map={SCHEMA_TOKEN: None})
        self._memory = None
        self._unkept = set()
        self._owned = False
        self.autocommit_one = not self.in_memory
        with self.writer.connect() as connection:
            if not connection.exec_driver_sql("PRAGMA foreign_keys").scalar():
                log.warning("foreign_keys is OFF on this engine: deleting a session will leave its messages behind")
            if not self.in_memory and connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
                log.warning("journal_mode is not WAL on this engine: readers and the writer will block each other")
            connection.rollback()
        return self

    def _make_reader(self) -> Engine:
        if not self._owned or self.path is None:
            return self.writer
        return self._engine(lambda: self._connect(query_only=True), QueuePool, pool_size=5, max_overflow=20)

    def _engine(self, creator: Callable[[], sqlite3.Connection], pool: type[Any], **options: Any) -> Engine:
        return create_engine("sqlite://", creator=creator, poolclass=pool, **options).execution_options(
            schema_translate_map={SCHEMA_TOKEN: None}
        )

    def _connect_memory(self) -> sqlite3.Connection:
        self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)
        self._memory.execute("PRAGMA foreign_keys=ON")
        self._say_whether_logged(self._memory)
        return self._memory

    def _connect(self, *, query_only: bool) -> sqlite3.Connection:
        assert self.path is not None
        mode = "ro" if self.read_only else "rw" if self.path.exists() else "rwc"
        if mode == "ro" and not self.path.exists():
            raise NotFound("SQLite file", str(self.path))
        if mode == "rwc":
            make_private_file(self.path)
        uri = f"{Path(os.path.abspath(self.path)).as_uri()}?mode={mode}"
        timeout = self._settings.busy_timeout_ms
        connection = connect(
            self.path, uri, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=timeout / 1000
        )
        try:
            connection.execute(f"PRAGMA busy_timeout={timeout}")
            if mode == "rwc" and self._page_size is not None:
                connection.execute(f"PRAGMA page_size={self._page_size}")
            if self._settled and not self.read_only:
                use_wal(connection, self.path)
            connection.execute(f"PRAGMA synchronous={self._settings.synchronous}")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute(f"PRAGMA wal_autocheckpoint={self._settings.wal_autocheckpoint}")
            if query_only:
                connection.execute("PRAGMA query_only=ON")
            self._say_whether_logged(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _say_whether_logged(self, connection: Any) -> None:
        key = id(connection)
        connection.create_function(guards.FUNCTION, 0, lambda: self.keeps_log and key not in self._unkept)

    def settle(self, connection: Connection) -> None:
        """The file is ours to write: from now on in WAL. One that was refused keeps every byte."""
        self._settled = True
        if self.path is not None and self._owned and not self.read_only:
            use_wal(_driver(connection), self.path)

    def begin(self, connection: Connection, *, write: bool, cancelled: Callable[[], bool] | None = None) -> Any:
        if not self._owned and not connection.in_transaction():
            connection.begin()
        driver = _driver(connection)
        if self.keeps_log and not self._owned:
            self._say_whether_logged(driver)
        if self.in_memory:
            driver.execute(f"PRAGMA query_only={'OFF' if write else 'ON'}")
        if not driver.in_transaction:
            if write:
                self._begin_immediate(driver, cancelled)
            else:
                driver.execute("BEGIN")
        elif write:
            self._lock(driver)
        return driver

    def _begin_immediate(self, driver: Any, cancelled: Callable[[], bool] | None) -> None:
        """With a way to call it off, wait in slices: interrupt() does not end a busy wait."""
        if cancelled is None:
            driver.execute("BEGIN IMMEDIATE")
            return
        timeout = self._settings.busy_timeout_ms
        deadline = time.monotonic() + timeout / 1000
        driver.execute(f"PRAGMA busy_timeout={min(_SLICE_MS, timeout)}")
        try:
            while True:
                if cancelled():
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
        """Inside a transaction the host's engine began, perhaps deferred: an UPDATE of no row takes the write lock."""
        driver.execute(f"UPDATE {VERSION_TABLE} SET version_num = version_num WHERE 0")

    def join(self, connection: Connection) -> None:
        if not connection.in_transaction():
            connection.begin()  # the host's engine begins as it always does
        if self.keeps_log:
            self._say_whether_logged(connection.connection.driver_connection)
        cursor = connection.connection.cursor()
        try:
            if self.in_transaction(connection.connection.driver_connection):
                cursor.execute(f"UPDATE {VERSION_TABLE} SET version_num = version_num WHERE 0")
            else:  # a savepoint outside of a transaction would commit when it is released
                cursor.execute("BEGIN IMMEDIATE")
        finally:
            cursor.close()

    def begin_driver(self, driver: Any) -> None:
        if self.keeps_log and not self._owned:
            self._say_whether_logged(driver)
        if self.in_memory:
            driver.execute("PRAGMA query_only=OFF")
        driver.execute("BEGIN IMMEDIATE")

    def prepare_held(self, driver: Any) -> Callable[[], None]:
        before = driver.isolation_level

        def restore() -> None:
            driver.isolation_level = before

        driver.isolation_level = None
        return restore

    def prepare_instant(self, driver: Any) -> Callable[[], None] | None:
        return never_waiting(driver, self._settings) if self._owned and not self.read_only else None

    def interrupt(self, driver: Any) -> None:
        driver.interrupt()

    def usable(self, driver: Any) -> bool:
        return True

    def in_transaction(self, driver: Any) -> bool:
        return bool(driver.in_transaction)

    def of_driver(self, error: BaseException) -> PersistError | None:
        if not isinstance(error, sqlite3.Error):
            return None
        return meaning(error, str(self.path or ":memory:"), self._settings.busy_timeout_ms / 1000, read_only=self.read_only)

    def retryable(self, error: PersistError) -> bool:
        return isinstance(error, StoreBusy)

    def wire(self, text: str) -> str:
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

    def guard(self, connection: Connection, tables: Sequence[Table]) -> None:
        for statement in guards.sqlite_guards(tables):
            _driver(connection).execute(statement)

    def unguard(self, connection: Connection) -> None:
        for statement in guards.sqlite_lowered(_driver(connection)):
            _driver(connection).execute(statement)

    def lock_tables(self, connection: Connection, tables: Sequence[Table]) -> None:
        """The one writer has them all."""

    def count_on(self, connection: Connection, tables: Sequence[Table]) -> None:
        """It counts on from the highest there is."""

    def wakeups(self, listen_url: str | None) -> Wakeups:
        return sqlite_wakeups.FileWakeups(self.path) if self.path is not None else Wakeups()

    def upgrade_command(self) -> str:
        return f"persist upgrade --url {shlex.quote(f'sqlite:///{self.path}')}"

    def reading_cursor(self, driver: Any) -> Any:
        return driver.cursor()

    def upkeep(self) -> "sqlite_upkeep.SqliteUpkeep":
        return sqlite_upkeep.SqliteUpkeep(self)

    def bulk(self, driver: Any) -> "sqlite_bulk.SqliteBulk":
        return sqlite_bulk.SqliteBulk(self, driver)

    def vector_functions(self, connection: Connection) -> "vector_functions.VectorFunctions | None":
        return vector_functions.sqlite_vec_functions(connection)


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection
