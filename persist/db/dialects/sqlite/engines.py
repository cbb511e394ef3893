"""Connecting to SQLite: the pragmas of every connection, the engines, and the first connection before any engine."""

import sqlite3
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, QueuePool, StaticPool, create_engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from persist.db.dialects.database_files import IN_USE, make_private_file
from persist.db.dialects.interface import Dialect
from persist.db.dialects.sqlite.connections import connect
from persist.db.dialects.sqlite.event_guards import FUNCTION
from persist.db.dialects.sqlite.wal import use_wal
from persist.db.files.paths import file_uri
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.statements.compiled import Kind
from persist.errors import NotFound

if TYPE_CHECKING:
    from persist.settings import Settings

_OURS: dict[str | None, str | None] = {SCHEMA_TOKEN: None}

_FIVE_ATTEMPTS = 2.0
"""Seconds that five attempts to take the write lock need with the pauses between them, even with a short busy_timeout."""


class SqliteEngines(Dialect):
    """The part of the dialect that connects: to `path`, to `:memory:` if it is None, or through the caller's engine."""

    page_size: int | None = None
    """PRAGMA page_size of a new file; None for SQLite's default."""

    def __init__(self, settings: "Settings", engine: Engine | None = None) -> None:
        self._settings = settings
        self.patience = max(settings.busy_timeout_ms / 1000, _FIVE_ATTEMPTS)
        self._callers = None if engine is None else engine.execution_options(schema_translate_map=_OURS)
        self._owned = engine is None
        self._memory: sqlite3.Connection | None = None
        self._first: list[sqlite3.Connection] = []
        self._unkept: set[int] = set()
        self._settled = False
        IN_USE.add(self)

    def _make_engine(self, *, write: bool) -> Engine:
        if self._callers is not None:
            return self._callers
        if self.path is None:
            return self._engine(self._connect_memory, StaticPool) if write else self.writer
        connect, read_only = self._connect, self.read_only
        if write:
            return self._engine(lambda: self._kept() or connect(query_only=read_only), QueuePool, pool_size=2, max_overflow=2)
        return self._engine(lambda: connect(query_only=True), QueuePool, pool_size=5, max_overflow=20)

    @property
    def kind(self) -> Kind:
        return SQLiteDialect_pysqlite

    def first(self) -> Any:
        if self.path is None or not self._owned or self.read_only:
            return None
        self._first.append(self._connect(query_only=False))
        return self._first[0]

    def _kept(self) -> sqlite3.Connection | None:
        """Take the connection from opening the store, for the first transaction; None if it is taken. Thread-safe."""
        try:
            return self._first.pop()
        except IndexError:
            return None

    def dispose(self) -> None:
        IN_USE.discard(self)
        super().dispose()
        if (unused := self._kept()) is not None:
            unused.close()

    def _engine(self, creator: Callable[[], sqlite3.Connection], pool: type[Any], **options: Any) -> Engine:
        engine = create_engine("sqlite://", creator=creator, poolclass=pool, **options)
        return engine.execution_options(schema_translate_map=_OURS)

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
        uri = file_uri(self.path, f"mode={mode}")
        timeout = self._settings.busy_timeout_ms
        connection = connect(
            self.path, uri, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=timeout / 1000
        )
        try:
            connection.execute(f"PRAGMA busy_timeout={timeout}")
            if mode == "rwc" and self.page_size is not None:
                connection.execute(f"PRAGMA page_size={self.page_size}")
            if self._settled and not self.read_only:
                use_wal(connection, self.path)
            connection.execute(f"PRAGMA synchronous={self._settings.synchronous}")
            if sys.platform == "darwin":  # fsync on macOS leaves writes in the drive's cache
                connection.execute("PRAGMA fullfsync=ON")
                connection.execute("PRAGMA checkpoint_fullfsync=ON")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute(f"PRAGMA wal_autocheckpoint={self._settings.wal_autocheckpoint}")
            if query_only:
                connection.execute("PRAGMA query_only=ON")
            self._say_whether_logged(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _say_whether_logged(self, connection: Any) -> Any:
        """Define the SQL function that tells guard triggers whether the connection records events.

        The returned value must be awaited if the connection is asynchronous.
        """
        key = id(connection)
        return connection.create_function(FUNCTION, 0, lambda: self.keeps_log and key not in self._unkept)

    def settle(self, driver: Any) -> None:
        """Switch a verified file to WAL. A file that was refused stays unchanged, since this is not called."""
        self._settled = True
        if self.path is not None and self._owned and not self.read_only:
            use_wal(driver, self.path)
