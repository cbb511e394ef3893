"""One driver connection kept checked out for the recorders of a store: their statements need no pool and no ORM."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from logging import DEBUG
from typing import Any, TypeVar

from sqlalchemy.pool import PoolProxiedConnection

from persist.db.changes.batch import DriverStatements, RequirementMissed, StatementRunner
from persist.db.changes.journal import COMMITTED
from persist.db.concurrency.fork_count import PROCESS
from persist.db.connections import check_for_recorders
from persist.db.dialects.connections import Pinned
from persist.db.group_commit.tasks import MultiRowInserts, Outcome, SingleRowInsert, WriteTask, by_statement
from persist.db.observation import StatementWatch, Tracer, WatchedDriver, is_logged
from persist.db.transactions.database_transaction import NO_EVENTS, TransactionEvents
from persist.db.transactions.runtime import Runtime
from persist.errors import Closed, Conflict, EventLogSwitched, StoreBusy, StoreForked


def statement_watch(runtime: Runtime) -> StatementWatch | None:
    """What a pinned connection tells of each statement; None unless statements are logged, or traced one by one."""
    tracer = runtime.tracer
    if is_logged(DEBUG) or (tracer is not None and tracer.statements):
        return StatementWatch("a recorder", values=runtime.settings.log_statement_values)
    return None


@contextmanager
def traced(tracer: Tracer, watch: StatementWatch | None, what: str, jobs: Sequence[WriteTask[Any]]) -> Iterator[None]:
    """Trace the block's transaction by the call that asked first. Rows of growing text alone are counted in their turn."""
    if all(isinstance(job, SingleRowInsert) for job in jobs):
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
        self._take_lock = partial(runtime.transactions.begin_pinned, self._runner)
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

    def _traced(self, what: str, jobs: Sequence[WriteTask[Any]]) -> AbstractContextManager[object]:
        self.runtime.watches_rows = statement_watch(self.runtime) is not None
        self._rewire()
        watch, tracer = self._watch, self.runtime.tracer
        if watch is not None:
            watch.verb = what
        return self.mutex if tracer is None else traced(tracer, watch, what, jobs)  # the mutex is held already

    def _undo(self) -> None:
        if self._driver is None or not self.runtime.connections.usable(self._driver):
            self._drop()
            return
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


class ExclusiveUse:
    """Holds the open store's writer lock (on a one-writer database) and the connection's mutex."""

    __slots__ = ("_held", "_lock", "_mutex", "_runtime", "_shares", "_what")

    def __init__(self, held: PinnedDriver, what: str) -> None:
        self._held, self._runtime, self._mutex, self._what = held, held.runtime, held.mutex, what
        self._shares = held.runtime.dialect.one_of_many
        self._lock = held.runtime.lock if held.runtime.dialect.one_writer else None

    def __enter__(self) -> None:
        if self._runtime.forks != PROCESS.forks:
            raise StoreForked
        lock = self._lock
        if lock is not None and not lock.take(threading.get_ident()):
            started = time.monotonic()
            lock.acquire(threading.get_ident(), what=self._what)
            self._waited(started)
        if not self._mutex.acquire(False):
            started = time.monotonic()
            self._mutex.acquire()
            self._waited(started)
        if self._runtime.closed:  # perhaps while we waited; a connection opened now would leak
            self.__exit__()
            raise Closed("store")

    def _waited(self, since: float) -> None:
        tally = self._held.tally
        tally.waits += 1
        tally.waited += time.monotonic() - since

    def __exit__(self, *_: object) -> None:
        if self._shares:
            self._held.give_back()
        self._mutex.release()
        if self._lock is not None:
            self._lock.release()


R = TypeVar("R")


class _MissedError(Exception):
    """Not every row of a multi-row call was written; replaying the tasks one by one finds out which."""


