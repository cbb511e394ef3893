"""The async face: the one synchronous body of every verb, run on worker threads, one hop per verb.

A transaction stays on one connection; its verbs queue on one asyncio lock, so that `gather` inside it is safe. On
cancellation the running statement is interrupted and its end awaited before the transaction is rolled back: nothing is
committed, and no lock is leaked.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from persist.db.locks import PATIENCE
from persist.db.ownership import forget_ended, running_loop
from persist.db.pools import MOST, shares
from persist.db.repository import Repository
from persist.db.runtime import Runtime
from persist.db.semaphore import Lease, Semaphore
from persist.db.timer import Timer
from persist.db.work import Work
from persist.db.workers import Workers
from persist.errors import StoreBusy, WrongOwner

S = TypeVar("S", bound=Repository)
P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("persist")


class Hops:
    """The worker threads of one store, never fewer than the transactions that may need one."""

    def __init__(self, runtime: Runtime, timer: Timer) -> None:
        self._runtime = runtime
        connections = 2 * MOST + 1 if runtime.connections is None else runtime.connections
        writers, readers = shares(connections, one_writer=runtime.dialect.one_writer)
        self.workers = Workers(writers + readers + 2)
        # Whoever waits for a transaction waits here, not on a thread that an open transaction may need, nor for the pool.
        self._writers = Semaphore(writers, timer)
        self._readers = self._writers if runtime.one_connection else Semaphore(readers, timer)

    async def admit(self, lease: Lease, *, writable: bool) -> Semaphore:
        """Wait for the turn to open a transaction, at most `PATIENCE` seconds (StoreBusy); release the lease after its end."""
        gate = self._writers if writable else self._readers
        if not gate.enter(lease):
            try:
                await gate.wait(lease, PATIENCE)
            except TimeoutError:
                raise StoreBusy(PATIENCE, "other transactions of this store do not end") from None
        gate.watch()
        return gate

    async def whole(self, transaction: Callable[[], R], *, writable: bool) -> R:
        """A transaction of the synchronous face in one hop. A cancellation waits for its end, and does not stop it."""
        self._runtime.check_usable()
        lease = _Threads(asyncio.get_running_loop())
        gate = await self.admit(lease, writable=writable)

        def run() -> R:
            try:
                return transaction()
            finally:
                gate.release(lease)

        try:
            return await self.workers.call(run)
        except Exception:
            gate.release(lease)  # it may never have run
            raise

    def recover(self) -> None:
        """End the transactions of event loops that were closed in the middle of them."""
        for gate in (self._writers, self._readers):
            gate.look(time.monotonic())

    def close(self) -> None:
        """After the last call."""
        self.workers.close()


class _Threads(Lease):
    """The lease of a transaction that ends on its worker thread, whatever becomes of the loop."""

    __slots__ = ()

    def recover(self) -> bool:
        return False


class AsyncWork(Lease):
    """An async transaction: the unit of work, the hops it is run by, and whose it is."""

    def __init__(self, hops: Hops, work: Work) -> None:
        super().__init__(asyncio.get_running_loop())
        self.work = work
        work.marks = False  # worker threads take turns; who is inside of it is noted here
        self._hops = hops
        self._lock = asyncio.Lock()
        self._gate: Semaphore | None = None
        self._ending = False
        self._deserted = False
        self._busy = False

    @property
    def stranded(self) -> bool:
        """Whether its block was left, or can only be left, where its loop does not run."""
        return self._deserted or super().stranded

    def recover(self) -> bool:
        """Roll back what its own loop did not end; not yet while a worker thread is in the middle of it."""
        if self._busy:
            return False
        if self.work.is_open:
            log.warning("an event loop was left in the middle of a transaction, which is rolled back")
            self.work.rollback()
        return True

    async def begin(self) -> None:
        """Open it, or leave nothing behind. The object exists before the hop: a cancelled one can be undone."""
        what = "begin()" if self.work.writable else "read()"
        runtime = self.work.runtime
        runtime.check_usable()
        if self.work.writable or runtime.one_connection:
            runtime.refuse_inside_transaction(what)
        self._gate = await self._hops.admit(self, writable=self.work.writable)
        called_off = threading.Event()
        try:
            if not self._begun():
                await self._hop(lambda: self.work.begin(called_off.is_set), called_off.set)
        except GeneratorExit:  # its loop is closed, and can wait for nothing
            called_off.set()
            raise
        except BaseException:
            try:
                if self.work.is_open:
                    await self._hop(self.work.rollback)
            finally:  # cancelled once more, it was carried out nevertheless
                self._gate.release(self)
            raise
        self.work.owner.take_up()

    def _begun(self) -> bool:
        """Whether it could be opened here and now: a snapshot on a connection that is ready takes less than a hop."""
        work, runtime = self.work, self.work.runtime
        runtime.check_usable()
        ready = None if work.writable else runtime.dialect.ready_to_read()
        if ready is not None:
            work.use(ready)
            work.begin()
        return ready is not None

    async def end(self, *, clean: bool) -> None:
        """Commit, or roll back unless the block ended cleanly, whatever is cancelled; a cancellation goes on afterwards."""
        assert self._gate is not None
        if self.work.runtime.forked:
            return self._ended(clean)()  # the workers are the parent's, as the transaction is
        if running_loop() is not self.loop:
            return self._desert(clean)
        cancelled: asyncio.CancelledError | None = None
        while not self._ending:
            try:
                await self._lock.acquire()  # a verb of a task that was started inside may still run
                self._ending = True
            except asyncio.CancelledError as error:
                cancelled = error
        try:
            if clean and not self.work.writable and self.work.ends_at_once:  # as it began
                self.work.end_read()
            else:
                await self._hop(self._ended(clean))
        except asyncio.CancelledError as error:  # it was carried out nevertheless
            cancelled = error
        finally:
            self._lock.release()
            if running_loop() is self.loop:  # else the garbage collector ends this, in the context of who knows whom
                forget_ended()
            self._gate.release(self)
        for topic, value in self.work.announcements:
            await self.work.runtime.observers.tell_async(topic, value)
        if cancelled is not None:
            raise cancelled

    def _desert(self, clean: bool) -> None:
        """Left where its loop does not run: by the garbage collector, which can wait for nothing, or by a mistake."""
        assert self._gate is not None
        self._deserted = True
        if clean:
            self._gate.look(time.monotonic())
            raise WrongOwner

    def _ended(self, clean: bool) -> Callable[[], None]:
        if not clean:
            return self.work.rollback
        return self.work.commit if self.work.writable else self.work.end_read

    async def call(self, function: Callable[[], R]) -> R:
        """One verb."""
        self.work.runtime.check_process()
        if self.work.is_open:
            if running_loop() is not self.loop or (self._lock.locked() and not self.work.owner.is_with_caller):
                raise WrongOwner
            self.work.owner.take_up()
        async with self._lock:
            return await self._hop(function, self.work.interrupt)

    async def _hop(self, function: Callable[[], R], interrupt: Callable[[], None] | None = None) -> R:
        def run() -> R:
            try:
                return function()
            finally:
                self._busy = False
                if self.stranded and self._gate is not None:
                    self._gate.look(time.monotonic())  # nobody else will end it

        self._busy = True
        return await self._hops.workers.call(run, interrupt)


class JoinedWork:
    """Verbs inside a transaction of the host's async connection, through its own bridge to synchronous code."""

    def __init__(self, run_sync: Callable[[Callable[[Any], Any]], Awaitable[Any]], work: Work) -> None:
        self.work = work
        self._run_sync = run_sync
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def call(self, function: Callable[[], R]) -> R:
        """One verb."""
        self._loop = self._loop or running_loop()
        if running_loop() is not self._loop:
            raise WrongOwner
        async with self._lock:
            result: R = await self._run_sync(lambda _connection: function())
            return result


class AsyncRepository(Generic[S]):
    """The coroutines of one repository: `get = awaitable(Repository.get)`."""

    def __init__(self, repository: S, work: AsyncWork | JoinedWork) -> None:
        self._repository = repository
        self._async_work = work


def awaitable(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[AsyncRepository[S], P], Coroutine[Any, Any, R]]:
    """The same verb as a coroutine: same parameters, same result, same errors."""

    @wraps(method)
    async def call(self: AsyncRepository[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._async_work.call(lambda: method(self._repository, *args, **kwargs))

    return call
