"""The async store: the same names as Store, awaited."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from sqlalchemy import Engine

from persist.db.concurrency.observers import WeakGroup, on_loop, on_own_loop
from persist.db.connections import check_connection, session_in
from persist.db.group_commit.writer import GroupCommitter
from persist.db.transactions.async_transactions import (
    AsyncTransactionPerVerb,
    AsyncUnitOfWork,
    JoinedUnitOfWork,
    WorkerPool,
    async_face,
)
from persist.db.transactions.repository import Async
from persist.db.transactions.unit_of_work import OUTSIDE, UnitOfWork
from persist.db.values.clock import Clock
from persist.db.values.json import Json
from persist.domains import Domains
from persist.errors import PersistError, StoreInUse
from persist.lazy_imports import lazy_module
from persist.store.store import Store
from persist.store.transaction import VerbRun, check_attempts, new_work, pause_before_retry, work_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

    from persist.blobs.body_stores import Bodies
    from persist.chat.following import follower
    from persist.chat.recording import async_recorder
    from persist.events import watching
    from persist.events.schemas import Event
    from persist.settings import Settings
    from persist.store import metrics as measuring
    from persist.workflows import steps
    from persist.workflows.schemas import Lease, WorkflowRun

    class AsyncDomains(Domains[Async]):
        """See Domains: the repositories of every domain, whose verbs are coroutines."""

else:
    follower = lazy_module("persist.chat.following.follower")
    async_recorder = lazy_module("persist.chat.recording.async_recorder")
    watching = lazy_module("persist.events.watching")
    measuring = lazy_module("persist.store.metrics")
    steps = lazy_module("persist.workflows.steps")
    AsyncDomains = async_face(Domains)


S = TypeVar("S", bound="AsyncStore")


class Opening(Generic[S]):
    """The result of `AsyncStore.open`. Awaiting it returns the store; `async with` also closes the store at the end."""

    def __init__(self, make: Callable[[Store], S], opener: Callable[[], Store]) -> None:
        self._make, self._opener = make, opener
        self._store: S | None = None

    async def _open(self) -> S:
        opening = asyncio.get_running_loop().run_in_executor(None, self._opener)
        try:
            return self._make(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise

    def __await__(self) -> Generator[Any, None, S]:
        return self._open().__await__()

    async def __aenter__(self) -> S:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._store is not None:
            await self._store.close()


def _close_unwanted(opening: "asyncio.Future[Store]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


T = TypeVar("T")


class AsyncTransaction(AsyncDomains):
    """See Transaction. Verbs called by the task that entered it, and by tasks started inside, wait for each other.

    A task from outside may call verbs only while no other call runs in the transaction, else WrongOwner.
    """


class AsyncStore(AsyncDomains):
    """See Store. Verbs run on worker threads; recorders share one writer thread and its commits.

    `await store.<domain>.<aggregate>.<verb>` is a transaction of its own. If it is cancelled, its statement is interrupted, and
    its end is awaited: a verb that was about to commit may be done nevertheless.
    """

    def __init__(self, store: Store, worker_pool: WorkerPool | None = None) -> None:
        super().__init__(AsyncTransactionPerVerb(self._run_verb, one_writer=store.runtime.dialect.one_writer))
        self._store = store
        self._runtime = store.runtime
        self._worker_pool = worker_pool or WorkerPool(store.runtime, store.timer)
        self._writer = GroupCommitter(store.pinned)
        self._recorders: WeakGroup[async_recorder.AsyncRecorder] = WeakGroup()

    def __del__(self) -> None:
        if "_recorders" in vars(self) and not self._runtime.closed and not self._runtime.forked and not self._recorders.members():
            self._writer.leave()  # its thread would keep the store's connections

    @property
    def path(self) -> Path | None:
        """The SQLite file, None elsewhere."""
        return self._store.path

    @property
    def run_id(self) -> str | None:
        """See Store.run_id."""
        return self._store.run_id

    @property
    def instance_id(self) -> str | None:
        """See Store.instance_id."""
        return self._store.instance_id

    @property
    def workspace_id(self) -> str | None:
        """See Store.workspace_id."""
        return self._store.workspace_id

    @classmethod
    def open(
        cls,
        url: str | Path,
        *,
        migrate: bool | None = None,
        adopt: bool = False,
        schema: str | None = None,
        pooler: Literal["transaction"] | None = None,
        read_only: bool = False,
        events: bool | None = None,
        listen_url: str | None = None,
        blobs: "Bodies | None" = None,
        settings: "Settings | None" = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> "Opening[AsyncStore]":
        """See Store.open. Await it, or enter it: `async with AsyncStore.open(url) as store`."""
        return Opening(
            cls,
            lambda: Store.open(
                url,
                migrate=migrate,
                adopt=adopt,
                schema=schema,
                pooler=pooler,
                read_only=read_only,
                events=events,
                listen_url=listen_url,
                blobs=blobs,
                settings=settings,
                clock=clock,
                sleep=sleep,
            ),
        )

    @classmethod
    def from_engine(
        cls, engine: Engine, *, schema: str | None = None, settings: "Settings | None" = None, clock: Clock | None = None
    ) -> "Opening[AsyncStore]":
        """See Store.from_engine: a synchronous engine, used from worker threads."""
        return Opening(cls, lambda: Store.from_engine(engine, schema=schema, settings=settings, clock=clock))

    @asynccontextmanager
    async def begin(self, *, actor: str | None = None) -> AsyncIterator[AsyncTransaction]:
        """See Store.begin."""
        async with self._transaction(writable=True, actor=actor) as transaction:
            yield transaction

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncTransaction]:
        """See Store.read."""
        async with self._transaction(writable=False) as transaction:
            yield transaction

    @asynccontextmanager
    async def _transaction(
        self, *, writable: bool, actor: str | None = None, retries: int = 0
    ) -> AsyncIterator[AsyncTransaction]:
        work = AsyncUnitOfWork(self._worker_pool, new_work(self._runtime, writable=writable, actor=actor), retries)
        await work.begin()
        try:
            yield AsyncTransaction(work)
        except BaseException:
            await work.end(clean=False)
            raise
        await work.end(clean=True)

    async def _run_verb(self, verb: Callable[[UnitOfWork], T], writes: bool) -> T:
        call = VerbRun(self._runtime, verb, writes=writes, interruptible=True)
        if writes or self._runtime.one_connection:
            self._runtime.refuse_inside_transaction(OUTSIDE)
        result: T = await self._worker_pool.run_transaction(call.run, writable=writes, interrupt=call.interrupt)
        for topic, value in call.announcements:
            await self._runtime.observers.tell_async(topic, value)
        return result

    def join(self, connection: "AsyncConnection | AsyncSession | async_scoped_session[AsyncSession]") -> AsyncTransaction:
        """See Store.join: verbs inside the caller's own transaction on an async connection, or of an AsyncSession.

        That of a session begins with the first verb, if it has not before.
        """
        self._runtime.check_usable()
        session = session_in(connection, asynchronous=True)
        if session is not None:
            return AsyncTransaction(JoinedUnitOfWork(session.run_sync, make=lambda sync: work_of(self._store.join(sync))))
        inner = check_connection(connection, self._runtime.dialect.name, asynchronous=True)
        work = UnitOfWork(self._runtime, writable=not self._runtime.read_only, joined=inner.sync_connection)
        return AsyncTransaction(JoinedUnitOfWork(inner.run_sync, work))

    def execution_options(self) -> dict[str, Any]:
        """See Store.execution_options."""
        return self._store.execution_options()

    async def transact(self, fn: Callable[[AsyncTransaction], Awaitable[T]], *, attempts: int = 5, actor: str | None = None) -> T:
        """See Store.transact."""
        check_attempts(attempts)
        for attempt in range(attempts):
            try:
                async with self._transaction(writable=True, actor=actor, retries=attempt) as tx:
                    result = await fn(tx)
                return result
            except PersistError as error:
                pause = pause_before_retry(self._runtime, error, attempt, attempts)
                if pause is None:
                    raise
                self._runtime.counters.retried(self._runtime.errors.retry_cause(error))
                await self._worker_pool.workers.call(partial(self._runtime.sleep, pause))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def metrics(self, *, database: bool = True) -> "measuring.Metrics":
        """See Store.metrics."""
        read = partial(measuring.metrics_of, self._runtime, database=database, queued=self._writer.waiting)
        return await self._worker_pool.snapshot(read) if database else read()

    @property
    def logs_events(self) -> bool:
        """See Store.logs_events."""
        return self._store.logs_events

    async def switch_events(self, on: bool, *, progress: Callable[[int, int], object] | None = None) -> bool:
        """See Store.switch_events. `progress` is called on another thread than the loop's."""
        self._runtime.refuse_inside_transaction("switch_events()")
        return await asyncio.to_thread(self._store.switch_events, on, progress=progress)

    def watch(self, stream_id: str, *, after: int = 0, timeout: float | None = None) -> "AsyncIterator[Event]":
        """See Store.watch. The next events are read only after the last ones were consumed."""
        return watching.watch_async(watching.Watcher(self._runtime, stream_id, after, timeout))

    def on_commit(self, callback: "Callable[[Sequence[Event]], object]") -> Callable[[], None]:
        """See Store.on_commit. The callback runs on the current event loop; a coroutine that it returns is awaited."""
        return self._store.on_commit(on_loop(callback))

    def on_run_finished(self, callback: "Callable[[WorkflowRun], object]") -> Callable[[], None]:
        """See Store.on_run_finished. The callback runs on the current event loop; a coroutine that it returns is awaited."""
        return self._store.on_run_finished(on_own_loop(callback))

    def follow(
        self, session_id: str, cursor: str | None = None, *, ai_sdk: Literal[6, 7] | None = None
    ) -> "follower.AsyncFollower":
        """See Store.follow: an asynchronous iterator, ended by `close()`."""
        return follower.AsyncFollower(self._runtime, session_id, cursor, ai_sdk, self._worker_pool.snapshot)

    def step(self, run: "WorkflowRun | Lease | str", key: str, input: Json = None, *, retry: bool = False) -> "steps.AsyncStep":
        """See Store.step."""
        return steps.AsyncStep(self._runtime, self.workflows.effects, run, key, input, retry)

    def phase(self, run: "WorkflowRun | Lease | str", name: str, *, trigger_type: str = "worker") -> "steps.AsyncPhaseBlock":
        """See Store.phase."""
        return steps.AsyncPhaseBlock(self._runtime, self.workflows, run, name, trigger_type)

    def record(
        self,
        session_id: str,
        *,
        model: Json = None,
        agent: str | None = None,
        system_prompt: str | None = None,
        metadata: Json = None,
        takeover: bool = False,
        save_on: Literal["chunk", "step", "turn"] | None = None,
        buffer_bytes: int | None = None,
        buffer_ms: int | None = None,
        ai_sdk: Literal[6, 7] | None = None,
    ) -> "async_recorder.AsyncRecorder":
        """See Store.record."""
        options = self._store.record_options(
            model=model,
            agent=agent,
            system_prompt=system_prompt,
            metadata=metadata,
            takeover=takeover,
            save_on=save_on,
            buffer_bytes=buffer_bytes,
            buffer_ms=buffer_ms,
            ai_sdk=ai_sdk,
        )
        recorder = async_recorder.AsyncRecorder(
            self._runtime, self._writer, self._store.timer, session_id, options, self._store.announcer()
        )
        self._recorders.add(recorder)
        return recorder

    async def close(self) -> None:
        """See Store.close."""
        if self._runtime.closed or self._runtime.forked:
            return self._store.close()
        if self._runtime.anything_open():
            await asyncio.to_thread(self._worker_pool.recover)
        if self._runtime.anything_open():
            raise StoreInUse
        for recorder in self._recorders.members():
            await recorder.close()
        await self._writer.close()
        await asyncio.to_thread(self._store.close)
        await self._writer.close()  # another loop may have recorded since the first close
        self._worker_pool.close()

    async def __aenter__(self) -> "AsyncStore":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Async{self._store!r}"
