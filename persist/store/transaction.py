"""A transaction as callers see it: the repositories of every domain over one unit of work, its block, and the log of events."""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from persist.db.changes.journal import COMMITTED
from persist.db.concurrency.ownership import forget_ended
from persist.db.concurrency.worker_threads import Timer
from persist.db.expressions.locking import LOCK_TIMEOUT_SECONDS
from persist.db.transactions.database_transaction import TransactionEvents
from persist.db.transactions.repository import Sync, TransactionPerVerb
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_snapshot
from persist.db.transactions.unit_of_work import UnitOfWork, check_actor
from persist.db.transactions.verb_frame import Verb
from persist.db.values.arguments import check_flag
from persist.domains import Domains
from persist.errors import Conflict, InvalidValue, PersistError, ReadOnlyTransaction, StoreBusy, TransactionOpen, UnreadableRow
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.operations import bounded_deletion
    from persist.events import first_snapshots, switching, watching, writing
    from persist.events.schemas import Event
else:
    bounded_deletion = lazy_module("persist.db.operations.bounded_deletion")
    first_snapshots = lazy_module("persist.events.first_snapshots")
    switching = lazy_module("persist.events.switching")
    watching = lazy_module("persist.events.watching")
    writing = lazy_module("persist.events.writing")


T = TypeVar("T")
log = logging.getLogger("persist")

_PATIENCE = LOCK_TIMEOUT_SECONDS
"""Seconds of waiting for a lock after which a verb outside of a transaction is not tried again."""


class Transaction(Domains[Sync]):
    """`tx.<domain>.<aggregate>.<verb>`. One thread at a time uses it, whichever entered it. Raises WrongOwner for any other."""

    _work: UnitOfWork


def work_of(tx: Transaction) -> UnitOfWork:
    """The unit of work of a transaction, for modules of persist that run their own statements."""
    return tx._work


def explain(work: UnitOfWork, error: Conflict) -> Conflict:
    """The error of a refused deletion, with whose rows are in its way."""
    return bounded_deletion.explained(work, error)


def new_work(runtime: Runtime, *, writable: bool, actor: str | None = None) -> UnitOfWork:
    """The unit of work of a new transaction, in which the actor acts. Raises as `check_actor`."""
    if actor is None:
        return UnitOfWork(runtime, writable=writable)
    actor = check_actor(actor)
    work = UnitOfWork(runtime, writable=writable)
    work.events = TransactionEvents(actor=actor)
    return work


class TransactionBlock:
    """`with store.begin() as tx`: a transaction that commits at the end of the block, and rolls back on an error."""

    __slots__ = ("_actor", "_cancelled", "_runtime", "_work", "_writable", "retries")

    def __init__(
        self, runtime: Runtime, *, writable: bool, actor: str | None = None, cancelled: Callable[[], bool] | None = None
    ) -> None:
        self._runtime, self._writable, self._actor, self._cancelled = runtime, writable, actor, cancelled
        self._work: UnitOfWork | None = None
        self.retries = 0
        """How many attempts came before this one."""

    def __enter__(self) -> Transaction:
        if self._work is not None:
            raise TransactionOpen("entering a block a second time")
        work = new_work(self._runtime, writable=self._writable, actor=self._actor)
        if self.retries and work.transaction.trace is not None:
            work.transaction.trace.within(None, self.retries)
        work.begin(self._cancelled)
        if work.marks:
            work.owner.set_holder(sys._getframe(1))
        self._work = work
        return Transaction(work)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        work = self._work
        assert work is not None
        with work.owner.using:  # wait for a verb that another thread is still running
            if kind is not None:
                work.rollback()
            elif self._writable:
                work.commit()
            else:
                work.end_read()
        if work.marks:
            forget_ended()
        if kind is None and self._writable:
            for topic, value in work.announcements:
                self._runtime.observers.tell(topic, value)


def pause_before_retry(runtime: Runtime, error: PersistError, attempt: int, attempts: int) -> float | None:
    """Seconds to wait before attempt `attempt` (from 0) is repeated, doubled each time; None if the error is final."""
    return 0.1 * 2**attempt if attempt < attempts - 1 and runtime.errors.retryable(error) else None


def with_retries(
    runtime: Runtime, transaction: Callable[[], T], attempts: int = 5, over: Callable[[PersistError], bool] | None = None
) -> T:
    """Run a transaction until `pause_before_retry` gives up; its result. `attempts`: all runs. No retry if `over(error)`."""
    for attempt in range(attempts):
        try:
            return transaction()
        except PersistError as error:
            pause = pause_before_retry(runtime, error, attempt, attempts)
            if pause is None or (over is not None and over(error)):
                raise
            runtime.counters.retried(runtime.errors.retry_cause(error))
            runtime.sleep(pause)
    raise AssertionError("unreachable: the last attempt returns or raises")


def check_attempts(attempts: int) -> None:
    """Refuse to run something less than once."""
    if attempts < 1:
        raise InvalidValue("attempts", "expected at least 1.")


def transact_with_retries(
    runtime: Runtime,
    block: Callable[[], TransactionBlock],
    fn: Callable[[Transaction], T],
    attempts: int = 5,
    over: Callable[[PersistError], bool] | None = None,
) -> T:
    """Run `fn` in a transaction, and again as `with_retries` says; its result."""
    check_attempts(attempts)
    calls = count()

    def once() -> T:
        attempt = block()
        attempt.retries = next(calls)
        with attempt as tx:
            return fn(tx)

    return with_retries(runtime, once, attempts, over)


