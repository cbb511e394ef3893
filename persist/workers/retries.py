"""When a run whose handler failed is tried again."""

import random
from datetime import timedelta

from persist.workflows.schemas import WorkflowRun

_FIRST, _LONGEST = timedelta(seconds=1), timedelta(minutes=5)


def backoff(attempt: int, *, first: timedelta = _FIRST, longest: timedelta = _LONGEST) -> timedelta:
    """How long to wait after an attempt, counted from 1: twice as long each time, up to `longest`, less a random quarter."""
    doubled: timedelta = min(first * 2 ** min(max(attempt, 1) - 1, 60), longest)
    return doubled * random.uniform(0.75, 1.0)


def retry_by_attempts(run: WorkflowRun, error: BaseException) -> timedelta | None:
    """A run that was created with `max_attempts` is tried again after the time of `backoff`; any other one fails."""
    return None if run.max_attempts is None else backoff(run.attempt)
