"""The workers of both faces: a handler for each workflow, called in a thread or a task for every run that is claimed."""

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from persist.errors import InvalidValue, LeaseLost
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.workers.claim_loop import ClaimLoop
from persist.workers.jobs import Handler, Job, RetryPolicy, WorkerOptions, is_coroutine_function, retry_by_attempts

if TYPE_CHECKING:
    from persist.db.values.json import Json
    from persist.workflows.schemas import Lease, WorkflowRun
    from persist.workflows.steps import AsyncPhaseBlock, AsyncStep, PhaseBlock, Step


# Stopping a worker by SIGINT and SIGTERM: the first signal stops it politely, a second one does what it did before.

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK = 0.1
"""Seconds between looks whether a signal came: its handler takes no locks, which the interrupted code may hold."""


def in_main_thread() -> bool:
    """Whether signals can be handled here."""
    return threading.current_thread() is threading.main_thread()


def run_until_signal(work: Callable[[], None], stop: Callable[[], None]) -> None:
    """Do the work in a thread, and stop it when a signal comes."""
    asked: list[bool] = []
    done: Future[None] = Future()

    def do() -> None:
        try:
            work()
            done.set_result(None)
        except BaseException as error:  # raised in the thread that waits
            done.set_exception(error)

    with _handled(lambda: asked.append(True)):
        thread = threading.Thread(target=do, name="persist-worker", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_LOOK)
            if asked:
                asked.clear()
                stop()
    done.result()


@contextmanager
def _handled(first: Callable[[], Any]) -> Iterator[None]:
    former = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in former.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not installed by Python

    def handle(number: int, frame: Any) -> None:
        restore()
        first()

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()


LEASE, POLL, GRACE = timedelta(minutes=1), timedelta(seconds=1), timedelta(seconds=30)
"""What a worker does that is told nothing else."""

_current: ContextVar["BaseWorker | None"] = ContextVar("persist_worker", default=None)
"""The worker whose handler runs here."""
UNDER_MAIN = 'put what starts it under `if __name__ == "__main__":`.'
may_run: ContextVar[bool] = ContextVar("persist_worker_may_run", default=True)
"""False where a module is imported for its worker: one that ran at once would know none of the command's options."""


class BaseWorker:
    """The state of a worker, and what needs no event loop."""

    def __init__(self, options: WorkerOptions, store: Store) -> None:
        self._options, self._claims_from = options, store
        self._loop: ClaimLoop | None = None
        self._stop_asked = False

    @property
    def name(self) -> str:
        """The name under which the worker claims runs."""
        return self._options.name

    @property
    def concurrency(self) -> int:
        """How many runs the worker handles at a time."""
        return self._options.concurrency

    @property
    def workflows(self) -> list[str]:
        """The names of the workflows whose runs the worker claims, sorted."""
        return sorted(self._options.handlers)

    @classmethod
    def current(cls) -> Self:
        """The worker that called the handler which runs here. Raises InvalidValue where none of this class did."""
        worker = _current.get()
        if not isinstance(worker, cls):
            found = "no worker called what runs here" if worker is None else f"it is of the class {type(worker).__name__}"
            raise InvalidValue("worker", f"{found}.")
        return worker

    @property
    def is_running(self) -> bool:
        """Whether `run` is under way."""
        return self._loop is not None

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was asked to stop: a long handler may look, and end early."""
        return self._stop_asked

    def stop(self) -> None:
        """Claim no more runs, and end `run` when the handlers have ended, or when the time of grace is over.

        Handlers that still run then are cancelled where that can be done, and their runs are released. Callable from any thread
        and from a signal handler; before `run` it makes `run` return at once.
        """
        self._stop_asked = True  # first: `run` looks at it after it has made the loop
        loop = self._loop
        if loop is not None:
            loop.stop()

    def limit(self, *, concurrency: int | None = None, workflows: Collection[str] | None = None) -> None:
        """Before `run`: handle so many runs at a time, and of the worker's workflows only these. Raises InvalidValue."""
        if self._loop is not None:
            raise InvalidValue("worker", "it runs already; limit it before.")
        self._options = self._options.limited(concurrency, workflows)

    def trouble(self) -> str | None:
        """Why the worker does no work, None if it does: it does not run, it stops, or it cannot use the database.

        The database is asked, which may take as long as it takes to notice that it is away.
        """
        loop = self._loop
        if loop is None or self._stop_asked:
            return f"the worker {'does not run' if loop is None else 'stops'}"
        return loop.trouble()

    def lease(self, run: "WorkflowRun | str") -> "Lease":
        """The lease under which a handler writes. Raises LeaseLost if this worker does not hold the run any more.

        Give the run as the handler got it: after a lease that was lost, the worker may have claimed the run again, for another
        call of the handler. An id alone stands for the newest claim.
        """
        return self._held(run)[0]

    def _held(self, run: "WorkflowRun | str") -> "tuple[Lease, Callable[[], bool]]":
        """See `lease`; and whether a block of the handler may wait for the database, because the worker keeps the run."""
        run_id, token = (run, None) if isinstance(run, str) else (run.id, run.lease_token)
        loop = self._loop
        if loop is None:
            raise LeaseLost(run_id, token, "this worker does not run.")
        job = loop.job(run_id, token)
        return job.lease, partial(loop.keeps, job)

    def _begin(self, start: Callable[[Job], None]) -> ClaimLoop:
        if self._loop is not None:
            raise InvalidValue("worker", "it runs already; make another Worker for a second loop.")
        if not may_run.get():
            raise InvalidValue("worker.run", f"it is called while its module is imported; {UNDER_MAIN}")
        self._loop = ClaimLoop(self._claims_from, self._options, start)
        if self._stop_asked:
            self._loop.stop()
        return self._loop

    def _finish(self) -> None:
        self._loop, self._stop_asked = None, False


