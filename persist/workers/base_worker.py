"""What the workers of both faces share."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from persist.errors import InvalidValue, LeaseLost
from persist.store.store import Store
from persist.workers.claim_loop import ClaimLoop
from persist.workers.jobs import Job
from persist.workers.options import WorkerOptions

if TYPE_CHECKING:
    from persist.workflows.schemas import Lease, WorkflowRun

LEASE, POLL, GRACE = timedelta(minutes=1), timedelta(seconds=1), timedelta(seconds=30)
"""What a worker does that is told nothing else."""


class BaseWorker:
    """The state of a worker, and what needs no event loop."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._loop: ClaimLoop | None = None
        self._stop_asked = False

    @property
    def name(self) -> str:
        """The name under which the worker claims runs."""
        return self._options.name

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

    def lease(self, run: "WorkflowRun | str") -> "Lease":
        """The lease under which a handler writes. Raises LeaseLost if this worker does not hold the run any more.

        Give the run as the handler got it: after a lease that was lost, the worker may have claimed the run again, for another
        call of the handler. An id alone stands for the newest claim.
        """
        run_id, token = (run, None) if isinstance(run, str) else (run.id, run.lease_token)
        loop = self._loop
        if loop is None:
            raise LeaseLost(run_id, token, "this worker does not run.")
        return loop.job(run_id, token).lease

    def _begin(self, store: Store, start: Callable[[Job], None]) -> ClaimLoop:
        if self._loop is not None:
            raise InvalidValue("worker", "it runs already; make another Worker for a second loop.")
        self._loop = ClaimLoop(store, self._options, start)
        if self._stop_asked:
            self._loop.stop()
        return self._loop

    def _finish(self) -> None:
        self._loop, self._stop_asked = None, False
