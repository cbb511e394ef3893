"""A driver connection that stays checked out: checking it out, attaching observers of statements, and losing it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from logging import DEBUG
from typing import Any

from sqlalchemy.pool import PoolProxiedConnection

from persist.db.changes.batch import DriverStatements
from persist.db.connections import check_for_recorders
from persist.db.dialects.connections import Pinned
from persist.db.group_commit.tasks import SingleRowInsert, WriteTask
from persist.db.observation import StatementWatch, WatchedDriver, is_logged
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


class PinnedDriver:
    """The driver connection of one PinnedConnection. Its methods are called with the mutex held."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.mutex = threading.RLock()
        self.tally = runtime.counters.connection()
        self._pooled: PoolProxiedConnection | None = None
        self._driver: Any = None
        self._runner: Any = None
        self._watch: StatementWatch | None = None
        self._statements: DriverStatements
        runtime.recording.add(self)
        self._restore: Callable[[], None] | None = None

    def close(self) -> None:
        """Give the connection back to its pool."""
        with self.mutex:
            pooled, self._pooled, self._driver = self._pooled, None, None
            if pooled is not None:
                if self._restore is not None:
                    self._restore()
                if self.runtime.connections.disposed:
                    pooled.invalidate()  # the disposed pool would keep the connection
                pooled.close()

    def at_rest(self) -> Any:
        """The driver connection, which may be None; None also while another thread uses it."""
        if not self.mutex.acquire(False):
            return None
        try:
            return self._driver
        finally:
            self.mutex.release()

    def _ready(self) -> Any:
        runtime, connections = self.runtime, self.runtime.connections
        if self._driver is not None and not (runtime.dialect.one_file or connections.alive(self._driver)):
            self._drop()
        if self._driver is None:
            pooled, dialect = None, runtime.dialect
            if not dialect.one_writer:
                check_for_recorders(connections.writer.pool)
            try:
                lent = connections.take_pinned()
                pooled = connections.writer.raw_connection() if lent is None else lent.pooled
                driver: Any = pooled.driver_connection
                self._restore = self._prepare(driver) if lent is None else lent.restore
            except Exception as error:
                if pooled is not None:
                    pooled.invalidate()
                raise self._ours(error) from error
            self._pooled, self._driver = pooled, driver
            self._wire()
        return self._runner

    def _rewire(self) -> None:
        if (self._watch is not None) != self.runtime.watches_rows:
            self._wire()

    def _wire(self) -> None:
        runtime = self.runtime
        watch, runner = statement_watch(runtime), runtime.transactions.runner(self._driver)
        self._watch, self._runner = watch, runner if watch is None else WatchedDriver(runner, watch)
        self._statements = DriverStatements(
            runtime.prepared, self._runner, runtime.dialect.to_plain_json, pipelines=runtime.dialect.pipelines
        )

    def give_back(self) -> None:
        """Let the other stores of a shared server use the connection until the next write of this one."""
        pooled = self._pooled
        if pooled is not None and self.runtime.connections.give_back_pinned(Pinned(pooled, self._restore)):
            self._pooled = self._driver = self._runner = None

    def _prepare(self, driver: Any) -> Callable[[], None] | None:
        return self.runtime.connections.prepare_pinned(driver)

    def _traced(self, what: str, jobs: Sequence[WriteTask[Any]]) -> AbstractContextManager[None]:
        self.runtime.watches_rows = statement_watch(self.runtime) is not None
        self._rewire()
        return traced(self.runtime, self._watch, what, jobs)

    def _undo(self) -> None:
        if self._driver is None or not self.runtime.connections.usable(self._driver):
            self._drop()
        else:
            try:
                self._runner.rollback()
            except Exception as error:
                if self.runtime.errors.classify(error) is None:
                    raise
                self._drop()

    def _drop(self) -> None:
        pooled, self._pooled, self._driver = self._pooled, None, None
        if pooled is not None:
            pooled.invalidate()

    def _ours(self, error: BaseException, *, committing: bool = False) -> BaseException:
        return self.runtime.commit_error(error) if committing else self.runtime.translate(error)
