"""Connections to SQLite: the pragmas of each, the engines, cached ones, and the first connection before any engine."""

import logging
import os
import random
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, QueuePool, StaticPool, create_engine

from persist.db.concurrency.fork_count import in_each_child
from persist.db.concurrency.writer_lock import SHORT, Cancelled, Waiting
from persist.db.connections import ConnectionCache, Lent
from persist.db.dialects.connections import QUIET, Connections
from persist.db.dialects.sqlite.errors import error_name
from persist.db.dialects.sqlite.foreign_files import HostReferences
from persist.db.dialects.untrusted_files import IN_USE, make_private_file, make_whole_file, warn_of_network
from persist.db.files import file_uri
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.sqlalchemy_private import unused_connections
from persist.errors import NotFound, StoreForked

if TYPE_CHECKING:
    from persist.settings import Settings


# SQLite tracks the locks on a file per process. A forked child inherits these records but not the locks. A new connection of the
# child would rely on locks that it does not hold. Another process could then delete the log that the child writes to.
#
# SQLite also has mutexes, one for each connection and some for the whole process. A child inherits those that another thread of
# its parent held as held for ever: to close such a connection, or to free a byte, would hang. So what was in use is kept and
# refused.

_PATIENCE = 2.0
_ADVICE = "fork when no thread uses a store, or start the child as a new process."


class FileConnection(sqlite3.Connection):
    """A connection that knows its file (device and inode)."""

    file: tuple[int, int] | None
    at_rest = False
    """Whether no thread is inside of the connection, as far as its user has said so."""

    def __init__(self, path: Path, database: str, **options: Any) -> None:
        self.file = _identity(path)
        _made[id(self)] = self
        super().__init__(database, **options)
        self.file = _identity(path)

    def close(self) -> None:
        self.at_rest = False
        super().close()
        _made.pop(id(self), None)


_made: "weakref.WeakValueDictionary[int, FileConnection]" = weakref.WeakValueDictionary()


class _Inherited:
    """The connections of parent processes, referenced here so that Python does not free them."""

    def __init__(self) -> None:
        self.connections: dict[int, FileConnection] = {}
        self.lock = threading.Lock()
        self.library_works: bool | None = True
        """Whether SQLite can be used in this process; None if that was not tried since the fork."""

    def after_fork(self) -> None:
        self.connections.update(_made)
        self.lock = threading.Lock()
        self.library_works = None

    def close(self, path: Path, uri: str) -> None:
        """Close the parent's connections to a file, so that this process can connect. The parent keeps its locks."""
        if not self.connections and self.library_works:
            return
        with self.lock:
            file = _identity(path)
            inherited = {id: one for id, one in self.connections.items() if one.file == file}
            if not all(one.at_rest and not one.in_transaction for one in inherited.values()):
                raise StoreForked(
                    "This process was forked while its parent was inside of a transaction on this file, or used it on another "
                    f"thread, and cannot open it; {_ADVICE}"
                )
            if self.library_works is None:
                self.library_works = self._library_works(uri)
            if not self.library_works:
                raise StoreForked(f"This process was forked while another thread was inside SQLite, which hangs here; {_ADVICE}")
            for id, connection in inherited.items():
                connection.close()
                del self.connections[id]

    def _library_works(self, uri: str) -> bool:
        """Whether no mutex of SQLite's own was held at the fork: each is needed here once, on a thread that may hang alone."""

        def use(_: object) -> None:
            with suppress(sqlite3.Error):
                sqlite3.connect(uri, uri=True).close()
                with closing(sqlite3.connect(":memory:")) as memory:
                    memory.execute("CREATE TABLE filled AS SELECT randomblob(10000)")
            used.set()

        used = threading.Event()
        # a thread that hangs keeps its arguments for ever, so that the end of the interpreter closes no connection
        threading.Thread(target=use, args=(self.connections,), name="persist-after-fork", daemon=True).start()
        return used.wait(_PATIENCE)


_inherited = _Inherited()
in_each_child(_inherited.after_fork)


def connect(path: Path, uri: str, **options: Any) -> FileConnection:
    """Open a connection of this process. StoreForked in a child that was forked while its parent used the file."""
    _inherited.close(path, uri)
    factory: Any = partial(FileConnection, path)  # called as the class would be
    connection: FileConnection = sqlite3.connect(uri, uri=True, factory=factory, **options)  # which tools that trace replace
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# SQLite's own wait asks ten times a second once it has lasted 0.3 seconds. Beside processes that commit one short transaction
# after the other, it may last for ever. So connections that write leave to SQLite the first moment of a wait alone. The rest is
# waited for here, and asked for more often towards its end, so that who waits longest is let in before others.

log = logging.getLogger("persist")

_TRIES = 200
_PATIENCE_FOR_WAL = 10.0

OWN_WAIT_MS = 10
"""Milliseconds that SQLite waits by itself on a connection that writes, in four steps."""

_LONGEST, _SHORTEST = 0.01, 0.001
_SHARE = 200
"""A wait is this part of what is left of the timeout, between the longest and the shortest: with 2 seconds left it shrinks."""


def begin(driver: Any, timeout: float, waiting: Waiting | None = None) -> None:
    """BEGIN IMMEDIATE within `timeout` seconds, less the seconds waited already. Raises the driver's error, and Cancelled."""
    asked = time.monotonic()
    since, cancelled = waiting or (asked, None)
    if cancelled is not None and cancelled():
        raise Cancelled
    try:
        driver.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if not _is_busy(error):
            raise
        # for locks that are held briefly a moment is left, however long another thread of the process was waited for
        _poll(driver, max(since + timeout, asked + min(timeout, SHORT)), cancelled, error)


