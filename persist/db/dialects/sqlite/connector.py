"""Connecting to SQLite: the pragmas of every connection, the engines, and the first connection before any engine."""

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, QueuePool, StaticPool, create_engine

from persist.db.dialects.database_files import make_private_file
from persist.db.dialects.sqlite.connections import connect
from persist.db.dialects.sqlite.wal import use_wal
from persist.db.files.paths import file_uri
from persist.db.schema.base import SCHEMA_TOKEN
from persist.errors import NotFound

if TYPE_CHECKING:
    from persist.settings import Settings

_OURS: dict[str | None, str | None] = {SCHEMA_TOKEN: None}


class SqliteConnector:
    """Connects a dialect to the file `path`, to `:memory:` if it is None, or through the caller's engine."""

    def __init__(
        self,
        path: Path | None,
        settings: "Settings",
        introduce: Callable[[sqlite3.Connection], object],
        *,
        read_only: bool = False,
        page_size: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        """`introduce` is called with every new connection; `page_size` is the PRAGMA of a new file, None for SQLite's default."""
        self._path, self._settings, self._introduce = path, settings, introduce
        self._read_only, self._page_size = read_only, page_size
        self._callers = None if engine is None else engine.execution_options(schema_translate_map=_OURS)
        self._writes_own_file = path is not None and engine is None and not read_only
        self._first: list[sqlite3.Connection] = []
        self._settled = False

    def engine(self, *, write: bool) -> Engine:
        """Create the engine for write transactions or for snapshots, or return the caller's."""
        if self._callers is not None:
            return self._callers
        if self._path is None:
            return _engine(self._connect_memory, StaticPool)
        connect, read_only = self._connect, self._read_only
        if write:
            return _engine(lambda: self._kept() or connect(query_only=read_only), QueuePool, pool_size=2, max_overflow=2)
        return _engine(lambda: connect(query_only=True), QueuePool, pool_size=5, max_overflow=20)

    def first(self) -> sqlite3.Connection | None:
        """Open the connection of the first transaction; None where that is left to an engine."""
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

    def settle(self, driver: Any) -> None:
        """Switch a verified file to WAL. A file that was refused stays unchanged, since this is not called."""
        self._settled = True
        if self._path is not None and self._writes_own_file:
            use_wal(driver, self._path)

    def close(self) -> None:
        """Close the first connection if no transaction took it."""
        if (unused := self._kept()) is not None:
            unused.close()

    def _connect_memory(self) -> sqlite3.Connection:
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)
        memory.execute("PRAGMA foreign_keys=ON")
        self._introduce(memory)
        return memory

    def _connect(self, *, query_only: bool) -> sqlite3.Connection:
        assert self._path is not None
        mode = "ro" if self._read_only else "rw" if self._path.exists() else "rwc"
        if mode == "ro" and not self._path.exists():
            raise NotFound("SQLite file", str(self._path))
        if mode == "rwc":
            make_private_file(self._path)
        uri = file_uri(self._path, f"mode={mode}")
        timeout = self._settings.busy_timeout_ms
        connection = connect(
            self._path, uri, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=timeout / 1000
        )
        try:
            connection.execute(f"PRAGMA busy_timeout={timeout}")
            if mode == "rwc" and self._page_size is not None:
                connection.execute(f"PRAGMA page_size={self._page_size}")
            if self._settled and not self._read_only:
                use_wal(connection, self._path)
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
    engine = create_engine("sqlite://", creator=creator, poolclass=pool, **options)
    return engine.execution_options(schema_translate_map=_OURS)
