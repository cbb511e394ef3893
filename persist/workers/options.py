"""What a worker was told, checked."""

import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from persist.db.values.arguments import check_count, check_label, check_timedelta
from persist.errors import InvalidValue
from persist.workflows.schemas import WorkflowRun

LONGEST_WAIT = timedelta(days=1).total_seconds()
"""A worker looks and renews at least so often: no database driver waits for a timeout of years."""
_MOST = 1000
"""How many names of workflows one claim takes."""

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
