"""When a run whose handler failed is tried again."""

import random
from datetime import timedelta

from persist.db.values.arguments import check_timedelta
from persist.workflows.schemas import WorkflowRun

_FIRST, _LONGEST = timedelta(seconds=1), timedelta(minutes=5)
_MICROSECOND = timedelta(microseconds=1)


def backoff(attempt: int, *, first: timedelta = _FIRST, longest: timedelta = _LONGEST) -> timedelta:
    """How long to wait after an attempt, counted from 1: twice as long each time, up to `longest`, less a random quarter.

    Raises InvalidValue for a negative time.
    """
    wait, most = check_timedelta("first", first) // _MICROSECOND, check_timedelta("longest", longest) // _MICROSECOND
    doublings = min(max(attempt, 1) - 1, most.bit_length())
    return timedelta(microseconds=min(wait << doublings, most)) * random.uniform(0.75, 1.0)


def retry_by_attempts(run: WorkflowRun, error: BaseException) -> timedelta | None:
    """A run that was created with `max_attempts` is tried again after the time of `backoff`; any other one fails."""
    return None if run.max_attempts is None else backoff(run.attempt)
