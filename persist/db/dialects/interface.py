"""The interface of a database dialect: every operation that SQLite and Postgres implement differently."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, Table, exc

from persist.db.concurrency.writer_lock import Waiting
from persist.db.connections.connection_cache import ConnectionCache
from persist.db.connections.host_connections import ONLY_INSIDE_RUN_SYNC
from persist.db.statements.compiled import Kind, compiled_for
from persist.errors import Closed, InvalidValue, PersistError, StoreBusy, StoreCorrupt

if TYPE_CHECKING:
    from persist.db.dialects.wakeups import Wakeups
    from persist.db.statements.prepared import Statement, StatementCache
    from persist.db.unreadable.rereading import Rereader

AUTOCOMMIT = "it is in AUTOCOMMIT mode, where there is no transaction to join."
"""The reason given when a caller's connection is refused."""


class Dialect(ABC):
    """The database of one store. `schema` is the schema that holds persist's tables (None on SQLite)."""

    name: str
    schema: str | None
    path: Path | None = None
    read_only: bool = False
    in_memory: bool = False
    autocommits_single_statement: bool
    """Whether a single statement on the pinned connection commits by itself, durably and without a BEGIN."""
    batches_rows: bool = False
    """Whether one statement for many rows is faster than one driver call for each row."""
    pipelines: bool = False
    """Whether the statements of a batch are sent together (`queue` and `flush` of what `begin` and `runner` return)."""
    one_file: bool
    """Whether the database is one file, which may belong to one run, instance or workspace."""
    one_writer: bool
    """Whether writers queue on the store's own lock before they ask the database."""

    patience: float = 10.0
    """Seconds after which the attempts to take the write lock end."""

    disposed: bool = False
    """Whether the store is closed: a connection released after that is closed instead of cached."""

    keeps_log: bool = False
    """Whether write transactions record events in the event log; the log's guard triggers refuse writers that do not."""

    idle: dict[bool, ConnectionCache] | None = None
    """Cached connections for the next writer (True) and reader (False); None where every transaction uses the pool."""

    @property
    def writer(self) -> Engine:
        """The engine for write transactions."""
        return self._engine_for(write=True)

    @property
    def reader(self) -> Engine:
        """The engine for snapshots."""
        return self._engine_for(write=False)

    def _engine_for(self, *, write: bool) -> Engine:
        made: dict[bool, Engine] = vars(self).setdefault("_made", {})  # two threads at the same time both get the first engine
        return made.get(write) or made.setdefault(write, self._make_engine(write=write))

    @abstractmethod
    def _make_engine(self, *, write: bool) -> Engine:
        """Create the engine for write transactions or for snapshots; both may be one engine."""

    @property
    def engines(self) -> list[Engine]:
        """The engines that were made so far."""
        return list({id(engine): engine for engine in vars(self).get("_made", {}).values()}.values())

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """SQLAlchemy's dialect class for this database."""

    rereader: "Rereader"
    """Reads values that the driver cannot convert; shared by all stores of this dialect."""

    def first(self) -> Any:
        """Open the driver connection of the first transaction before an engine exists; None where that is not possible."""
        return None

    @cached_property
    def prepared(self) -> "StatementCache":
        """The cache of compiled statements for this dialect and schema."""
        return compiled_for(self.kind, self.schema, self.rereader)

    def connect(self, *, write: bool) -> Connection:
        """Return a connection for one write transaction or one snapshot, cached or from the pool."""
        while self.idle is not None and (kept := self.idle[write].take()) is not None:
            if self.alive(kept.connection.driver_connection):
                return kept
            self.discard(kept)
        return (self.writer if write else self.reader).connect()

    def ready_to_read(self) -> Connection | None:
        """Return a cached connection on which a snapshot can begin without blocking, or None."""
        return None if self.idle is None else self.idle[False].take_if(self._ready)

    def _ready(self, connection: Connection) -> bool:
        return self.alive(connection.connection.driver_connection)

    def ends_at_once(self, connection: Connection, driver: Any) -> bool:
        """Whether a snapshot on this connection can end without blocking."""
        return driver is not None and self.idle is not None and self.idle[False].has_room

    def release(self, connection: Connection, *, write: bool) -> None:
        """Cache, return to the pool or close a connection from `connect`, after its transaction has ended."""
        if connection.closed or connection.invalidated:
            connection.close()
            return
        driver = connection.connection.driver_connection
        if self.disposed or not self.usable(driver):
            self.discard(connection)
        elif self.idle is None or connection.get_transaction() is not None or self.in_transaction(driver):
            connection.close()  # after a failed COMMIT the transaction is still open, though not active
        else:
            self.idle[write].put(connection)

    def give_back(self, connection: Connection) -> None:
        """Return a cached connection to its pool."""
        connection.close()

    def discard(self, connection: Connection) -> None:
        """Close a connection without its pool: a pool would try a rollback and log a traceback, or keep it though disposed of."""
        connection.invalidate()
        connection.close()

    @abstractmethod
    def settle(self, driver: Any) -> None:
        """Set up the database for use; called once, after the schema is verified or upgraded and before any other write."""

    @abstractmethod
    def begin(self, connection: Connection, *, write: bool, waiting: Waiting | None = None) -> Any:
        """Start a transaction on an idle connection and return what executes its statements. Every transaction starts here.

        On persist's own connections only the driver's transaction is started. SQLAlchemy's transaction begins with the first
        statement that SQLAlchemy runs; `end` ends both.
        """

    def end(self, connection: Connection, driver: Any, *, commit: bool) -> None:
        """Commit or roll back the transaction that `begin` started; `driver` is None on a caller's engine."""
        of: Any = connection if driver is None or connection.get_transaction() is not None else driver
        (of.commit if commit else of.rollback)()

    def end_read(self, connection: Connection, driver: Any) -> None:
        """End a snapshot with COMMIT. After a ROLLBACK the drivers would discard their prepared statements."""
        self.end(connection, driver, commit=True)

    @abstractmethod
    def join(self, connection: Connection) -> None:
        """Prepare the caller's own transaction for a write: take the locks that a write needs, and allow savepoints."""

    @abstractmethod
    def begin_pinned(self, runner: Any) -> None:
        """Start a write transaction on a pinned connection; on Postgres it is sent with its first statement."""

    @abstractmethod
    def prepare_pinned(self, driver: Any) -> Callable[[], None]:
        """Set up a driver connection that stays checked out for recorders; return a function that restores it."""

    def runner(self, driver: Any) -> Any:
        """Return the object that executes the statements of a pinned connection, and commits them."""
        return driver

    def driver_of(self, connection: Connection) -> Any:
        """Return the driver connection of a transaction, for statements that are executed on it directly."""
        return connection.connection.driver_connection

    def prepare_inline(self, driver: Any) -> Callable[[], None] | None:
        """Set up a connection that raises instead of waiting, as `prepare_pinned` does; None where every commit has to wait."""
        return None

    @abstractmethod
    def interrupt(self, driver: Any) -> None:
        """Cancel the running statement from another thread; end the connection if the cancellation fails."""

    @abstractmethod
    def usable(self, driver: Any) -> bool:
        """Whether a driver connection can still be used."""

    def alive(self, driver: Any) -> bool:
        """Whether the database has left an idle connection open, as far as is known without a round trip."""
        return self.usable(driver)

    @abstractmethod
    def in_transaction(self, driver: Any) -> bool:
        """Whether the driver connection is inside a transaction."""

    def classify(self, error: BaseException) -> PersistError | None:
        """Translate an error of the driver or of SQLAlchemy into a PersistError; None for any other error."""
        original = error.orig if isinstance(error, exc.StatementError) else error
        if isinstance(original, PersistError):
            return original
        if isinstance(original, OverflowError):
            return InvalidValue("value", "an integer must fit 64 bits.")
        if isinstance(original, UnicodeEncodeError):
            return InvalidValue("value", "the text holds a lone surrogate half.")
        if isinstance(original, UnicodeDecodeError):  # the driver could not decode text, in a row or in its error message
            return StoreCorrupt(str(self.path or self.name), f"stored text is not UTF-8 ({original.reason}).")
        if isinstance(original or error, exc.MissingGreenlet):
            return InvalidValue("connection", ONLY_INSIDE_RUN_SYNC)
        if isinstance(error, exc.ResourceClosedError):
            return Closed("connection")
        if isinstance(error, exc.InvalidRequestError):  # the caller's connection is in an unusable state
            return InvalidValue("connection", str(error).partition("\n")[0])
        if isinstance(error, exc.TimeoutError):
            return StoreBusy(30.0, "every connection of the pool is in use")
        return None if original is None else self.translate_driver_error(original)

    @abstractmethod
    def translate_driver_error(self, error: BaseException) -> PersistError | None:
        """Translate an error that the driver raised into a PersistError; None for any other error."""

    @abstractmethod
    def retryable(self, error: PersistError) -> bool:
        """Whether a retry of the whole transaction may succeed: lock contention, serialization failure, deadlock."""

    @abstractmethod
    def to_plain_json(self, text: str) -> str:
        """Convert the stored text of a Json column to plain JSON text."""

    @abstractmethod
    def tables(self, connection: Connection) -> set[str]:
        """The names of the tables in the store's schema."""

    @abstractmethod
    def upgrade_command(self) -> str:
        """The shell command that upgrades this database."""

    @abstractmethod
    def reading_cursor(self, driver: Any) -> Any:
        """Return a driver cursor that fetches a result in batches until the transaction ends."""

    def leave_log_to_database(self, driver: Any) -> AbstractContextManager[None]:
        """Let the guard trigger log the text delta that one statement on a pinned connection inserts."""
        return nullcontext()

    @abstractmethod
    def wakeups(self, listen_url: str | None) -> "Wakeups":
        """Create the object that waits for new events on behalf of a reader of the event log."""

    @abstractmethod
    def count_on(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Advance the sequences of these tables past their highest ids, after rows with explicit ids were inserted."""

    notice: "Statement | None" = None
    """The statement that wakes readers in other processes when the transaction commits; None where none is needed."""

    def dispose(self) -> None:
        """Close every connection of the store. A connection in use is closed when it is released."""
        self.disposed = True
        for idle in (self.idle or {}).values():
            idle.close()
        for engine in self.engines:
            engine.dispose()

    def abandon(self) -> None:
        """Drop inherited connections in a forked child, without touching their file descriptors."""
        for engine in self.engines:
            engine.dispose(close=False)
