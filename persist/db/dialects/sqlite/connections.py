"""Connections to SQLite: the pragmas of each, the engines, cached ones, and the first connection before any engine."""

import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, QueuePool, StaticPool, create_engine

from persist.db.connections.connection_cache import ConnectionCache, Lent
from persist.db.dialects.connections import Connections
from persist.db.dialects.database_files import IN_USE, make_private_file, warn_of_network
from persist.db.dialects.engine_logs import QUIET
from persist.db.dialects.sqlite.file_connections import FileConnection, connect
from persist.db.dialects.sqlite.host_references import HostReferences
from persist.db.dialects.sqlite.write_lock import never_waiting, use_wal, wait_briefly, waiting_inside
from persist.db.files.paths import file_uri
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.sqlalchemy_private import unused_connections
from persist.errors import NotFound

if TYPE_CHECKING:
    from persist.settings import Settings

_OURS: dict[str | None, str | None] = {SCHEMA_TOKEN: None}
_IDLE_SECONDS = 3600.0


class SqliteConnections(Connections):
    """Connections to the file `path`, the single one to `:memory:` if it is None, or those of the caller's engine."""

    def __init__(
        self,
        path: Path | None,
        settings: "Settings",
        introduce: Callable[[sqlite3.Connection], object],
        *,
        read_only: bool = False,
        page_size: int | None = None,
        engine: Engine | None = None,
        must_exist: bool = False,
    ) -> None:
        """`introduce` is called with every new connection; `page_size` is the PRAGMA of a new file, None for SQLite's default."""
        self._must_exist = read_only or must_exist
        self.path = path
        self.owned = engine is None
        """Whether the connections are persist's own, not those of a caller's engine."""
        self.references = HostReferences()
        """What keeps foreign keys on connections of hosts."""
        self._settings, self._introduce = settings, introduce
        self._read_only, self._page_size = read_only, page_size
        self._callers = None if engine is None else engine.execution_options(schema_translate_map=_OURS)
        self._writes_own_file = path is not None and engine is None and not read_only
        self._first: list[sqlite3.Connection] = []
        self._settled = False
        IN_USE.add(self)
        if path is not None and engine is None:
            warn_of_network(path)
            self.idle = {write: ConnectionCache(1 if write else 5, _IDLE_SECONDS, Connection.close) for write in (True, False)}

    def _make_engine(self, *, write: bool) -> Engine:
        if self._callers is not None:
            return self._callers
        if self.path is None:
            return _engine(self._connect_memory, StaticPool) if write else self.writer
        connect, read_only = self._connect, self._read_only
        if write:
            return _engine(lambda: self._kept() or connect(query_only=read_only), QueuePool, pool_size=2, max_overflow=2)
        return _engine(lambda: connect(query_only=True), QueuePool, pool_size=5, max_overflow=20)

    def open_first(self) -> sqlite3.Connection | None:
        if not self._writes_own_file:
            return None
        self._first.append(self._connect(query_only=False))
        return self._first[0]

    def _kept(self) -> sqlite3.Connection | None:
        """Take the connection from opening the store, for the first transaction; None if it is taken. Thread-safe."""
        try:
            return self._first.pop()
        except IndexError:
            return None

    def prepare_database(self, driver: Any) -> None:
        """Switch a verified file to WAL. A file that was refused stays unchanged, since this is not called."""
        self._settled = True
        if self.path is not None and self._writes_own_file:
            self._use_wal(driver, self.path)

    def _use_wal(self, driver: sqlite3.Connection, path: Path) -> None:
        if use_wal(driver, path):  # elsewhere COMMIT waits for readers, too, which is left to SQLite
            wait_briefly(driver, self._settings.busy_timeout_ms)

    def lend(self, *, write: bool) -> Lent:
        if self.idle is not None and (kept := self.idle[write].take()) is not None:
            return kept
        connection = (self.writer if write else self.reader).connect()
        return connection, connection.connection.driver_connection

    def release(self, connection: Connection, *, write: bool, driver: Any = None) -> None:
        if driver is None or self.idle is None or self.disposed or driver.in_transaction:
            super().release(connection, write=write, driver=driver)
        else:
            self.idle[write].put(connection, driver)

    def _can_begin_now(self, driver: Any) -> bool:
        return True

    def _in_transaction(self, driver: Any) -> bool:
        return bool(driver.in_transaction)

    def usable(self, driver: Any) -> bool:
        return True

    def alive(self, driver: Any) -> bool:
        return True

    def prepare_pinned(self, driver: Any) -> Callable[[], None]:
        before = driver.isolation_level

        def restore() -> None:
            driver.isolation_level = before

        driver.isolation_level = None
        if not self.owned:
            self.references.keep(driver, {}, driver)
        return restore

    def prepare_inline(self, driver: Any) -> Callable[[], None] | None:
        return never_waiting(driver, self._settings) if self.owned and not self._read_only else None

    @contextmanager
    def waiting_inside(self) -> Iterator[Any]:
        """A connection that writes, on which SQLite waits as long as the settings say, for what begins no transaction."""
        with self.writer.connect() as connection:
            driver: Any = connection.connection.driver_connection
            with waiting_inside(driver, self._settings.busy_timeout_ms) if self.owned else nullcontext(0):
                yield driver

    def wal_bytes(self) -> int | None:
        try:
            return None if self.path is None else Path(f"{self.path}-wal").stat().st_size
        except OSError:  # nothing was written yet, or the last connection has taken the log with it
            return 0

    def dispose(self) -> None:
        IN_USE.discard(self)
        super().dispose()
        if (unused := self._kept()) is not None:
            unused.close()

    def abandon(self, pinned: Sequence[Any]) -> None:
        for driver in (*pinned, *self._unused()):
            if isinstance(driver, FileConnection):
                driver.at_rest = True
        super().abandon(pinned)

    def _unused(self) -> Iterator[Any]:
        """Driver connections that wait for their next user. Takes no lock: a thread that exists no more may hold it."""
        yield from self._first
        for cache in (self.idle or {}).values():
            yield from cache.cached
        for engine in self.engines:
            yield from unused_connections(engine.pool)

    def _connect_memory(self) -> sqlite3.Connection:
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)
        memory.execute("PRAGMA foreign_keys=ON")
        self._introduce(memory)
        return memory

    def _connect(self, *, query_only: bool) -> sqlite3.Connection:
        assert self.path is not None
        mode = "ro" if self._read_only else "rw" if self.path.exists() else "rwc"
        if mode == "rwc" and self._must_exist:
            raise NotFound("SQLite file", str(self.path))
        if mode == "ro" and not self.path.exists():
            raise NotFound("SQLite file", str(self.path))
        if mode == "rwc":
            make_private_file(self.path)
        uri = file_uri(self.path, f"mode={mode}")
        timeout = self._settings.busy_timeout_ms
        connection = connect(
            self.path, uri, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=timeout / 1000
        )
        try:
            connection.execute(f"PRAGMA busy_timeout={timeout}")
            if mode == "rwc" and self._page_size is not None:
                connection.execute(f"PRAGMA page_size={self._page_size}")
            if self._settled and not self._read_only:
                (use_wal if query_only else self._use_wal)(connection, self.path)
            connection.execute(f"PRAGMA synchronous={self._settings.synchronous}")
            if sys.platform == "darwin":  # fsync on macOS leaves writes in the drive's cache
                connection.execute("PRAGMA fullfsync=ON")
                connection.execute("PRAGMA checkpoint_fullfsync=ON")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute(f"PRAGMA wal_autocheckpoint={self._settings.wal_autocheckpoint}")
            if query_only:
                connection.execute("PRAGMA query_only=ON")
            self._introduce(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _engine(creator: Callable[[], sqlite3.Connection], pool: type[Any], **options: Any) -> Engine:
    engine = create_engine("sqlite://", creator=creator, poolclass=pool, **QUIET, **options)
    return engine.execution_options(schema_translate_map=_OURS)
