"""The async API: the synchronous body of every verb runs on a worker thread, one thread switch per verb."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from copy import copy
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from persist.db.concurrency.ownership import forget_ended, running_loop
from persist.db.concurrency.semaphore import Lease, Semaphore
from persist.db.concurrency.worker_threads import Timer, Workers
from persist.db.concurrency.writer_lock import PATIENCE
from persist.db.connections import MAX, shares
from persist.db.transactions.repository import AsyncRun, Repository, Split, TransactionPerVerb, on_demand
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import StoreBusy, WrongOwner

R = TypeVar("R")

log = logging.getLogger("persist")


class WorkerPool:
    """The worker threads of one store: at least one for every transaction that may be open."""

    def __init__(self, runtime: Runtime, timer: Timer) -> None:
        self._runtime, self._lent = runtime, False
        connections = 2 * MAX + 1 if runtime.pool_width is None else runtime.pool_width
        writers, readers = shares(connections, one_writer=runtime.dialect.one_writer)
        self.workers = Workers(writers + readers + 2)
        # Tasks wait here for their transaction, not on a thread that an open transaction may need, nor for the pool.
        self._writers = Semaphore(writers, timer)
        self._readers = self._writers if runtime.one_connection else Semaphore(readers, timer)

    def for_store(self, runtime: Runtime) -> "WorkerPool":
        """Share the threads and turns with another store, whose connections come from the same pool."""
        shared = copy(self)
        shared._runtime, shared._lent = runtime, True
        return shared

    async def admit(self, lease: Lease, *, writable: bool) -> Semaphore:
        """Wait for one's turn to open a transaction. Raises StoreBusy once none has ended for `PATIENCE` seconds."""
        gate = self._writers if writable else self._readers
        if not gate.enter(lease):
            asked = time.monotonic()
            try:
                await gate.wait(lease, PATIENCE)
            except TimeoutError:
                what = "writing" if writable else "reading"
                reason = f"none of the {what} transactions that are open in this store ends (open: {gate.holders})"
                raise StoreBusy(time.monotonic() - asked, reason) from None
        gate.watch()
        return gate

    async def run_transaction(
        self, transaction: Callable[[], R], *, writable: bool, interrupt: Callable[[], None] | None = None
    ) -> R:
        """Run a synchronous transaction in one call on a worker thread. If cancelled: `interrupt`, then its end."""
        self._runtime.check_usable()
        lease = _Threads(asyncio.get_running_loop())
        gate = await self.admit(lease, writable=writable)

        def run() -> R:
            try:
                return transaction()
            finally:
                gate.release(lease)

        try:
            return await self.workers.call(run, interrupt)
        except Exception:
            gate.release(lease)  # `run` may never have started
            raise

    async def snapshot(self, read: Callable[[], R]) -> R:
        """Run a read of its own on a worker thread. If cancelled, it ends by itself."""
        return await self.run_transaction(read, writable=False)

    def recover(self) -> None:
        """Roll back the transactions that closed event loops left open."""
        for gate in (self._writers, self._readers):
            gate.recover_permits(time.monotonic())

    def close(self) -> None:
        if not self._lent:
            self.workers.close()


class _Threads(Lease):
    """The lease of a transaction that ends on its worker thread, even if the event loop is closed."""

    __slots__ = ()

    def recover(self) -> bool:
        return False