log = logging.getLogger("persist")

_STORING = 16
"""How many handlers' ends a worker stores at a time."""


class AsyncWorker(BaseWorker):
    """See Worker: the handlers are coroutine functions, each called in a task. One whose lease is lost is cancelled."""

    def __init__(
        self,
        store: AsyncStore,
        handlers: Mapping[str, Handler],
        *,
        name: str | None = None,
        lease: timedelta = LEASE,
        concurrency: int = 1,
        retry: RetryPolicy = retry_by_attempts,
        poll: timedelta = POLL,
        grace: timedelta = GRACE,
    ) -> None:
        """See Worker. A handler that is no coroutine function blocks the event loop while it runs."""
        if not isinstance(store, AsyncStore):
            raise InvalidValue("store", f"expected an AsyncStore, got {type(store).__name__}.")
        options = WorkerOptions.of(handlers, name=name, lease=lease, concurrency=concurrency, retry=retry, poll=poll, grace=grace)
        super().__init__(options, store._store)
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cancelled: Callable[[], bool] = lambda: False
        """Whether the task that awaits `run` has been cancelled since it began."""

    @property
    def store(self) -> AsyncStore:
        """The store whose runs the worker claims."""
        return self._store

    async def run(self, *, until_idle: bool = False, signals: bool = True) -> None:
        """See Worker.run. If it is cancelled, handlers are cancelled, and their runs are released, before it ends."""
        event_loop = asyncio.get_running_loop()

        def start(job: Job) -> None:
            try:
                event_loop.call_soon_threadsafe(self._start, loop, threads, job)
            except RuntimeError:  # the event loop is closed: nobody can run the handler
                job.give_back()
                loop.ended(job, None)

        loop = self._begin(start)
        self._is_cancelled = _cancelled_from_now_on()
        # threads of its own: those of the event loop's executor may all be taken, by other workers for as long as they run
        threads = ThreadPoolExecutor(1 + min(self._options.concurrency, _STORING), thread_name_prefix="persist-worker")
        work = event_loop.run_in_executor(threads, partial(copy_context().run, loop.run, until_idle=until_idle))
        try:
            by_signals = signals and in_main_thread()
            with _handled(lambda: event_loop.call_soon_threadsafe(self.stop)) if by_signals else nullcontext():
                await asyncio.shield(work)
        except asyncio.CancelledError:
            self._stop_asked = True
            loop.stop(hurry=True)
            await work
            raise
        finally:
            threads.shutdown(wait=False)
            self._finish()

    def phase(self, run: "WorkflowRun | str", name: str, *, trigger_type: str = "worker") -> "AsyncPhaseBlock":
        """See Worker.phase."""
        lease, is_held = self._held(run)
        return self._store.phase(lease, name, trigger_type=trigger_type).outlasting(is_held)

    def step(self, run: "WorkflowRun | str", key: str, input: "Json" = None, *, retry: bool = False) -> "AsyncStep":
        """See Worker.step."""
        lease, is_held = self._held(run)
        return self._store.step(lease, key, input, retry=retry).outlasting(is_held)

    def _start(self, loop: ClaimLoop, threads: ThreadPoolExecutor, job: Job) -> None:
        event_loop = asyncio.get_running_loop()
        task = event_loop.create_task(self._handle(job), name=f"persist-run-{job.run.id}")
        self._tasks.add(task)
        job.cancel_handler = partial(_cancel, event_loop, task)
        task.add_done_callback(partial(self._ended, loop, threads, job))
        if job.is_over:
            task.cancel()

    async def _handle(self, job: Job) -> None:
        _current.set(self)  # in the task, which has a context of its own
        result = self._options.handlers[job.run.workflow_name](job.run)
        if inspect.isawaitable(result):
            await result

    def _ended(self, loop: ClaimLoop, threads: ThreadPoolExecutor, job: Job, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None and self._is_cancelled():
            job.give_back()  # cancelled along with the worker, as by asyncio.run when it is interrupted: this is no failure
        try:
            threads.submit(loop.ended, job, error)
        except RuntimeError:  # the worker ended before its handler, whose run it gave back
            loop.ended(job, error)


def _cancelled_from_now_on() -> Callable[[], bool]:
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    return lambda: task is not None and task.cancelling() > before


def _cancel(event_loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    try:
        event_loop.call_soon_threadsafe(task.cancel)
    except RuntimeError:
        log.warning("a handler cannot be cancelled: its event loop is closed")


class Worker(BaseWorker):
    """Claims runs of a Store and calls their handlers, each in a thread. Given an AsyncStore, `Worker` makes an AsyncWorker.

    A handler gets the run as it was claimed. When it returns, a running run succeeds, and a paused run is released. When it
    raises, `retry` says after which time the run is tried again, or None if it fails; by default one with `max_attempts` is tried
    so often. The worker renews leases in time; the next `phase`, `step` or write under a lost `lease` is refused.
    """

    def __new__(cls, store: Any = None, *args: Any, **options: Any) -> Any:
        """Make the worker of the store's face."""
        return AsyncWorker(store, *args, **options) if isinstance(store, AsyncStore) else super().__new__(cls)

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        *,
        name: str | None = None,
        lease: timedelta = LEASE,
        concurrency: int = 1,
        retry: RetryPolicy = retry_by_attempts,
        poll: timedelta = POLL,
        grace: timedelta = GRACE,
    ) -> None:
        """`handlers`: a function by workflow. `name`: of this worker alone; by default one that nobody else has.

        `lease`: renewed three times within its length. `concurrency`: how many runs at a time. `poll`: between looks for what
        no notification tells, such as delayed runs. `grace`: how long handlers may go on after `stop`. Raises InvalidValue.
        """
        if not isinstance(store, Store):
            raise InvalidValue("store", f"expected a Store or an AsyncStore, got {type(store).__name__}.")
        super().__init__(
            WorkerOptions.of(handlers, name=name, lease=lease, concurrency=concurrency, retry=retry, poll=poll, grace=grace),
            store,
        )
        for workflow, handler in self._options.handlers.items():
            if is_coroutine_function(handler):
                raise InvalidValue(f"handlers.{workflow}", "a coroutine function needs a worker of an AsyncStore.")
        self._store = store

    @property
    def store(self) -> Store:
        """The store whose runs the worker claims."""
        return self._store

    def run(self, *, until_idle: bool = False, signals: bool = True) -> None:
        """Work until `stop`; with `until_idle` until no handler runs and no run can be claimed.

        `signals`: SIGINT and SIGTERM stop the worker, if this is the main thread; a second one interrupts it.
        """
        loop = self._begin(lambda job: self._start(loop, job))
        try:
            if signals and in_main_thread():
                run_until_signal(partial(loop.run, until_idle=until_idle), self.stop)
            else:
                loop.run(until_idle=until_idle)
        finally:
            self._finish()

    def phase(self, run: "WorkflowRun | str", name: str, *, trigger_type: str = "worker") -> "PhaseBlock":
        """`Store.phase` under the worker's lease on the run: the block waits for an outage to end. Raises LeaseLost."""
        lease, is_held = self._held(run)
        return self._store.phase(lease, name, trigger_type=trigger_type).outlasting(is_held)

    def step(self, run: "WorkflowRun | str", key: str, input: "Json" = None, *, retry: bool = False) -> "Step":
        """`Store.step` under the worker's lease on the run: the block waits for an outage to end. Raises LeaseLost."""
        lease, is_held = self._held(run)
        return self._store.step(lease, key, input, retry=retry).outlasting(is_held)

    def _start(self, loop: ClaimLoop, job: Job) -> None:
        # a daemon: a handler that never ends must not keep the process alive after the time of grace
        threading.Thread(target=self._work, args=(loop, job), name=f"persist-run-{job.run.id}", daemon=True).start()

    def _work(self, loop: ClaimLoop, job: Job) -> None:
        _current.set(self)  # in the thread, which has a context of its own
        error: BaseException | None = None
        try:
            _check_no_coroutine(job.run.workflow_name, self._options.handlers[job.run.workflow_name](job.run))
        except BaseException as raised:  # whatever ends the handler, its run must not stay claimed
            error = raised
        loop.ended(job, error)


def _check_no_coroutine(workflow: str, result: object) -> None:
    """Raise InvalidValue for an awaitable that a handler returned: nobody would await it, and its work would not be done."""
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that it was never awaited
    if inspect.isawaitable(result):
        kind = type(result).__name__
        raise InvalidValue(f"handlers.{workflow}", f"the handler returned a {kind}, which only a worker of an AsyncStore awaits.")
