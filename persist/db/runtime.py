"""What the transactions and recorders of one store share: dialect, clock, ids, settings, compiled statements, locks."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Table

from persist.db.clock import Clock, cut, in_ms
from persist.db.dialects.base import Dialect
from persist.db.dialects.wakeups import Wakeups
from persist.db.hot import Statements
from persist.db.ids import IdMinter
from persist.db.locks import WriterLock
from persist.db.observers import Observers
from persist.db.ownership import Owner, inside, running_loop
from persist.db.pools import width
from persist.db.process import THIS
from persist.db.weak import WeakGroup
from persist.errors import Closed, EventLogSwitched, PersistError, StoreBusy, StoreForked, StoreInUse, TransactionOpen

if TYPE_CHECKING:
    from persist.settings import Settings

_ATTEMPTS = 5
_inherited: list[Any] = []

_HANDING_OVER = 0.5
"""Seconds in which another thread takes up a transaction that was handed to it."""


class EventLog(Protocol):
    """What makes events of the deeds of a transaction; see persist.events."""

    def write(self, db: Statements, deeds: Sequence[Any]) -> Sequence[Any]:
        """Number and store them, as the last statements of a transaction; the events."""

    def committed(self, events: Sequence[Any]) -> None:
        """They are durable now."""


class Runtime:
    """One per store."""

    def __init__(
        self, dialect: Dialect, settings: "Settings", clock: Clock, sleep: Callable[[float], None], *, owns_engine: bool = True
    ) -> None:
        self.dialect = dialect
        self.settings = settings
        self.limits = settings.json_limits
        self.clock = clock
        self.clock_ms, self.now = in_ms(clock), cut(clock)
        self.sleep = sleep
        self.ids = IdMinter(clock)
        self.owns_engine = owns_engine
        self.connections = None if owns_engine else width(dialect.writer.pool)
        """How many the pool of a caller's engine gives out at a time."""
        self.one_connection = dialect.in_memory or self.connections == 1
        """Whether a snapshot inside of a transaction would wait for that one's end."""
        self.scopes: dict[str, str] = {}
        """Whose file this is: what `_meta` says of run_id, instance_id and workspace_id."""
        self.read_only = dialect.read_only
        self.lock = WriterLock()
        self.observers = Observers()
        self.notes: defaultdict[str, set[str]] = defaultdict(set)
        """What a domain remembers of this store's own writes until the store closes, by topic."""
        self.log: EventLog | None = None
        """The database's log of events, where it is on."""
        self.listen_url: str | None = None
        self.watchers: WeakGroup[Wakeups] = WeakGroup()
        """Where readers of the log wait in this process."""
        self.tables: Callable[[], Sequence[Table]] = list
        """Every table, those that others refer to first; whoever wires the store knows them."""
        self.make_log: Callable[[], EventLog] | None = None
        self._forks = THIS.forks
        self.closed = False
        self._writing: set[Owner] = set()
        self._reading: set[Owner] = set()
        self._door = threading.RLock()
        """Held for a moment by whoever lets a transaction in, or nobody any more."""
        self._closers: set[int] = set()
        self.hot = dialect.hot

    def check_usable(self) -> None:
        """Before any descriptor is touched: StoreForked, Closed."""
        if self._forks != THIS.forks:
            raise StoreForked
        if self.closed:
            raise Closed("store")

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that opened the store."""
        return self._forks != THIS.forks

    def check_process(self) -> None:
        """StoreForked in a child of the process that opened the store. Before any lock of ours: its holder may not be here."""
        if self._forks != THIS.forks:
            raise StoreForked

    def leave_to_parent(self, connection: Any) -> bool:
        """In a forked child: keep what the parent was using, so that nobody ends or closes it here. False elsewhere."""
        if not self.forked:
            return False
        _inherited.append(connection)
        return True

    def enter_write(self, owner: Owner, what: str, cancelled: Callable[[], bool] | None = None) -> None:
        """Register a writer, and on SQLite wait for the store's lock. TransactionOpen inside a transaction that it waits for."""
        self.refuse_inside_transaction(what)
        if self.dialect.one_writer:
            self.refuse_blocking_loop(what)
            self.lock.acquire(owner, what=what, cancelled=cancelled)
        with self._door:
            refused = self._refuses(owner)
            if not refused:
                self._writing.add(owner)
        if refused:
            if self.dialect.one_writer:
                self.lock.release()
            raise Closed("store")

    def leave_write(self, owner: Owner) -> None:
        """The counterpart of enter_write."""
        self._writing.discard(owner)
        owner.end()
        if self.dialect.one_writer:
            self.lock.release()

    def enter_read(self, owner: Owner, what: str, cancelled: Callable[[], bool] | None = None) -> None:
        """Register a reader. The one connection of `:memory:` serves one transaction at a time."""
        if self.one_connection:
            self.refuse_inside_transaction(what)
        if self.dialect.in_memory:
            self.refuse_blocking_loop(what)
            self.lock.acquire(owner, what=what, cancelled=cancelled)
        with self._door:
            refused = self._refuses(owner)
            if not refused:
                self._reading.add(owner)
        if refused:
            if self.dialect.in_memory:
                self.lock.release()
            raise Closed("store")

    def leave_read(self, owner: Owner) -> None:
        """The counterpart of enter_read."""
        self._reading.discard(owner)
        owner.end()
        if self.dialect.in_memory:
            self.lock.release()

    def refuse_inside_transaction(self, what: str) -> None:
        """Inside the caller's own transaction, another one (or a recorder's commit) would wait for it, for ever."""
        deadline: float | None = None
        while (mark := inside(self._writing) or (inside(self._reading) if self.one_connection else None)) is not None:
            deadline = deadline or time.monotonic() + _HANDING_OVER
            if not mark.may_be_on_its_way or time.monotonic() > deadline:
                raise TransactionOpen(what)
            time.sleep(0.005)

    def refuse_blocking_loop(self, what: str) -> None:
        """Where waiting stops the event loop that has to go on, or the transaction that is waited for does not end."""
        loop = running_loop()
        if loop is None or not self.dialect.one_writer:
            return
        if any(owner.loop is loop for owner in (*self._writing, *(self._reading if self.dialect.in_memory else ()))):
            raise TransactionOpen(what)

    def anything_open(self) -> bool:
        """Whether a transaction is open, of whatever owner; a look at the log of events is none of anybody's."""
        return bool(self._writing) or any(not owner.looks for owner in list(self._reading))

    @contextmanager
    def closing(self) -> Iterator[None]:
        """The end of the store, which only the thread that closes it may begin a transaction in. StoreInUse while one is open."""
        closer = threading.get_ident()
        with self._door:
            if self.anything_open():
                raise StoreInUse
            self._closers.add(closer)
        try:
            yield
        finally:
            self._closers.discard(closer)

    def _refuses(self, owner: Owner) -> bool:
        # a look at the log ends by itself before the store does, which may yet fail to
        return self.closed or (bool(self._closers) and threading.get_ident() not in self._closers and not owner.looks)

    def retrying_lock(self, begin: Callable[[], None], asked: float | None = None) -> None:
        """Try to take the database's write lock: 5 attempts, 100·2ⁿ ms apart, none once the dialect's patience is over.

        `asked`: when it was asked for, by time.monotonic(); whatever was waited for since then counts.
        """
        started, patience = time.monotonic() if asked is None else asked, self.dialect.patience
        for attempt in range(_ATTEMPTS):
            try:
                return begin()
            except Exception as error:
                classified = self.dialect.classify(error)
                waited = time.monotonic() - started
                if not isinstance(classified, StoreBusy):
                    raise (classified or error) from error
                if attempt == _ATTEMPTS - 1 or waited >= patience:
                    raise StoreBusy(waited, classified.reason) from error
                self.sleep(min(0.1 * 2**attempt, patience - waited))
        return None

    def keep_log(self, on: bool) -> None:
        """From the next transaction on, keep the log of events; or no more."""
        self.log = self.make_log() if on and self.make_log is not None else None
        self.dialect.keeps_log = self.log is not None

    def wake_watchers(self) -> None:
        """There is something new in the log."""
        for wakeups in self.watchers.members():
            wakeups.tell()

    def stop_watchers(self) -> None:
        """The store is closing: returns when none of them looks at the log any more."""
        for wakeups in self.watchers.members():
            wakeups.stop()
            with wakeups.reading:
                pass

    def translate(self, error: BaseException) -> BaseException:
        """Ours for a driver's error; anything else as it is."""
        if isinstance(error, PersistError):
            return error
        ours = self.dialect.classify(error)
        if isinstance(ours, EventLogSwitched):
            self.keep_log(True)
        return ours or error
