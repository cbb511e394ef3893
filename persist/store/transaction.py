"""A transaction as callers see it: the repositories of every domain over one unit of work, and the block it lasts for."""

import sys
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from persist.db.concurrency.ownership import forget_ended
from persist.db.expressions.locking import LOCK_TIMEOUT_SECONDS
from persist.db.transactions.database_transaction import TransactionEvents
from persist.db.transactions.repository import Sync, TransactionPerVerb
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork, check_actor
from persist.domains import Domains
from persist.errors import Conflict, InvalidValue, PersistError, StoreBusy, TransactionOpen, UnreadableRow
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.operations import bounded_deletion
else:
    bounded_deletion = lazy_module("persist.db.operations.bounded_deletion")

T = TypeVar("T")

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
    """Seconds to wait before a transaction runs again, doubled each time; None if the error is final.

    Final are errors that the dialect's `retryable` does not name, and that of the last attempt. `attempt` counts from 0.
    """
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
    """A call of a verb in its own transaction. A verb that writes is tried again, as Store.transact does.

    `interruptible`: another thread may call `interrupt`. On SQLite, waiting for the write lock then costs more.
    """

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
        """Run the verb and commit; its result."""
        return with_retries(self._runtime, self._once, over=self._is_over) if self._writes else self._once()

    def _is_cancelled(self) -> bool:
        return self._cancelled

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
        work.begin(self._is_cancelled if self._interruptible else None)
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
    """Return the same error of a verb whose changes are committed."""
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
