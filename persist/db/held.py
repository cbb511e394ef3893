"""One driver connection kept checked out for the recorders of a store: their statements pay no pool and no ORM."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy.pool import PoolProxiedConnection

from persist.db.changes import COMMITTED, Journal
from persist.db.hot import Hot, HotConnection, Statements
from persist.db.jobs import OneRow, Outcome, Task, by_statement
from persist.db.pools import check_for_recorders
from persist.db.runtime import EventLog, Runtime
from persist.db.together import Together
from persist.errors import Conflict, EventLogSwitched, StoreBusy, Unavailable

R = TypeVar("R")


class _MissedError(Exception):
    """Of several rows written in one call, not every one was; a replay finds out which."""


class HeldConnection:
    """Runs jobs one transaction after the other, under the store's writer lock where there is one."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.mutex = threading.RLock()
        self._pooled: PoolProxiedConnection | None = None
        self._driver: Any = None
        self._statements: HotConnection
        self._log: EventLog | None = None
        self._restore: Callable[[], None] | None = None
        self._exclusives: dict[str, _Exclusive] = {}
        self._together: dict[Hot, Together] = {}

    def run(self, job: Task[R], *, what: str = "feed()") -> R:
        """The job in a transaction of its own, durable on return; a database error is ours, and nothing was written."""
        self.runtime.check_usable()
        with self._exclusive(what):
            self.runtime.check_usable()  # closed meanwhile, nobody would close what is connected now
            try:
                return self._run(job)
            except EventLogSwitched:
                return self._run(job, alone=False)  # from now on this store keeps the log, too

    def _exclusive(self, what: str) -> "_Exclusive":
        found = self._exclusives.get(what)
        if found is None:
            found = self._exclusives[what] = _Exclusive(self, what)
        return found

    def _run(self, job: Task[R], *, alone: bool = True) -> R:
        driver = self._ready()
        if alone and job.single and self._autocommits():
            try:
                return self._run_alone(job, driver)
            except Exception as error:
                self._undo(driver)
                ours = self._ours(error, committing=True)
                if not isinstance(ours, StoreBusy | Conflict):
                    raise ours from error
        # Several statements; or a lock that is held elsewhere: a transaction, whose BEGIN is tried again; or a row that lost
        # what it belongs to while it was written: in a transaction the task finds out what it is refused for.
        driver = self._ready()
        try:
            self._begin(driver)
            result = job.run(self._statements)
            events = self._keep_log()
        except BaseException as error:
            self._undo(driver)
            raise self._ours(error) from error
        self._commit(driver)
        self._committed(events)
        return result

    def _autocommits(self) -> bool:
        """Whether a single statement needs no transaction of ours. Its events are the database's then, and nobody is told."""
        return self.runtime.dialect.autocommit_one and not self.runtime.observers.wanted(COMMITTED)

    def _run_alone(self, job: Task[R], driver: Any) -> R:
        self._statements.journal = None
        if self.runtime.log is None:
            return job.run(self._statements)
        with self.runtime.dialect.leave_log_to_database(driver):
            return job.run(self._statements)

    def look(self, question: Callable[[Statements], R]) -> R:
        """One reading statement outside of any transaction, without the writer lock."""
        with self.mutex:
            try:
                self._ready()
                return question(self._statements)
            except Exception as error:
                raise self._ours(error) from error

    def run_group(self, jobs: Sequence[Task[Any]], *, what: str = "feed()") -> list[Outcome[Any]]:
        """Every job in one transaction. If one fails, all are replayed, each in its own savepoint: only it fails."""
        if len(jobs) == 1:
            try:
                return [Outcome(self.run(jobs[0], what=what))]
            except Exception as error:
                return [Outcome(error=error)]
        try:
            return self._run_group(jobs, what)
        except EventLogSwitched:
            return self.run_group(jobs, what=what)  # from now on this store keeps the log, too
        except Exception as error:  # the lock, BEGIN or COMMIT: nobody's chunk was kept
            ours = self._ours(error)
            return [Outcome(error=ours) for _ in jobs]

    def _run_group(self, jobs: Sequence[Task[Any]], what: str) -> list[Outcome[Any]]:
        self.runtime.check_usable()
        with self._exclusive(what):
            self.runtime.check_usable()  # as in run
            driver = self._ready()
            if self._written_alone(jobs, driver):
                return [Outcome() for _ in jobs]
            try:
                self._begin(driver)
                outcomes = self._run_all(jobs)
                events = self._keep_log()
            except Exception as error:
                self._undo(driver)
                ours = self._ours(error)
                if not self.runtime.dialect.usable(driver) or isinstance(ours, EventLogSwitched):
                    raise ours from error
                self._begin(driver)
                try:
                    outcomes = [self._replay(driver, job) for job in jobs]
                    events = self._keep_log()
                except BaseException:
                    self._undo(driver)
                    raise
            self._commit(driver)
            self._committed(events)
            return outcomes

    def _written_alone(self, jobs: Sequence[Task[Any]], driver: Any) -> bool:
        """Whether one statement, which is a transaction by itself, could write what all of them want written."""
        runtime, rows = self.runtime, [job for job in jobs if isinstance(job, OneRow)]
        if len(rows) != len(jobs) or runtime.log is not None or not runtime.dialect.many_in_one or not self._autocommits():
            return False
        if len({row.hot for row in rows}) != 1:
            return False
        try:
            return self._write_rows(driver, rows)
        except Exception as error:
            self._undo(driver)
            ours = self._ours(error, committing=True)
            if isinstance(ours, StoreBusy | Conflict):
                return False  # as in _run: in a transaction they find out which of them is refused, and for what
            raise ours from error

    def _write_rows(self, driver: Any, rows: Sequence[OneRow]) -> bool:
        """Without a log of events, those of the same statement in one call; False unless each wrote its row."""
        return all(self._write_many(driver, hot, values) == len(values) for hot, values in by_statement(rows).items())

    def _write_many(self, driver: Any, hot: Hot, rows: Sequence[Mapping[str, Any]]) -> int:
        runtime = self.runtime
        if not runtime.dialect.many_in_one:
            return runtime.hot[hot].run_many(driver, rows)
        together = self._together.get(hot)
        if together is None:
            together = self._together[hot] = Together(hot, runtime.hot)
        return together.run(driver, rows)

    def _run_all(self, jobs: Sequence[Task[Any]]) -> list[Outcome[Any]]:
        """In a transaction: rows of the same statement together, where nobody has to know what each of them changed."""
        if self._statements.journal is not None:
            return [Outcome(job.run(self._statements)) for job in jobs]
        rows = [job for job in jobs if isinstance(job, OneRow)]
        outcomes = [Outcome(None if isinstance(job, OneRow) else job.run(self._statements)) for job in jobs]
        if not self._write_rows(self._driver, rows):
            raise _MissedError
        return outcomes

    def close(self) -> None:
        """Give the connection back to its pool."""
        with self.mutex:
            pooled, self._pooled, self._driver = self._pooled, None, None
            if pooled is not None:
                if self._restore is not None:
                    self._restore()
                if self.runtime.dialect.disposed:
                    pooled.invalidate()  # its pool is empty already, and would keep it
                pooled.close()

    def _ready(self) -> Any:
        dialect = self.runtime.dialect
        if self._driver is not None and not dialect.alive(self._driver):
            self._drop()
        if self._driver is None:
            pooled = None
            if not dialect.one_writer:
                check_for_recorders(dialect.writer.pool)
            try:
                pooled = dialect.writer.raw_connection()
                driver: Any = pooled.driver_connection
                self._restore = self._prepare(driver)
            except Exception as error:
                if pooled is not None:
                    pooled.invalidate()
                raise self._ours(error) from error
            self._pooled, self._driver = pooled, driver
            self._statements = HotConnection(self.runtime.hot, dialect.runner(driver), dialect.wire)
        return self._driver

    def _prepare(self, driver: Any) -> Callable[[], None] | None:
        return self.runtime.dialect.prepare_held(driver)

    def _begin(self, driver: Any) -> None:
        kept = self.runtime.log
        self.runtime.retrying_lock(lambda: self.runtime.dialect.begin_driver(driver))
        self._log = kept or self.runtime.log
        self._statements.journal = None if self._log is None else Journal()

    def _keep_log(self) -> Sequence[Any]:
        """The last statements of the transaction, where the log of events is on."""
        journal, log = self._statements.journal, self._log
        if journal is None or log is None or not (deeds := journal.take()):
            return ()
        return log.write(self._statements, deeds)

    def _committed(self, events: Sequence[Any]) -> None:
        if events and self._log is not None:
            self._log.committed(events)
            if self.runtime.observers.wanted(COMMITTED):
                self.runtime.observers.tell(COMMITTED, events)

    def _commit(self, driver: Any) -> None:
        try:
            driver.execute("COMMIT")
        except BaseException as error:
            self._undo(driver)
            raise self._ours(error, committing=True) from error

    def _undo(self, driver: Any) -> None:
        dialect = self.runtime.dialect
        if not dialect.usable(driver):
            self._drop()
        elif dialect.in_transaction(driver):
            try:
                driver.execute("ROLLBACK")
            except Exception as error:
                if dialect.classify(error) is None:
                    raise
                self._drop()

    def _drop(self) -> None:
        pooled, self._pooled, self._driver = self._pooled, None, None
        if pooled is not None:
            pooled.invalidate()

    def _replay(self, driver: Any, job: Task[Any]) -> Outcome[Any]:
        driver.execute("SAVEPOINT member")
        journal = self._statements.journal
        mark = (0, 0) if journal is None else journal.mark()
        try:
            outcome = Outcome(job.run(self._statements))
        except Exception as error:
            driver.execute("ROLLBACK TO SAVEPOINT member")
            if journal is not None:
                journal.back(mark)
            outcome = Outcome(error=self._ours(error))
        driver.execute("RELEASE SAVEPOINT member")
        return outcome

    def _ours(self, error: BaseException, *, committing: bool = False) -> BaseException:
        ours = self.runtime.translate(error)
        if committing and isinstance(ours, Unavailable):
            return Unavailable("The connection was lost while committing", outcome="unknown")
        return ours


class _Exclusive:
    """The store's writer lock on a one-writer database, and the connection's own."""

    __slots__ = ("_lock", "_mutex", "_what")

    def __init__(self, held: HeldConnection, what: str) -> None:
        self._lock = held.runtime.lock if held.runtime.dialect.one_writer else None
        self._mutex, self._what = held.mutex, what

    def __enter__(self) -> None:
        if self._lock is not None:
            self._lock.acquire(threading.get_ident(), what=self._what)
        self._mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self._mutex.release()
        if self._lock is not None:
            self._lock.release()