class PinnedConnection(PinnedDriver):
    """Runs write tasks, one transaction after the other, under the store's writer lock on a one-writer database."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._events = NO_EVENTS
        self._exclusives: dict[str, ExclusiveUse] = {}
        self._together = MultiRowInserts(runtime.prepared)

    def run(self, job: WriteTask[R], *, what: str = "feed()") -> R:
        """Run the job in a transaction of its own, durable on return. After a PersistError nothing was written, or unknown."""
        with self._exclusive(what):
            try:
                return self._run(job, what)
            except EventLogSwitched:
                self.runtime.counters.retried("event_log_switched")
                return self._run(job, what, alone=False)  # from now on this store keeps the log, too

    def _exclusive(self, what: str) -> ExclusiveUse:
        found = self._exclusives.get(what)
        if found is None:
            found = self._exclusives[what] = ExclusiveUse(self, what)
        return found

    def _run(self, job: WriteTask[R], what: str, *, alone: bool = True) -> R:
        self._ready()
        log = self.runtime.log
        if alone and job.single and self._autocommits() and (log is None or log.database_logs):
            try:
                result = self._run_alone(job)
                self.tally.commits += 1
                return result
            except Exception as error:
                self._undo()
                ours = self._ours(error, committing=True)
                if not isinstance(ours, StoreBusy | Conflict):
                    raise ours from error
                if isinstance(ours, StoreBusy) and not self.runtime.dialect.one_writer:  # there only the wait goes on
                    self.runtime.counters.retried(self.runtime.errors.retry_cause(error))
                self._ready()
        # A transaction is needed for several statements, after StoreBusy (BEGIN is retried), and after Conflict, when the row's
        # parent was deleted: the task runs again so that it can report the reason.
        with self._traced(what, (job,)):
            return self._in_transaction(job)

    def _in_transaction(self, job: WriteTask[R]) -> R:
        try:
            self._begin()
            self._statements.commits = True
            result = job.run(self._statements)
            self._statements.ending = True
            self._events.store(self._statements)
        except BaseException as error:
            committing = self._statements.committing
            self._undo()
            raise self._refused(job, error, committing=committing) from error
        finally:
            self._statements.commits = self._statements.ending = False
        self._commit()
        return result

    def _autocommits(self) -> bool:
        """Whether a single statement may commit by itself. The database then writes its events, and no observer is notified."""
        runtime = self.runtime
        return runtime.dialect.autocommits_single_statement and (runtime.log is None or not runtime.observers.wanted(COMMITTED))

    def _run_alone(self, job: WriteTask[R]) -> R:
        self._statements.journal = None
        if self.runtime.log is not None:
            with self.runtime.dialect.event_log.leave_to_database(self._driver):
                result = job.run(self._statements)
            self.runtime.log.ended()
            return result
        if not isinstance(job, SingleRowInsert):
            return job.run(self._statements)
        if not self._write_rows((job,)):
            raise job.refusal(self._statements)
        return None

    @property
    def writes_at_once(self) -> bool:
        """Whether `write_at_once` writes: into a file of the store's own without a log of events."""
        runtime = self.runtime
        return runtime.dialect.one_file and runtime.owns_engine and runtime.log is None and self._autocommits()

    def write_at_once(self, write: Callable[[Any], object], *, what: str) -> bool:
        """Let `write` execute one statement that commits by itself. False: it wrote nothing, and needs a transaction."""
        with self._exclusive(what):
            if not self.writes_at_once:  # the log was switched on while we waited
                return False
            self._ready()
            try:
                write(self._runner)
            except Exception as error:
                self._undo()
                ours = self._ours(error, committing=True)
                if not isinstance(ours, StoreBusy | Conflict | EventLogSwitched):
                    raise ours from error
                return False
            self.tally.commits += 1
            return True

    def ask(self, question: Callable[[StatementRunner], R]) -> R:
        """Run one reading statement outside of any transaction, without the writer lock."""
        with self.mutex:
            try:
                self._ready()
                return question(self._statements)
            except Exception as error:
                raise self._ours(error) from error
            finally:
                if self.runtime.dialect.one_of_many:
                    self.give_back()

    def run_group(self, jobs: Sequence[WriteTask[Any]], *, what: str = "feed()") -> list[Outcome[Any]]:
        """Run the jobs in one transaction. If one fails, all run again, each in a savepoint: only the failing job fails."""
        if len(jobs) == 1:
            try:
                outcomes = [Outcome(self.run(jobs[0], what=what))]
                self.tally.group(1)
                return outcomes
            except Exception as error:
                return [Outcome(error=error)]
        try:
            return self._run_group(jobs, what)
        except EventLogSwitched:
            return self.run_group(jobs, what=what)  # from now on this store keeps the log, too
        except Exception as error:  # the lock, BEGIN or COMMIT failed, and with it every job
            ours = self._ours(error)
            return [Outcome(error=ours) for _ in jobs]

    def _run_group(self, jobs: Sequence[WriteTask[Any]], what: str) -> list[Outcome[Any]]:
        with self._exclusive(what):
            self._ready()
            if self._written_alone(jobs):
                self.tally.commits += 1
                outcomes: list[Outcome[Any]] = [Outcome() for _ in jobs]
            else:
                with self._traced(what, jobs):
                    outcomes = self._group_in_transaction(jobs)
            self.tally.group(len(jobs))
            return outcomes

    def _group_in_transaction(self, jobs: Sequence[WriteTask[Any]]) -> list[Outcome[Any]]:
        try:
            self._begin()
            outcomes = self._run_all(jobs)
            self._events.store(self._statements)
        except Exception as error:
            self._undo()
            ours = self._ours(error)
            if self._driver is None or isinstance(ours, EventLogSwitched):  # without a connection nothing can be replayed
                raise ours from error
            self.runtime.counters.retried("group_replayed")
            self._begin()
            try:
                outcomes = [self._replay(job) for job in jobs]
                self._events.store(self._statements)
            except BaseException:
                self._undo()
                raise
        self._commit()
        return outcomes

    def _written_alone(self, jobs: Sequence[WriteTask[Any]]) -> bool:
        """Write the rows of all jobs in one autocommitted statement. False: that was impossible, and nothing was written."""
        runtime, rows = self.runtime, [job for job in jobs if isinstance(job, SingleRowInsert)]
        if len(rows) != len(jobs) or runtime.log is not None or not runtime.dialect.batches_rows or not self._autocommits():
            return False
        if len({row.prepared for row in rows}) != 1:
            return False
        try:
            return self._write_rows(rows)
        except Exception as error:
            self._undo()
            ours = self._ours(error, committing=True)
            if isinstance(ours, StoreBusy | Conflict):
                return False  # as in _run: with BEGIN the lock is tried again, and each task can report why it is refused
            raise ours from error

    def _write_rows(self, rows: Sequence[SingleRowInsert]) -> bool:
        """Write the rows without an event log, one driver call per statement. False unless every row was written."""
        if len(rows) == 1:
            return self.runtime.prepared[rows[0].prepared].run(self._runner, rows[0].values) == 1
        groups, runner = by_statement(rows).items(), self._runner
        if self.runtime.dialect.batches_rows:
            return all(self._together.run(prepared, runner, values) == len(values) for prepared, values in groups)
        return all(self.runtime.prepared[prepared].run_many(runner, values) == len(values) for prepared, values in groups)

    def _run_all(self, jobs: Sequence[WriteTask[Any]]) -> list[Outcome[Any]]:
        """Run the jobs inside the transaction. Without a journal, rows of the same statement are written in one call."""
        if self._statements.journal is not None:
            return [Outcome(job.run(self._statements)) for job in jobs]
        rows = [job for job in jobs if isinstance(job, SingleRowInsert)]
        outcomes = [Outcome(None if isinstance(job, SingleRowInsert) else job.run(self._statements)) for job in jobs]
        if not self._write_rows(rows):
            raise _MissedError
        return outcomes

    def _begin(self) -> None:
        before = self.runtime.log
        self.runtime.retrying_lock(self._take_lock)
        log = before or self.runtime.log
        self._events = NO_EVENTS if log is None else TransactionEvents(log)
        self._statements.journal = self._events.journal
        self._statements.committing = False

    def _commit(self) -> None:
        try:
            self._runner.commit()
        except BaseException as error:
            self._undo()
            raise self._ours(error, committing=True) from error
        self.tally.commits += 1
        if written := self._events.written:
            self._events.ended()
            if self.runtime.observers.wanted(COMMITTED):
                self.runtime.observers.tell(COMMITTED, written)

    def _replay(self, job: WriteTask[Any]) -> Outcome[Any]:
        self._runner.execute("SAVEPOINT member")
        journal = self._statements.journal
        mark = (0, 0) if journal is None else journal.mark()
        try:
            outcome = Outcome(job.run(self._statements))
        except Exception as error:
            self._runner.execute("ROLLBACK TO SAVEPOINT member")
            if journal is not None:
                journal.rollback_to(mark)
            outcome = Outcome(error=self._refused(job, error))
        self._runner.execute("RELEASE SAVEPOINT member")
        return outcome

    def _refused(self, job: WriteTask[Any], error: BaseException, *, committing: bool = False) -> BaseException:
        if isinstance(error, RequirementMissed) and job.refusal is not None:
            try:
                self._ready()
                return job.refusal(self._statements)
            except Exception as failed:
                return self._ours(failed)
        return self._ours(error, committing=committing)
