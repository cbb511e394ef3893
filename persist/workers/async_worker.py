"""The worker of an AsyncStore: a coroutine function for each workflow, called in a task for every run that is claimed."""

import asyncio
import inspect
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from persist.errors import InvalidValue
from persist.store.async_store import AsyncStore
from persist.workers.base_worker import GRACE, LEASE, POLL, BaseWorker
from persist.workers.claim_loop import ClaimLoop
from persist.workers.jobs import Job
from persist.workers.options import Handler, RetryPolicy, WorkerOptions
from persist.workers.retries import retry_by_attempts
from persist.workers.stop_signals import stopping_by_signals

if TYPE_CHECKING:
    from persist.db.values.json import Json
    from persist.workflows.phase_blocks import AsyncPhaseBlock
    from persist.workflows.schemas import WorkflowRun
    from persist.workflows.steps import AsyncStep

log = logging.getLogger("persist")

_STORING = 4
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
        super().__init__(
            WorkerOptions.of(handlers, name=name, lease=lease, concurrency=concurrency, retry=retry, poll=poll, grace=grace)
        )
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, *, until_idle: bool = False, signals: bool = True) -> None:
        """See Worker.run. If it is cancelled, handlers are cancelled, and their runs are released, before it ends."""
        event_loop = asyncio.get_running_loop()

        def start(job: Job) -> None:
            try:
                event_loop.call_soon_threadsafe(self._start, loop, threads, job)
            except RuntimeError:  # the event loop is closed: nobody can run the handler
                job.give_back()
                loop.ended(job, None)

        loop = self._begin(self._store._store, start)
        # threads of its own: those of the event loop's executor may all be taken, by other workers for as long as they run
        threads = ThreadPoolExecutor(1 + min(self._options.concurrency, _STORING), thread_name_prefix="persist-worker")
        work = event_loop.run_in_executor(threads, partial(copy_context().run, loop.run, until_idle=until_idle))
        try:
            with stopping_by_signals(event_loop, self.stop, wanted=signals):
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
        return self._store.phase(self.lease(run), name, trigger_type=trigger_type)

    def step(self, run: "WorkflowRun | str", key: str, input: "Json" = None, *, retry: bool = False) -> "AsyncStep":
        """See Worker.step."""
        return self._store.step(self.lease(run), key, input, retry=retry)

    def _start(self, loop: ClaimLoop, threads: ThreadPoolExecutor, job: Job) -> None:
        event_loop = asyncio.get_running_loop()
        task = event_loop.create_task(self._handle(job), name=f"persist-run-{job.run.id}")
        self._tasks.add(task)
        job.cancel_handler = partial(_cancel, event_loop, task)
        task.add_done_callback(partial(self._ended, loop, threads, job))
        if job.is_over:
            task.cancel()

    async def _handle(self, job: Job) -> None:
        result = self._options.handlers[job.run.workflow_name](job.run)
        if inspect.isawaitable(result):
            await result

    def _ended(self, loop: ClaimLoop, threads: ThreadPoolExecutor, job: Job, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        try:
            threads.submit(loop.ended, job, error)
        except RuntimeError:  # the worker ended before its handler, whose run it gave back
            loop.ended(job, error)


def _cancel(event_loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    try:
        event_loop.call_soon_threadsafe(task.cancel)
    except RuntimeError:
        log.warning("a handler cannot be cancelled: its event loop is closed")
