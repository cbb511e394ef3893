"""Who is told of what the recorders of a store write: the logger of statements, and a tracer."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from logging import DEBUG
from typing import Any

from persist.db.group_commit.tasks import SingleRowInsert, WriteTask
from persist.db.observation.statements import StatementWatch, is_logged
from persist.db.transactions.runtime import Runtime


def statement_watch(runtime: Runtime) -> StatementWatch | None:
    """What a pinned connection tells of each statement; None unless statements are logged, or traced one by one."""
    tracer = runtime.tracer
    if is_logged(DEBUG) or (tracer is not None and tracer.statements):
        return StatementWatch("a recorder", values=runtime.settings.log_statement_values)
    return None


@contextmanager
def traced(runtime: Runtime, watch: StatementWatch | None, what: str, jobs: Sequence[WriteTask[Any]]) -> Iterator[None]:
    """Trace the transaction of these tasks that the block executes. `what`: the call that asked for the first one.

    Rows of growing text alone are counted in their turn, and have no trace of their own.
    """
    tracer = runtime.tracer
    if watch is not None:
        watch.verb = what
    if tracer is None or all(isinstance(job, SingleRowInsert) for job in jobs):
        yield
        return
    trace = tracer.recorders(what, [turn for job in jobs if (turn := getattr(job, "turn", None)) is not None])
    if watch is not None:
        watch.trace = trace
    try:
        yield
    except BaseException as error:
        trace.ended(error)
        raise
    else:
        trace.ended(None)
    finally:
        if watch is not None:
            watch.trace = None
