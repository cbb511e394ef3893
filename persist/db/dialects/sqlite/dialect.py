"""SQLite: WAL, one writer, pragmas on every connection, BEGIN IMMEDIATE for every write."""

import logging
import os
import sqlite3
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine, StaticPool
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from persist.db.dialects.errors import Errors
from persist.db.dialects.interface import Dialect, TenantServer
from persist.db.dialects.sqlite.catalog import SqliteTables
from persist.db.dialects.sqlite.connections import SqliteConnections
from persist.db.dialects.sqlite.errors import retryable, tells_rollback, translation
from persist.db.dialects.sqlite.foreign_files import warn as warn_of_unchecked
from persist.db.dialects.sqlite.operations import SqliteTransactions
from persist.db.dialects.sqlite.raw_writes import REREADER, mark_connection
from persist.db.dialects.sqlite.wakeups import SqliteEventLog
from persist.db.dialects.untrusted_files import remove_file
from persist.db.files import file_uri, typed
from persist.db.schema.base import VERSION_TABLE
from persist.errors import PersistError

if TYPE_CHECKING:
    from persist.settings import Settings


log = logging.getLogger("persist")

_FIVE_ATTEMPTS = 2.0
"""Seconds that five attempts to take the write lock need with the pauses between them, even with a short busy_timeout."""


def sqlite_dialect(
    path: Path | None,
    settings: "Settings",
    *,
    read_only: bool = False,
    page_size: int | None = None,
    engine: Engine | None = None,
    must_exist: bool = False,
) -> Dialect:
    """Create the dialect of the file `path`, or of `:memory:`. `must_exist`: connecting to a missing file raises NotFound."""
    event_log = SqliteEventLog(path)

    def introduce(driver: sqlite3.Connection) -> None:
        event_log.say_whether_kept(driver)
        mark_connection(driver)

    connections = SqliteConnections(
        path, settings, introduce, read_only=read_only, page_size=page_size, engine=engine, must_exist=must_exist
    )
    return Dialect(
        name="sqlite",
        sqlalchemy_dialect=SQLiteDialect_pysqlite,
        path=path,
        read_only=read_only,
        in_memory=path is None,
        one_file=True,
        one_writer=True,
        batches_rows=False,
        pipelines=False,
        autocommits_single_statement=path is not None,
        write_lock_timeout=max(settings.busy_timeout_ms / 1000, _FIVE_ATTEMPTS),
        rereader=REREADER,
        to_plain_json=str,  # it is plain already
        connections=connections,
        transactions=SqliteTransactions(connections, event_log, settings),
        errors=Errors(str(path or "sqlite"), translation(path, settings, read_only=read_only), retryable, tells_rollback),
        event_log=event_log,
        tables=SqliteTables(path, connections.references),
    )


def of_engine(engine: Engine, settings: "Settings") -> Dialect:
    """Create the dialect for a caller's engine; log a warning for wrong pragmas, but change none."""
    dialect = lent(engine, settings)
    with dialect.connections.writer.connect() as connection:
        if not connection.exec_driver_sql("PRAGMA foreign_keys").scalar():
            warn_of_unchecked(engine.pool)
        if not dialect.in_memory and connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
            log.warning("journal_mode is not WAL on this engine: readers and the writer will block each other")
        connection.rollback()
    return dialect


def lent(engine: Engine, settings: "Settings") -> Dialect:
    """Create the dialect for a caller's engine without checking its pragmas."""
    name = engine.url.database
    in_memory = name in (None, "", ":memory:") or isinstance(engine.pool, StaticPool)
    return sqlite_dialect(None if in_memory or name is None else Path(name), settings, engine=engine)


_SUFFIX = ".db"


class SqliteTenants(TenantServer):
    """The files of one folder that hold persist's tables."""

    shares_connections = False

    def __init__(self, folder: Path, settings: "Settings") -> None:
        self._folder, self._settings = folder, settings

    def dialect(self, name: str, *, new: bool = False) -> Dialect:
        return sqlite_dialect(self._path(name), self._settings, must_exist=not new)

    def has(self, name: str) -> bool:
        path = self._path(name)
        if not path.is_file():
            return False
        try:
            with closing(sqlite3.connect(file_uri(path, "mode=ro"), uri=True, timeout=5.0)) as raw:
                return raw.execute(f"SELECT 1 FROM {VERSION_TABLE}").fetchone() is not None
        except sqlite3.DatabaseError as error:  # a file whose creation was cut short has no tables yet
            if isinstance(error, sqlite3.OperationalError) and ("no such table" in str(error) or not path.exists()):
                return False
            raise self.dialect(name).errors.classify(error) or error from error

    def names(self, after: str, limit: int) -> list[str]:
        try:
            with os.scandir(self._folder) as entries:
                found = [entry.name.removesuffix(_SUFFIX) for entry in entries if entry.name.endswith(_SUFFIX)]
        except OSError as error:
            raise typed(error, self._folder, "folder") from error
        later = sorted(name for name in found if name > after)
        return list(islice(filter(self._is_listed, later), limit))

    def _is_listed(self, name: str) -> bool:
        """Whether it is a tenant, or cannot be read: a damaged file hides no other one, and who opens it learns what it is."""
        try:
            return self.has(name)
        except PersistError:
            return True

    def drop(self, name: str) -> bool:
        if not self.has(name):
            return False
        path = self._path(name)
        remove_file(path)
        return True

    def place(self, name: str) -> tuple[str, str | None]:
        return f"sqlite:///{self._path(name).as_posix()}", None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"