class AsyncUnitOfWork(Lease):
    """An async transaction: a unit of work, its worker pool, and its event loop."""

    def __init__(self, workers: WorkerPool, work: UnitOfWork, retries: int = 0) -> None:
        super().__init__(asyncio.get_running_loop())
        if retries and work.transaction.trace is not None:
            work.transaction.trace.within(None, retries)
        self.work = work
        work.marks = False  # several worker threads run its verbs; this class marks the owner itself
        self._worker_pool = workers
        self._lock = asyncio.Lock()
        self._gate: Semaphore | None = None
        self._ending = False
        self._deserted = False
        self._busy = False

    @property
    def stranded(self) -> bool:
        """Whether the transaction's block was left, or can only be left, outside of its event loop."""
        return self._deserted or super().stranded

    def recover(self) -> bool:
        """Roll back a transaction that its event loop did not end. False while a worker thread still runs a verb of it."""
        if self._busy:
            return False
        if self.work.is_open:
            log.warning("an event loop was left in the middle of a transaction, which is rolled back")
            self.work.rollback()
        return True

    async def begin(self) -> None:
        """Open the transaction, or leave nothing behind: a begin that is cancelled on its worker thread is rolled back."""
        what = "begin()" if self.work.writable else "read()"
        runtime = self.work.runtime
        runtime.check_usable()
        if self.work.writable or runtime.one_connection:
            runtime.refuse_inside_transaction(what)
        self._gate = await self._worker_pool.admit(self, writable=self.work.writable)
        called_off = threading.Event()
        try:
            if not self._begun():
                await self._hop(lambda: self.work.begin(called_off.is_set), called_off.set)
        except GeneratorExit:  # the event loop is closed, so nothing can be awaited
            called_off.set()
            raise
        except BaseException:
            try:
                if self.work.is_open:
                    await self._hop(self.work.rollback)
            finally:  # the rollback is carried out even if this task is cancelled once more
                self._gate.release(self)
            raise
        self.work.owner.set_holder()

    def _begun(self) -> bool:
        """Open a snapshot on the loop if a connection is ready, which beats a thread switch. False: nothing was opened."""
        work, runtime = self.work, self.work.runtime
        runtime.check_usable()
        ready = None if work.writable else runtime.connections.ready_to_read()
        if ready is not None:
            work.transaction.take(ready)
            work.begin()
        return ready is not None

    async def end(self, *, clean: bool) -> None:
        """Commit if the block ended cleanly, else roll back, despite cancellations; a cancellation is raised afterwards."""
        assert self._gate is not None
        if self.work.runtime.forked:
            self._ended(clean)()  # the worker threads and the transaction belong to the parent process
            return
        if running_loop() is not self.loop:  # the garbage collector leaves the block, or it is left by mistake
            self._deserted = True
            if not clean:
                return
            self._gate.recover_permits(time.monotonic())
            raise WrongOwner
        cancelled: asyncio.CancelledError | None = None
        while not self._ending:
            try:
                await self._lock.acquire()  # a task that was started inside may still run a verb
                self._ending = True
            except asyncio.CancelledError as error:
                cancelled = error
        try:
            if clean and not self.work.writable and self.work.ends_at_once:  # on the loop, without a thread switch
                self.work.end_read()
            else:
                await self._hop(self._ended(clean))
        except asyncio.CancelledError as error:  # the commit or rollback was carried out nevertheless
            cancelled = error
        finally:
            self._lock.release()
            if running_loop() is self.loop:  # else the garbage collector runs this, in an unrelated context
                forget_ended()
            self._gate.release(self)
        for topic, value in self.work.announcements:
            await self.work.runtime.observers.tell_async(topic, value)
        if cancelled is not None:
            raise cancelled

    def _ended(self, clean: bool) -> Callable[[], None]:
        if not clean:
            return self.work.rollback
        return self.work.commit if self.work.writable else self.work.end_read

    async def call(self, function: Callable[[], R]) -> R:
        self.work.runtime.check_process()
        if self.work.is_open:
            if running_loop() is not self.loop or (self._lock.locked() and not self.work.owner.is_with_caller):
                raise WrongOwner
            self.work.owner.set_holder()
        async with self._lock:
            return await self._hop(function, self.work.interrupt)

    async def _hop(self, function: Callable[[], R], interrupt: Callable[[], None] | None = None) -> R:
        def run() -> R:
            try:
                return function()
            finally:
                self._busy = False
                if self.stranded and self._gate is not None:
                    self._gate.recover_permits(time.monotonic())  # no event loop will end this transaction

        self._busy = True
        return await self._worker_pool.workers.call(run, interrupt)