class VerbRun:
    """A call of a verb in its own transaction. If `interruptible`, waiting for SQLite's lock costs more."""

    _context: Any = None
    """The caller's context, for who traces the store."""
    _attempts = 0
    """How many attempts came before."""

    def __init__(self, runtime: Runtime, verb: Callable[[UnitOfWork], Any], *, writes: bool, interruptible: bool = False) -> None:
        self._runtime, self._verb, self._writes, self._interruptible = runtime, verb, writes, interruptible
        self._work: UnitOfWork | None = None
        self._cancelled = False
        if runtime.tracer is not None:
            self._context = runtime.tracer.context()
        self.announcements: list[tuple[str, Any]] = []
        """What the observers are to be told once the call is over."""

    def run(self) -> Any:
        return with_retries(self._runtime, self._once, over=self._is_over) if self._writes else self._once()

    def _is_over(self, error: PersistError) -> bool:
        """Whether the call ends with the error: it was cancelled, or has waited for a lock as long as is documented."""
        return self._cancelled or (isinstance(error, StoreBusy) and error.waited >= _PATIENCE)

    def interrupt(self) -> None:
        """Cancel the call from another thread: its statement ends, and it is not tried again."""
        self._cancelled = True
        if self._work is not None:
            self._work.interrupt()

    def _once(self) -> Any:
        work = self._work = UnitOfWork(self._runtime, writable=self._writes)
        if (trace := work.transaction.trace) is not None:
            trace.within(self._context, self._attempts)
            self._attempts += 1
        work.is_alone, work.marks = True, False  # no code of the caller runs inside, so nothing can begin another transaction
        work.begin((lambda: self._cancelled) if self._interruptible else None)
        try:
            result = self._verb(work)
        except BaseException as error:
            committed = work.has_committed
            work.rollback()
            if committed and isinstance(error, UnreadableRow):
                raise _after_commit(error) from error
            raise
        if self._writes:
            work.commit()
        else:
            work.end_read()
        self.announcements = work.announcements
        return result


def _after_commit(error: UnreadableRow) -> UnreadableRow:
    made = UnreadableRow(error.table, error.key, error.column, f"{error.reason}, but what the call changed is committed")
    made.committed = True
    return made


def transaction_per_verb(runtime: Runtime) -> TransactionPerVerb:
    """Stands for the unit of work in a store's repositories: each verb is a transaction."""

    def run(verb: Callable[[UnitOfWork], Any], writes: bool) -> Any:
        call = VerbRun(runtime, verb, writes=writes)
        result = call.run()
        for topic, value in call.announcements:
            runtime.observers.tell(topic, value)
        return result

    return TransactionPerVerb(run, one_writer=runtime.dialect.one_writer)


class StoreEventLog:
    """Switches and follows the event log of one store. The methods of Store with the same purpose say more."""

    def __init__(self, runtime: Runtime, timer: Timer) -> None:
        self._runtime, self._timer = runtime, timer
        self._settler: first_snapshots.Settler | None = None

    def prepare(self, *, distributed: bool) -> None:
        """Set up how the runtime makes the writer of the log. `distributed`: tables may be on other nodes of a cluster."""
        runtime = self._runtime
        off, notify = partial(runtime.keep_log, False), runtime.dialect.event_log.notify
        runtime.make_log = lambda: writing.EventWriter(
            runtime.clock, runtime.scopes, notify, off, self.ended, distributed=distributed, actor=runtime.actor
        )

    def ended(self) -> None:
        """Wake the readers of the log after the end of a transaction with events."""
        if self._runtime.dialect.event_log.notify is None:
            self._runtime.wake_watchers()
            return
        if self._settler is None:
            self._settler = first_snapshots.Settler(self._runtime, self._timer)
        self._settler()

    def flush(self) -> None:
        """Tell the readers what they have not been told yet: the store is about to close."""
        if self._settler is not None:
            self._timer.forget(self._settler)  # other stores may share the timer, and it goes on
            self._settler.flush()

    @property
    def on(self) -> bool:
        return self._runtime.log is not None

    def switch(self, on: bool, progress: Callable[[int, int], object] | None = None) -> bool:
        runtime = self._runtime
        runtime.refuse_inside_transaction("switch_events()")
        if runtime.read_only:
            raise ReadOnlyTransaction("switch_events")
        tables = runtime.tables()
        if check_flag("on", on):
            changed = switching.switch_on(self._step, tables, lambda: runtime.keep_log(True), progress)
        else:
            changed = switching.switch_off(self._step, tables)
        runtime.keep_log(on)
        return changed

    def open_as(self, on: bool | None) -> None:
        """Switch the log as the opening of the store asks, and go on where switching it on was stopped."""
        if on is not None and (on != self.on or (on and in_snapshot(self._runtime, switching.is_unfinished))):
            try:
                self.switch(on)
            except UnreadableRow as error:  # the log is on, and the next switch writes what is missing
                log.warning("the log of events lacks the snapshot of a stream: %s", error)

    def _step(self, run: Callable[[UnitOfWork], T]) -> T:
        with TransactionBlock(self._runtime, writable=True) as tx, Verb(work_of(tx), "switch_events", writes=True):
            return run(work_of(tx))

    def watch(self, stream_id: str, after: int, timeout: float | None) -> "Iterator[Event]":
        return watching.watch(watching.Watcher(self._runtime, stream_id, after, timeout))

    def on_commit(self, callback: "Callable[[Sequence[Event]], object]") -> Callable[[], None]:
        if not self.on:
            raise InvalidValue("events", "the log of this database is off; open it with events=True.")
        return self._runtime.observers.add(COMMITTED, callback)
