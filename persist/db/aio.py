"""The async face: the one synchronous body of every verb, run on worker threads, one hop per verb.

A transaction stays on one connection; its verbs queue on one asyncio lock, so that `gather` inside it is safe. On
cancellation the running statement is interrupted and its end awaited before the transaction is rolled back: nothing is
committed, and no lock is leaked.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from persist.db.locks import PATIENCE
from persist.db.repository import Repository
from persist.db.runtime import Runtime, entered
from persist.db.work import Work
from persist.db.workers import Workers
from persist.errors import StoreBusy, WrongOwner

S = TypeVar("S", bound=Repository)
P = ParamSpec("P")
R = TypeVar("R")

_WIDTH = 25  # transactions of a kind at a time: what the pools hold


class Hops:
    """The worker threads of one store, never fewer than the transactions that may need one."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.workers = Workers(2 * _WIDTH + 2)
        # Whoever waits for a transaction waits here, not on a thread that an open transaction may need.
        self._writers = asyncio.Semaphore(1 if runtime.dialect.one_writer else _WIDTH)
        self._readers = self._writers if runtime.dialect.in_memory else asyncio.Semaphore(_WIDTH)

    async def admit(self, *, writable: bool) -> asyncio.Semaphore:
        """Wait for the turn to open a transaction, at most `PATIENCE` seconds (StoreBusy); release it after its end."""
        gate = self._writers if writable else self._readers
        try:
            async with asyncio.timeout(PATIENCE):
                await gate.acquire()
        except TimeoutError:
            raise StoreBusy(PATIENCE, "other transactions of this store do not end") from None
        return gate

    async def whole(self, transaction: Callable[[], R], *, writable: bool) -> R:
        """A transaction of the synchronous face in one hop. A cancellation waits for its end, and does not stop it."""
        gate = await self.admit(writable=writable)
        try:
            return await self.workers.call(transaction)
        finally:
            gate.release()

    def close(self) -> None:
        """After the last call."""
        self.workers.close()


class AsyncWork:
    """An async transaction: the unit of work, the hops it is run by, and whose it is."""

    def __init__(self, hops: Hops, work: Work) -> None:
        self.work = work
        work.thread = None  # worker threads take turns; ownership is checked here
        self._hops = hops
        self._lock = asyncio.Lock()
        self._gate: asyncio.Semaphore | None = None
        self._outer: tuple[object, ...] = ()
        self._ending = False

    async def begin(self) -> None:
        """Open it, or leave nothing behind. The object exists before the hop: a cancelled one can be undone."""
        what = "begin()" if self.work.writable else "read()"
        runtime = self.work.runtime
        runtime.check_usable()
        if self.work.writable or runtime.dialect.in_memory:
            runtime.refuse_inside_transaction(what)
        self._gate = await self._hops.admit(writable=self.work.writable)
        called_off = threading.Event()
        try:
            if not self._begun():
                await self._hops.workers.call(lambda: self.work.begin(called_off.is_set), called_off.set)
        except BaseException:
            if self.work.is_open:
                await self._hops.workers.call(self.work.rollback)
            self._gate.release()
            raise
        self._outer = entered.get()
        entered.set((*self._outer, self.work.owner))

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
                await self._hops.workers.call(self._ended(clean))
        except asyncio.CancelledError as error:  # it was carried out nevertheless
            cancelled = error
        finally:
            self._lock.release()
            entered.set(self._outer)
            self._gate.release()
        for topic, value in self.work.announcements:
            await self.work.runtime.observers.tell_async(topic, value)
        if cancelled is not None:
            raise cancelled

    def _ended(self, clean: bool) -> Callable[[], None]:
        if not clean:
            return self.work.rollback
        return self.work.commit if self.work.writable else self.work.end_read

    async def call(self, function: Callable[[], R]) -> R:
        """One verb."""
        self.work.runtime.check_process()
        if self.work.owner not in entered.get() and self.work.is_open:
            raise WrongOwner
        async with self._lock:
            return await self._hops.workers.call(function, self.work.interrupt)


class JoinedWork:
    """Verbs inside a transaction of the host's async connection, through its own bridge to synchronous code."""

    def __init__(self, run_sync: Callable[[Callable[[Any], Any]], Awaitable[Any]], work: Work) -> None:
        self.work = work
        work.thread = None
        self._run_sync = run_sync
        self._lock = asyncio.Lock()

    async def call(self, function: Callable[[], R]) -> R:
        """One verb."""
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
