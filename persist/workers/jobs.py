"""One run that a worker holds."""

import time
from collections.abc import Callable

from persist.errors import LeaseLost
from persist.workflows.schemas import Lease, WorkflowRun


class Job:
    """A claimed run, from its claim until the worker has stored how its handler ended."""

    def __init__(self, lease: Lease, lease_seconds: float, asked_at: float) -> None:
        self.lease = lease
        self._lease_seconds = lease_seconds
        self._expires_at = asked_at + lease_seconds
        self.is_lost = False
        """Whether another worker may have the run by now."""
        self.is_given_back = False
        """Whether the worker stops before the handler has ended."""
        self.is_ending = False
        """Whether the handler has ended, so that nothing is left to cancel."""
        self.cancel_handler: Callable[[], None] | None = None
        """Cancels the handler; None for one that runs in a thread, whose next write under the lease is refused."""

    @property
    def run(self) -> WorkflowRun:
        """The run as it was claimed."""
        return self.lease.run

    @property
    def is_over(self) -> bool:
        """Whether the handler works in vain."""
        return self.is_lost or self.is_given_back

    @property
    def is_expired(self) -> bool:
        """Whether the lease was not renewed in time, by this machine's monotonic clock: not later than in the database."""
        return time.monotonic() >= self._expires_at

    def renewed(self, lease: Lease, asked_at: float) -> None:
        """The database has extended the lease; it was asked at this monotonic time."""
        self.lease, self._expires_at = lease, asked_at + self._lease_seconds

    def lose(self) -> None:
        """The lease is lost: whatever the handler still does is refused by the database."""
        if not self.is_over and not self.is_ending:
            self.is_lost = True
            self._cancel()

    def give_back(self) -> None:
        """The worker stops before the handler has ended."""
        if not self.is_over and not self.is_ending:
            self.is_given_back = True
            self._cancel()

    def lost_by(self, error: BaseException | None) -> bool:
        """Whether the handler ended because a write told it that the lease is lost."""
        return isinstance(error, LeaseLost) and error.run_id == self.run.id

    def _cancel(self) -> None:
        if self.cancel_handler is not None:
            self.cancel_handler()
