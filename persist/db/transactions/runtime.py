"""What the transactions and recorders of one store share: dialect, clock, ids, settings, compiled statements, locks."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Table

from persist.db.changes.batch import StatementRunner
from persist.db.concurrency.fork_count import PROCESS
from persist.db.concurrency.observers import Observers, WeakGroup
from persist.db.concurrency.ownership import Owner, inside, running_loop
from persist.db.concurrency.writer_lock import WriterLock
from persist.db.connections import width
from persist.db.dialects.errors import conceal_values
from persist.db.dialects.interface import Dialect, Wakeups
from persist.db.observation import Counters, Tracer
from persist.db.values.clock import Clock, epoch_ms_clock, millisecond_clock
from persist.db.values.ids import IdMinter
from persist.db.values.json import JsonLimits
from persist.errors import (
    Closed,
    Conflict,
    EventLogSwitched,
    PersistError,
    ReadOnlyTransaction,
    StoreBusy,
    StoreForked,
    StoreInUse,
    TransactionOpen,
    Unavailable,
)

if TYPE_CHECKING:
    from persist.settings import Settings

_ATTEMPTS = 5
_inherited: list[Any] = []

_HANDOVER_TIMEOUT = 0.5
"""Seconds that another thread has to take over a transaction that was handed to it."""


class EventLog(Protocol):
    """Turns the changes of a transaction into events; see persist.events."""

    def write(self, db: StatementRunner, changes: Sequence[Any], actor: str | None = None) -> Sequence[Any]:
        """Number and store the events, as the last statements of a transaction, and return them. `actor`: None is the store's."""

    @property
    def database_logs(self) -> bool:
        """Whether the database itself logs a text delta that one statement inserts."""

    def ended(self) -> None:
        """Take note that a transaction with events has ended, and wake the readers."""


