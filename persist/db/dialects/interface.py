"""What persist asks of a database: everything the two do differently, and nothing else, is declared here."""

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
"""Why a connection of the caller's is refused."""


class Dialect(ABC):
    """One database behind one store. `schema` is the real schema of our tables (None on SQLite)."""

    name: str
    schema: str | None
    path: Path | None = None
    read_only: bool = False
    in_memory: bool = False
    autocommits_single_statement: bool
    """Whether a single statement on the held connection commits by itself, durably and without a BEGIN."""
    batches_rows: bool = False
    """Whether one statement for many rows beats one call of the driver for each."""
    one_file: bool
    """Whether the database is one file, which may be that of one run, instance or workspace."""
    one_writer: bool
    """Whether writers queue on the store's own lock before they ask the database."""

    patience: float = 10.0
    """Seconds after which nobody tries again to take the write lock."""

    disposed: bool = False
    """Whether the store is closed: what is connected still is not kept for anybody."""

    keeps_log: bool = False
    """Whether writing transactions keep the database's log of events: what the guard of such a database asks for."""

    idle: dict[bool, ConnectionCache] | None = None
    """Connections for the next writer (True) and reader (False); None where every transaction asks the pool."""

    @property
    def writer(self) -> Engine:
        """For transactions that write."""
        return self._engine_for(write=True)

    @property
    def reader(self) -> Engine:
        """For snapshots."""
        return self._engine_for(write=False)

    def _engine_for(self, *, write: bool) -> Engine:
        made: dict[bool, Engine] = vars(self).setdefault("_made", {})  # of two threads that make one, both get the first
        return made.get(write) or made.setdefault(write, self._make_engine(write=write))

    @abstractmethod
    def _make_engine(self, *, write: bool) -> Engine:
        """The engine of a kind of transaction; both may be the same."""

    @property
    def engines(self) -> list[Engine]:
        """The engines that were made so far."""
        return list({id(engine): engine for engine in vars(self).get("_made", {}).values()}.values())

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """SQLAlchemy's class for it."""

    rereader: "Rereader"
    """How values are read that the driver cannot give; one for all stores of the kind."""

    def first(self) -> Any:
        """A driver connection that the first transaction will use, where one can be had before there is an engine; else None."""
        return None

    @cached_property
    def prepared(self) -> "StatementCache":
        """The compiled statements."""
        return compiled_for(self.kind, self.schema, self.rereader)

    def connect(self, *, write: bool) -> Connection:
        """A connection for one transaction of that kind."""
        while self.idle is not None and (kept := self.idle[write].take()) is not None:
            if self.alive(kept.connection.driver_connection):
                return kept
            self.discard(kept)
        return (self.writer if write else self.reader).connect()

    def ready_to_read(self) -> Connection | None:
        """A connection on which a snapshot begins without waiting for anybody, where one is kept."""
        return None if self.idle is None else self.idle[False].take_if(self._ready)

    def _ready(self, connection: Connection) -> bool:
        return self.alive(connection.connection.driver_connection)

    def ends_at_once(self, connection: Connection, driver: Any) -> bool:
        """Whether a snapshot ends on it without waiting for anybody."""
        return driver is not None and self.idle is not None and self.idle[False].has_room

    def release(self, connection: Connection, *, write: bool) -> None:
        """The counterpart of connect, after the transaction's end."""
        if connection.closed or connection.invalidated:
            connection.close()
            return
        driver = connection.connection.driver_connection
        if self.disposed or not self.usable(driver):
            self.discard(connection)
        elif self.idle is None or connection.get_transaction() is not None or self.in_transaction(driver):
            connection.close()  # a transaction whose COMMIT failed is still there, though not active
        else:
            self.idle[write].put(connection)

    def give_back(self, connection: Connection) -> None:
        """To its pool, from those that were kept for the next transaction."""
        connection.close()

    def discard(self, connection: Connection) -> None:
        """Close it without its pool, which would try to roll it back and log a traceback, or keep it after its own end."""
        connection.invalidate()
        connection.close()

    @abstractmethod
    def settle(self, driver: Any) -> None:
        """Called once, when the schema has been found or made right and before anything else is written."""

    @abstractmethod
    def begin(self, connection: Connection, *, write: bool, waiting: Waiting | None = None) -> Any:
        """Start a transaction on a connection that is in none -> its driver connection. The only place where one starts.

        On one of persist's own connections only the driver's transaction is started: SQLAlchemy's begins with the first statement
        that it runs, and `end` ends both.
        """

    def end(self, connection: Connection, driver: Any, *, commit: bool) -> None:
        """Commit or roll back what `begin` started; `driver` is None on an engine of the caller's."""
        of: Any = connection if driver is None or connection.get_transaction() is not None else driver
        (of.commit if commit else of.rollback)()

    def end_read(self, connection: Connection, driver: Any) -> None:
        """End a snapshot by committing nothing: of a rollback drivers think that what they prepared is gone."""
        self.end(connection, driver, commit=True)

    @abstractmethod
    def join(self, connection: Connection) -> None:
        """Make sure that the caller's own transaction holds what a write needs, and can hold savepoints."""

    @abstractmethod
    def begin_on_driver(self, driver: Any) -> None:
        """Start a write transaction on a held driver connection."""

    @abstractmethod
    def prepare_pinned(self, driver: Any) -> Callable[[], None]:
        """Set up a driver connection that is kept checked out for recorders; what is returned undoes it."""

    def runner(self, driver: Any) -> Any:
        """What runs statements on a held connection, each result being read before the next one starts."""
        return driver

    def prepare_inline(self, driver: Any) -> Callable[[], None] | None:
        """As `prepare_pinned`, for a connection that fails where it would have to wait; None where each commit waits."""
        return None

    @abstractmethod
    def interrupt(self, driver: Any) -> None:
        """Cancel what runs on the driver connection, from another thread; end the connection if that does not help."""

    @abstractmethod
    def usable(self, driver: Any) -> bool:
        """Whether a held driver connection can still be used."""

    def alive(self, driver: Any) -> bool:
        """As `usable`, for an idle connection: whether the database has not closed it since. No round trip."""
        return self.usable(driver)

    @abstractmethod
    def in_transaction(self, driver: Any) -> bool:
        """Whether the driver connection is inside a transaction."""

    def classify(self, error: BaseException) -> PersistError | None:
        """Our error for a driver's, or None where the error is not a driver's."""
        original = error.orig if isinstance(error, exc.StatementError) else error
        if isinstance(original, PersistError):
            return original
        if isinstance(original, OverflowError):
            return InvalidValue("value", "an integer must fit 64 bits.")
        if isinstance(original, UnicodeEncodeError):
            return InvalidValue("value", "the text holds a lone surrogate half.")
        if isinstance(original, UnicodeDecodeError):  # text that a driver could not give, in a row or in what is wrong
            return StoreCorrupt(str(self.path or self.name), f"stored text is not UTF-8 ({original.reason}).")
        if isinstance(original or error, exc.MissingGreenlet):
            return InvalidValue("connection", ONLY_INSIDE_RUN_SYNC)
        if isinstance(error, exc.ResourceClosedError):
            return Closed("connection")
        if isinstance(error, exc.InvalidRequestError):  # the caller's connection is in a state in which it can do nothing
            return InvalidValue("connection", str(error).partition("\n")[0])
        if isinstance(error, exc.TimeoutError):
            return StoreBusy(30.0, "every connection of the pool is in use")
        return None if original is None else self.translate_driver_error(original)

    @abstractmethod
    def translate_driver_error(self, error: BaseException) -> PersistError | None:
        """Our error for one that the driver raised, or None for any other."""

    @abstractmethod
    def retryable(self, error: PersistError) -> bool:
        """Whether replaying the whole transaction may succeed: lock contention, serialization failure, deadlock."""

    @abstractmethod
    def to_plain_json(self, text: str) -> str:
        """Plain JSON text for the stored text of a Json column."""

    @abstractmethod
    def tables(self, connection: Connection) -> set[str]:
        """The names of the tables in our schema."""

    @abstractmethod
    def upgrade_command(self) -> str:
        """What an operator types to upgrade this database."""

    @abstractmethod
    def reading_cursor(self, driver: Any) -> Any:
        """A cursor of the driver connection that reads a result on demand, for as long as the transaction lasts."""

    def leave_log_to_database(self, driver: Any) -> AbstractContextManager[None]:
        """For one statement on a held connection that writes a piece: it keeps no log, so the guard logs it."""
        return nullcontext()

    @abstractmethod
    def wakeups(self, listen_url: str | None) -> "Wakeups":
        """How a reader of the log learns of new events."""

    @abstractmethod
    def count_on(self, connection: Connection, tables: Sequence[Table]) -> None:
        """After rows with numbers of their own were inserted: the next number given is above them."""

    notice: "Statement | None" = None
    """A statement that wakes readers elsewhere when the transaction commits: parameters `stream` and `seq`."""

    def dispose(self) -> None:
        """Close every connection of the store; a connection that is still in use is closed when it is released."""
        self.disposed = True
        for idle in (self.idle or {}).values():
            idle.close()
        for engine in self.engines:
            engine.dispose()

    def abandon(self) -> None:
        """Forget inherited connections in a forked child, without touching their descriptors."""
        for engine in self.engines:
            engine.dispose(close=False)
