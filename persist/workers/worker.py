"""The worker of a Store: a handler for each workflow, called in a thread for every run that is claimed."""

import inspect
import threading
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from persist.errors import InvalidValue
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.workers.async_worker import AsyncWorker
from persist.workers.base_worker import GRACE, LEASE, POLL, BaseWorker
from persist.workers.claim_loop import ClaimLoop
from persist.workers.jobs import Job
from persist.workers.options import Handler, RetryPolicy, WorkerOptions
from persist.workers.retries import retry_by_attempts
from persist.workers.stop_signals import in_main_thread, run_until_signal

if TYPE_CHECKING:
    from persist.db.values.json import Json
    from persist.workflows.phase_blocks import PhaseBlock
    from persist.workflows.schemas import WorkflowRun
    from persist.workflows.steps import Step


class Worker(BaseWorker):
    """Claims runs of a Store and calls their handlers, each in a thread. Given an AsyncStore, `Worker` makes an AsyncWorker.

    A handler gets the run as it was claimed. When it returns, a running run succeeds, and one that it paused is released. When
    it raises, `retry` says after which time the run is tried again, or None if it fails; by default one with `max_attempts` is
    tried so often. The worker renews leases in time; a
    handler whose lease is lost is refused by the next `phase`, `step` or write under `lease`.
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
            WorkerOptions.of(handlers, name=name, lease=lease, concurrency=concurrency, retry=retry, poll=poll, grace=grace)
        )
        for workflow, handler in self._options.handlers.items():
            if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
                raise InvalidValue(f"handlers.{workflow}", "a coroutine function needs a worker of an AsyncStore.")
        self._store = store

    def run(self, *, until_idle: bool = False, signals: bool = True) -> None:
        """Work until `stop`; with `until_idle` until no handler runs and no run can be claimed.

        `signals`: SIGINT and SIGTERM stop the worker, if this is the main thread; a second one interrupts it.
        """
        loop = self._begin(self._store, lambda job: self._start(loop, job))
        try:
            if signals and in_main_thread():
                run_until_signal(partial(loop.run, until_idle=until_idle), self.stop)
            else:
                loop.run(until_idle=until_idle)
        finally:
            self._finish()

    def phase(self, run: "WorkflowRun | str", name: str, *, trigger_type: str = "worker") -> "PhaseBlock":
        """`Store.phase` under the worker's lease on the run. Raises LeaseLost."""
        return self._store.phase(self.lease(run), name, trigger_type=trigger_type)

    def step(self, run: "WorkflowRun | str", key: str, input: "Json" = None, *, retry: bool = False) -> "Step":
        """`Store.step` under the worker's lease on the run. Raises LeaseLost."""
        return self._store.step(self.lease(run), key, input, retry=retry)

    def _start(self, loop: ClaimLoop, job: Job) -> None:
        # a daemon: a handler that never ends must not keep the process alive after the time of grace
        threading.Thread(target=self._work, args=(loop, job), name=f"persist-run-{job.run.id}", daemon=True).start()

    def _work(self, loop: ClaimLoop, job: Job) -> None:
        error: BaseException | None = None
        try:
            _check_no_coroutine(job.run.workflow_name, self._options.handlers[job.run.workflow_name](job.run))
        except BaseException as raised:  # whatever ends the handler, its run must not stay claimed
            error = raised
        loop.ended(job, error)


def _check_no_coroutine(workflow: str, result: object) -> None:
    """Raise InvalidValue for an awaitable that a handler returned: nobody would await it, and its work would not be done."""
    if not inspect.isawaitable(result):
        return
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that it was never awaited
    kind = type(result).__name__
    raise InvalidValue(f"handlers.{workflow}", f"the handler returned a {kind}, which only a worker of an AsyncStore awaits.")