class Runtime:
    """What all transactions and recorders of one store share."""

    def __init__(
        self, dialect: Dialect, settings: "Settings", clock: Clock, sleep: Callable[[float], None], *, owns_engine: bool = True
    ) -> None:
        self.dialect = dialect
        self.connections, self.transactions, self.errors = dialect.connections, dialect.transactions, dialect.errors
        self.settings = settings
        self.limits = JsonLimits(settings.max_json_bytes, settings.max_json_depth)
        self.clock = clock
        self.clock_ms, self.now = epoch_ms_clock(clock), millisecond_clock(clock)
        self.sleep = sleep
        self.ids = IdMinter(clock)
        self.owns_engine = owns_engine
        self.pool_width = None if owns_engine else width(dialect.connections.writer.pool)
        """How many connections the pool of a caller's engine lends at a time; None for the store's own engine."""
        self.one_connection = dialect.in_memory or self.pool_width == 1
        """Whether there is a single connection, so that a snapshot inside a transaction would wait for its end."""
        self.scopes: dict[str, str] = {}
        """The owners of the file: run_id, instance_id and workspace_id from `_meta`."""
        self.strict = False
        """Whether only persist may write some tables of the file."""
        self.marks_writes = False
        """Whether write transactions mark themselves by a row of `_meta`, as a strict file made at revision 0028 wants it."""
        self.read_only = dialect.read_only
        self._may_refuse = self.read_only or self.one_connection or dialect.in_memory
        """Whether a writer may be refused although nobody writes."""
        self.lock = WriterLock()
        self.observers = Observers()
        self.counters = Counters()
        self.watches_rows = False
        """Whether the recorders' statements are logged or traced, as it was found when one of them wrote more than a row."""
        self.tracer: Tracer | None = None
        """Who traces transactions and turns; None unless `persist.otel.instrument` was called."""
        self.own_writes: defaultdict[str, set[str]] = defaultdict(set)
        """What a domain remembers of this store's own writes until the store closes, by topic."""
        self.log: EventLog | None = None
        """The database's log of events, where it is on."""
        self.actor = settings.actor
        """The actor of events where a transaction names none."""
        self.blob_store: Any = None
        """Where the bodies of blobs are kept (a BlobStore of persist.blobs), if not in the database."""
        self.turn_watch: Any = None
        """The TurnWatch of persist.chat that wakes followers of turns; None before the first follower. It ends with the store."""
        self.pinned: Any = None
        """The connection of the store's recorders."""
        self.listen_url: str | None = None
        self.watchers: WeakGroup[Wakeups] = WeakGroup()
        self.recording: WeakGroup[Any] = WeakGroup()  # the pinned connections: of the recorders, and of event loops
        """Where readers of the log wait in this process."""
        self.tables: Callable[[], Sequence[Table]] = list
        """Every table, referenced tables first; set by the code that wires the store."""
        self.explain: Callable[[Any, Conflict], Conflict] = lambda work, error: error
        """Says in a unit of work whose rows made the database refuse a deletion; set by the code that wires the store."""
        self.make_log: Callable[[], EventLog] | None = None
        self.forks = PROCESS.forks
        """The count of forks in the process that opened the store."""
        self.closed = False
        self._writing: set[Owner] = set()
        self._reading: set[Owner] = set()
        self._entry_lock = threading.RLock()
        """Held briefly to register a transaction, and to stop new ones at the close."""
        self._closers: set[int] = set()
        self.prepared = dialect.prepared

    def check_usable(self) -> None:
        """Raise StoreForked or Closed, before any file descriptor is touched."""
        self.check_process()
        if self.closed:
            raise Closed("store")

    @property
    def forked(self) -> bool:
        return self.forks != PROCESS.forks

    def check_process(self) -> None:
        """Raise StoreForked in a forked child, before any lock is taken: the thread that holds it may not exist here."""
        if self.forks != PROCESS.forks:
            raise StoreForked

    def leave_to_parent(self, connection: Any) -> bool:
        """In a forked child, keep a reference to the parent's connection, so that it is not closed here. False elsewhere."""
        if self.forked:
            _inherited.append(connection)
        return self.forked

    def enter_write(self, owner: Owner, what: str, cancelled: Callable[[], bool] | None = None) -> None:
        """Register a writer; on SQLite wait for the store's writer lock. TransactionOpen inside of the caller's own one."""
        if self._writing or self._may_refuse or self.closed or self.forks != PROCESS.forks:
            self.check_may_write(what)
        if self.dialect.one_writer:
            self.lock.acquire(owner, what=what, cancelled=cancelled)
        with self._entry_lock:
            refused = (self.closed or self._closers) and self._refuses(owner)
            if not refused:
                self._writing.add(owner)
        if refused:
            if self.dialect.one_writer:
                self.lock.release()
            raise Closed("store")

    def check_may_write(self, what: str) -> None:
        """Raise as `check_outside` and `refuse_blocking_loop` say, or ReadOnlyTransaction."""
        self.check_outside(what)
        if self.read_only:
            raise ReadOnlyTransaction(what)
        if self._writing or self.dialect.in_memory:
            self.refuse_blocking_loop(what)

    def leave_write(self, owner: Owner) -> None:
        self._writing.discard(owner)
        owner.end()
        if self.dialect.one_writer:
            self.lock.release()

    def enter_read(self, owner: Owner, what: str, cancelled: Callable[[], bool] | None) -> None:
        """Register a reader. The one connection of `:memory:` serves one transaction at a time."""
        if self.one_connection:
            self.check_outside(what)
        elif self.closed or self.forks != PROCESS.forks:
            self.check_usable()
        if self.dialect.in_memory:
            self.refuse_blocking_loop(what)
            self.lock.acquire(owner, what=what, cancelled=cancelled)
        with self._entry_lock:
            refused = (self.closed or self._closers) and self._refuses(owner)
            if not refused:
                self._reading.add(owner)
                self.counters.snapshots += 1
        if refused:
            if self.dialect.in_memory:
                self.lock.release()
            raise Closed("store")

    def leave_read(self, owner: Owner) -> None:
        self._reading.discard(owner)
        owner.end()
        if self.dialect.in_memory:
            self.lock.release()

    def check_outside(self, what: str) -> None:
        """Raise StoreForked, Closed or TransactionOpen unless the caller may write now, in another transaction than its own."""
        self.check_usable()
        if self._writing or self.one_connection:
            self.refuse_inside_transaction(what)

    def refuse_inside_transaction(self, what: str) -> None:
        """Raise TransactionOpen inside the caller's own transaction: another one, or a recorder's commit, would wait for ever."""
        deadline: float | None = None
        while (mark := inside(self._writing) or (inside(self._reading) if self.one_connection else None)) is not None:
            deadline = deadline or time.monotonic() + _HANDOVER_TIMEOUT
            if not mark.may_be_on_its_way or time.monotonic() > deadline:
                raise TransactionOpen(what)
            time.sleep(0.005)

    def refuse_blocking_loop(self, what: str) -> None:
        """Raise TransactionOpen if waiting would block the event loop that has to end the transaction that is waited for."""
        loop = running_loop()
        if loop is None or not self.dialect.one_writer:
            return
        if any(owner.loop is loop for owner in (*self._writing, *(self._reading if self.dialect.in_memory else ()))):
            raise TransactionOpen(what)

    @property
    def open_transactions(self) -> tuple[int, int]:
        """How many transactions are open that write, and how many that read; recorders have a connection of their own."""
        return len(self._writing), len(self._reading)

    def anything_open(self) -> bool:
        """Whether any transaction is open. Those of the store itself, as of watchers of the event log, do not count."""
        return any(not owner.is_snapshot for owner in (*self._writing, *self._reading))

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Close the store: only this thread may begin transactions inside. Raises StoreInUse while a transaction is open."""
        closer = threading.get_ident()
        with self._entry_lock:
            if self.anything_open():
                raise StoreInUse
            self._closers.add(closer)
        try:
            yield
        finally:
            self._closers.discard(closer)

    def _refuses(self, owner: Owner) -> bool:
        # a watcher's snapshot ends by itself before the store is closed, and closing may still fail
        return self.closed or (bool(self._closers) and threading.get_ident() not in self._closers and not owner.is_snapshot)

    def retrying_lock(self, begin: Callable[[], None]) -> None:
        """Try to take the database's write lock: 5 attempts, 100·2ⁿ ms apart, none once the dialect's timeout is over."""
        started = time.monotonic()
        try:
            begin()
        except Exception as error:
            self.begin_later(begin, error, started)

    def begin_later(self, begin: Callable[[], None], error: Exception, since: float) -> None:
        """Try to take the lock again, as `retrying_lock` says, after a first attempt that met this error."""
        patience = self.dialect.write_lock_timeout
        for attempt in range(_ATTEMPTS):
            classified = self.errors.classify(error)
            waited = time.monotonic() - since
            if not isinstance(classified, StoreBusy):
                raise (classified or error) from error
            if attempt == _ATTEMPTS - 1 or waited >= patience:
                raise StoreBusy(waited, classified.reason) from error
            self.counters.retried(self.errors.retry_cause(error))
            self.sleep(min(0.1 * 2**attempt, patience - waited))
            try:
                return begin()
            except Exception as failed:
                error = failed

    def keep_log(self, on: bool) -> None:
        """Write the log of events from the next transaction on, or stop writing it."""
        self.log = self.make_log() if on and self.make_log is not None else None
        self.dialect.event_log.kept = self.log is not None

    def commit_error(self, error: BaseException) -> BaseException:
        """The error of a COMMIT: Unavailable with an unknown outcome after a lost connection, unless the server rolled back."""
        ours = self.translate(error)
        if isinstance(ours, Unavailable) and not self.errors.tells_rollback(error):
            return Unavailable("The connection was lost while committing", outcome="unknown")
        return ours

    def wake_watchers(self) -> None:
        for wakeups in self.watchers.members():
            wakeups.tell()

    def stop_watchers(self) -> None:
        """Stop the watchers of this process; returns when none of them reads the log any more."""
        for wakeups in self.watchers.members():
            wakeups.stop()
            with wakeups.reading:
                pass

    def translate(self, error: BaseException) -> BaseException:
        """Return the PersistError for a driver's error; any other error as it is. Neither shows stored values."""
        if isinstance(error, PersistError):
            conceal_values(error)
            return error
        ours = self.errors.classify(error)
        if isinstance(ours, EventLogSwitched):
            self.keep_log(True)
        return ours or error
