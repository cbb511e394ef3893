"""One run that a worker holds, what the worker was told, and when a run whose handler failed is tried again."""

import inspect
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from persist.db.values.arguments import check_count, check_label, check_timedelta
from persist.errors import InvalidValue, shown
from persist.workflows.schemas import Lease, WorkflowRun

LONGEST_WAIT = timedelta(days=1).total_seconds()
"""A worker looks and renews at least so often: no database driver waits for a timeout of years."""
_MOST = 1000
"""How many names of workflows one claim takes."""
_LISTED = 20
"""How many of them a message lists."""

Handler = Callable[[WorkflowRun], Any]
"""Does the work of a run. For an AsyncStore it may be a coroutine function."""

RetryPolicy = Callable[[WorkflowRun, BaseException], timedelta | None]
"""How long to wait before a run whose handler raised the exception is tried again; None: the run fails."""


@dataclass(frozen=True)
class WorkerOptions:
    """The arguments of a worker."""

    handlers: dict[str, Handler]
    name: str
    lease: timedelta
    concurrency: int
    retry: RetryPolicy
    poll: float
    """Seconds."""
    grace: float
    """Seconds."""

    @classmethod
    def of(
        cls,
        handlers: Mapping[str, Handler],
        *,
        name: str | None,
        lease: timedelta,
        concurrency: int,
        retry: RetryPolicy,
        poll: timedelta,
        grace: timedelta,
    ) -> "WorkerOptions":
        """Check the arguments. Raises InvalidValue."""
        return cls(
            _handlers(handlers),
            f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}" if name is None else check_label("name", name),
            check_timedelta("lease", lease, zero=False),
            _at_least_one("concurrency", concurrency),
            _callable("retry", retry),
            min(check_timedelta("poll", poll, zero=False).total_seconds(), LONGEST_WAIT),
            min(check_timedelta("grace", grace).total_seconds(), threading.TIMEOUT_MAX),
        )

    def limited(self, concurrency: int | None, workflows: Collection[str] | None) -> "WorkerOptions":
        """The arguments with another concurrency and fewer workflows. Raises InvalidValue."""
        handlers = self.handlers
        if workflows is not None:
            given: object = workflows
            if isinstance(given, str) or not isinstance(given, Collection) or not given:
                raise InvalidValue("workflows", "expected names of workflows, at least one.")
            for name in workflows:
                if name not in handlers:
                    raise InvalidValue(
                        "workflows", f"there is no handler of {shown(name)}, only of {_some_of(sorted(handlers))}."
                    )
            handlers = {name: handler for name, handler in handlers.items() if name in workflows}
        count = self.concurrency if concurrency is None else _at_least_one("concurrency", concurrency)
        return replace(self, handlers=handlers, concurrency=count)


def is_coroutine_function(handler: object) -> bool:
    """Whether calling the handler gives a coroutine, which only a worker of an AsyncStore awaits."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def _some_of(names: list[str]) -> str:
    """The names as a message has them; of many only the first ones."""
    more = f" and {len(names) - _LISTED:,} others" if len(names) > _LISTED else ""
    return ", ".join(map(shown, names[:_LISTED])) + more


def _handlers(handlers: object) -> dict[str, Handler]:
    if not isinstance(handlers, Mapping) or not handlers:
        raise InvalidValue("handlers", "expected a mapping from names of workflows to functions, at least one.")
    if len(handlers) > _MOST:
        raise InvalidValue("handlers", f"{len(handlers)} of them are too many for one worker, which takes up to {_MOST}.")
    return {check_label("handlers", name): _callable(f"handlers.{name}", handler) for name, handler in handlers.items()}


def _callable(path: str, value: Any) -> Any:
    if not callable(value):
        raise InvalidValue(path, f"expected a function, got {type(value).__name__}.")
    return value


def _at_least_one(path: str, value: object) -> int:
    count = check_count(path, value)
    if count < 1:
        raise InvalidValue(path, "expected at least 1.")
    return count


_FIRST, _LONGEST = timedelta(seconds=1), timedelta(minutes=5)
_MICROSECOND = timedelta(microseconds=1)


def backoff(attempt: int, *, first: timedelta = _FIRST, longest: timedelta = _LONGEST) -> timedelta:
    """The wait after an attempt, from 1: doubled up to `longest`, less a random quarter. Raises InvalidValue."""
    if type(attempt) is not int or attempt < 0:
        raise InvalidValue("attempt", "expected a whole number, 0 or more.")
    wait, most = check_timedelta("first", first) // _MICROSECOND, check_timedelta("longest", longest) // _MICROSECOND
    doublings = min(max(attempt, 1) - 1, most.bit_length())
    return timedelta(microseconds=min(wait << doublings, most)) * random.uniform(0.75, 1.0)


def retry_by_attempts(run: WorkflowRun, error: BaseException) -> timedelta | None:
    """A run that was created with `max_attempts` is tried again after the time of `backoff`; any other one fails."""
    return None if run.max_attempts is None else backoff(run.attempt)


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
        self.went_with_claim: bool | None = None
        """Whether the transaction of a claim has stored the end; None while that is not known."""
        self.cancel_handler: Callable[[], None] | None = None
        """Cancels the handler; None for one that runs in a thread, whose next write under the lease is refused."""

    @property
    def run(self) -> WorkflowRun:
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

    def _cancel(self) -> None:
        if self.cancel_handler is not None:
            self.cancel_handler()