def begin_patiently(driver: Any, waiting: Waiting | None = None) -> None:
    """As `begin`, on a connection that somebody else has set up: its own timeout is taken, and given back."""
    with waiting_inside(driver, OWN_WAIT_MS) as before:
        begin(driver, before / 1000, waiting)


@contextmanager
def waiting_inside(driver: Any, milliseconds: int) -> Iterator[int]:
    """Let SQLite wait as long as this by itself, as for a checkpoint, which begins no transaction. Gives what it was before."""
    before = int(driver.execute("PRAGMA busy_timeout").fetchone()[0])
    driver.execute(f"PRAGMA busy_timeout={milliseconds}")
    try:
        yield before
    finally:
        driver.execute(f"PRAGMA busy_timeout={before}")


def wait_briefly(driver: Any, milliseconds: int) -> None:
    """Leave to SQLite only the first moment of a wait; a timeout of fewer milliseconds is kept."""
    driver.execute(f"PRAGMA busy_timeout={min(OWN_WAIT_MS, milliseconds)}")


def pause(left: float, chance: Callable[[], float] = random.random) -> float:
    """Seconds until the lock is asked for again, with so many left: fewer towards the end, and never the same for two waiters."""
    return min(left, max(_SHORTEST, min(_LONGEST, left / _SHARE)) * (1 + chance()) / 2)


def _poll(driver: Any, deadline: float, cancelled: Callable[[], bool] | None, error: sqlite3.OperationalError) -> None:
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(pause(left))
        if cancelled is not None and cancelled():
            raise Cancelled
        try:
            driver.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as again:
            if not _is_busy(again):
                raise
            error = again
    raise error


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error_name(error).startswith("SQLITE_BUSY")


def use_wal(connection: sqlite3.Connection, path: Path) -> bool:
    """Switch a file to WAL, with retries while others open it: that ignores busy_timeout. False: it cannot be switched."""
    deadline = time.monotonic() + _PATIENCE_FOR_WAL  # reading the mode of a file that was replaced while open would block
    for attempt in range(_TRIES):
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                return True
            if connection.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal":
                return True
        except sqlite3.OperationalError as error:
            busy = error_name(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
            if not busy or attempt == _TRIES - 1 or time.monotonic() > deadline:
                raise
        time.sleep(0.01)
    log.warning("%s cannot be switched to WAL; readers and the writer will block each other", path)
    return False


def never_waiting(driver: Any, settings: "Settings") -> Callable[[], None] | None:
    """Make a connection never wait nor checkpoint; return what restores it; None where every commit may wait for the disk."""
    if settings.synchronous != "normal" or driver.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        return None
    driver.execute("PRAGMA busy_timeout=0")
    driver.execute("PRAGMA wal_autocheckpoint=0")

    def restore() -> None:
        wait_briefly(driver, settings.busy_timeout_ms)
        driver.execute(f"PRAGMA wal_autocheckpoint={settings.wal_autocheckpoint}")

    return restore


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

    def open_first(self, fill: Callable[[Any], object] | None) -> sqlite3.Connection | None:
        if self.path is None or not self._writes_own_file:
            return None
        if fill is not None and not self._must_exist:
            make_whole_file(self.path, lambda: _new_file(self._page_size, fill))
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
        driver: Any = connection.connection.driver_connection
        if write:
            self._use_memory(driver)
        return connection, driver

    def _use_memory(self, driver: Any) -> None:
        """Keep in memory what a statement may have to undo. From 64 KB on, which many indexes are, it would be in a new file."""
        if self._writes_own_file:
            driver.execute("PRAGMA temp_store=MEMORY")

    def release(self, connection: Connection, *, write: bool, driver: Any = None) -> None:
        if driver is None or self.idle is None or self.disposed or driver.in_transaction:
            super().release(connection, write=write, driver=driver)
        else:
            self.idle[write].put(connection, driver)

    def _in_transaction(self, driver: Any) -> bool:
        return bool(driver.in_transaction)

    def prepare_pinned(self, driver: Any) -> Callable[[], None]:
        before = driver.isolation_level

        def restore() -> None:
            driver.isolation_level = before

        driver.isolation_level = None
        self._use_memory(driver)
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
            if self._writes_own_file:
                driver.execute("PRAGMA temp_store=DEFAULT")  # VACUUM would make its copy of the file in memory
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


_new_files: dict[int | None, bytes] = {}


def _new_file(page_size: int | None, fill: Callable[[sqlite3.Connection], object]) -> bytes:
    """The bytes of a new file: to create each table of each file anew would take SQLite ten times as long as to write these."""
    if page_size not in _new_files:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
            memory.execute(f"PRAGMA page_size={page_size or 0}")  # SQLite keeps its default instead of 0
            memory.execute("BEGIN")
            fill(memory)
            memory.commit()
            _new_files[page_size] = memory.serialize()
    return _new_files[page_size]


def _engine(creator: Callable[[], sqlite3.Connection], pool: type[Any], **options: Any) -> Engine:
    engine = create_engine("sqlite://", creator=creator, poolclass=pool, **QUIET, **options)
    return engine.execution_options(schema_translate_map=_OURS)