class JoinedUnitOfWork:
    """Verbs inside a transaction of the host's async connection or session, through its own bridge to synchronous code."""

    work: UnitOfWork

    def __init__(
        self,
        run_sync: Callable[[Callable[[Any], Any]], Awaitable[Any]],
        work: UnitOfWork | None = None,
        make: Callable[[Any], UnitOfWork] | None = None,
    ) -> None:
        """`make`: makes the unit of work of a synchronous session, whose connection is not known before the first verb."""
        self._make = make
        if work is not None:
            self.work = work
        self._run_sync = run_sync
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def begin(self) -> None:
        """Have the unit of work there, before a verb asks for it."""
        if self._make is not None:
            await self.call_with(self._begun)

    def _begun(self, given: Any) -> None:
        if self._make is not None:
            self.work, self._make = self._make(given), None

    async def call(self, function: Callable[[], R]) -> R:
        return await self.call_with(lambda _connection: function())

    async def call_with(self, function: Callable[[Any], R]) -> R:
        """What the function returns, which gets the synchronous connection or session."""
        self._loop = self._loop or running_loop()
        if running_loop() is not self._loop:
            raise WrongOwner
        async with self._lock:
            result: R = await self._run_sync(function)
            return result


class AsyncTransactionPerVerb:
    """The unit of work of an AsyncStore's repositories: each verb runs in a new transaction of `run`, writing or reading."""

    def __init__(self, run: AsyncRun, *, one_writer: bool) -> None:
        self.work = TransactionPerVerb(_never, one_writer=one_writer)
        self.run = run


def _never(verb: Callable[[UnitOfWork], Any], writes: bool) -> Any:
    raise AssertionError("the verbs of an AsyncStore are awaited")


AsyncWork = AsyncUnitOfWork | JoinedUnitOfWork | AsyncTransactionPerVerb


P = ParamSpec("P")


class AsyncFace:
    """The base of all classes that `async_face` makes: domains, and repositories, whose verbs run those of `_repository`."""

    _repository: Any

    def __init__(self, work: AsyncWork) -> None:
        self._work = work


@cache
def async_face(kind: Any) -> Any:
    """The asynchronous class of a domain or repository, named `Async…` and made once. Its parts are made at their first use."""
    parts: dict[str, Any] = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, on_demand):
                parts[name] = on_demand(find=lambda part=value: async_face(part.kind))  # type: ignore[misc]  # a bound default
            elif not name.startswith("_") and hasattr(value, "writes"):
                parts[name] = awaitable(value)
    if issubclass(kind, Repository):
        parts["_repository"] = on_demand(lambda work: kind(work.work))
    return type(f"Async{kind.__name__}", (AsyncFace,), parts)


def awaitable(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[AsyncFace, P], Coroutine[Any, Any, R]]:
    """Turn a verb into a coroutine function of the same signature. A `ready` attribute of it is called first."""
    ready: Callable[..., Awaitable[Any]] | None = getattr(method, "ready", None)
    splits: Split | None = getattr(method, "splits", None)
    checks, name = getattr(method, "checks", None), method.__qualname__

    @wraps(method)
    async def call(self: AsyncFace, /, *args: P.args, **kwargs: P.kwargs) -> R:
        work = self._work
        if isinstance(work, JoinedUnitOfWork):
            await work.begin()
        repository = self._repository
        if ready is not None:
            run = work.run if isinstance(work, AsyncTransactionPerVerb) else None
            args, kwargs = await ready(run, *args, **kwargs)
        if isinstance(work, AsyncTransactionPerVerb):
            kind = type(repository)
            if splits is not None:
                parts = await work.run(splits.find(kind, args, kwargs), False)
                if parts:
                    return cast("R", sum([await work.run(splits.run(kind, part), True) for part in parts]))
            if checks is not None and work.work.checks_first(name):
                idle = await work.run(lambda own: checks(kind(own), *args, **kwargs), False)
                if idle is not None:
                    return idle.result  # type: ignore[no-any-return]  # what the verb itself would return
            result: R = await work.run(lambda own: method(kind(own), *args, **kwargs), method.writes)  # type: ignore[attr-defined]  # a verb
            if checks is not None:
                work.work.note(name, did_something=bool(result))
            return result
        return await work.call(lambda: method(repository, *args, **kwargs))

    return call
