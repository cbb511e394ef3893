"""The unit of work: one transaction on one connection, and the rules of what may run in it."""

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, NestedTransaction

from persist.db.changes.journal import COMMITTED, Journal, VerbChanges
from persist.db.concurrency.observers import undo_announcements
from persist.db.concurrency.ownership import Owner
from persist.db.concurrency.writer_lock import Waiting
from persist.db.connections.host_connections import check_reachable
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.transactions.runtime import EventLog, Runtime
from persist.db.transactions.statement_execution import StatementExecution
from persist.db.unreadable.cells import error_of
from persist.errors import Closed, PersistError, ReadOnlyTransaction, StoreForked, TransactionAborted, Unavailable, WrongOwner
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.unreadable import results
else:
    results = lazy_module("persist.db.unreadable.results")

log = logging.getLogger("persist")

_LONG_BEGIN = 1.0


class UnitOfWork(StatementExecution):
    """A write transaction or a snapshot, the store's own or joined into the caller's. One thread at a time runs a verb."""

    def __init__(self, runtime: Runtime, *, writable: bool, is_snapshot: bool = False, joined: Connection | None = None) -> None:
        super().__init__(runtime, joined)
        self.writable = writable
        self.owner = Owner(is_snapshot=is_snapshot)
        self.marks = joined is None and (writable or runtime.one_connection)
        """Whether verbs mark their caller as inside, which then cannot begin another one. The async API marks it itself."""
        self.joined = self._open = joined is not None
        self._depth = 0
        self._doomed = False
        self._asked, self._began = time.monotonic(), 0.0
        self.announcements: list[tuple[str, Any]] = []
        self.written: list[Any] = []
        """The events that the transaction has written so far."""
        self.log: EventLog | None = None
        self.journal: Journal | None = None
        """What the transaction changed, where the database's log of events is on."""
        if joined is not None:
            # without the host's own, whose None would be another kind of map for the statements that Core keeps compiled
            self._options["schema_translate_map"] = {SCHEMA_TOKEN: runtime.dialect.schema}

    # -- life

    @property
    def is_open(self) -> bool:
        """Whether the transaction has begun and not ended."""
        return self._open

    def use(self, connection: Connection) -> None:
        """Let `begin` use this connection."""
        self._connection = connection

    def begin(self, cancelled: Callable[[], bool] | None = None) -> None:
        """Take the lock, a connection and a transaction, or leave nothing behind."""
        runtime, dialect = self.runtime, self.runtime.dialect
        try:
            self._enter(cancelled)
        except BaseException:
            self._give_up()
            raise
        try:

            def start() -> None:
                self._connection = self._connection or dialect.connect(write=self.writable)
                driver = dialect.begin(self._connection, write=self.writable, waiting=Waiting(self._asked, cancelled))
                self._driver = driver if runtime.owns_engine else None

            kept = runtime.log
            runtime.retrying_lock(start, self._asked)
            self.log = kept or runtime.log  # as before BEGIN: another thread may have switched it while we waited
            if self.writable and self.log is not None:
                self.journal = Journal()
        except BaseException:
            self._release()
            raise
        self._began = time.monotonic()
        self._open = True

    def _enter(self, cancelled: Callable[[], bool] | None) -> None:
        runtime = self.runtime
        runtime.check_usable()
        if not self.writable:
            runtime.enter_read(self.owner, "read()", cancelled)
        elif runtime.read_only:
            raise ReadOnlyTransaction("begin()")
        else:
            runtime.enter_write(self.owner, "begin()", cancelled)

    def _give_up(self) -> None:
        # neither cache the connection nor return it to the pool: the store may be closing both at this moment
        connection, self._connection = self._connection, None
        if connection is not None and not self.runtime.leave_to_parent(connection):
            self.runtime.dialect.discard(connection)

    def commit(self) -> None:
        """Commit. A transaction in which a verb failed is rolled back instead and raises TransactionAborted."""
        if self.runtime.leave_to_parent(self._connection):
            raise StoreForked
        if self._doomed:
            self.rollback()
            raise TransactionAborted
        assert self._connection is not None
        if self.journal is not None or self.written:
            self._write_events()
        self._open = False
        try:
            if self.writable:
                self.runtime.dialect.end(self._connection, self._driver, commit=True)
            else:
                self.runtime.dialect.end_read(self._connection, self._driver)
        except Exception as error:
            ours = self.runtime.translate(error)
            lost = isinstance(ours, Unavailable)
            raise Unavailable("The connection was lost while committing", outcome="unknown") if lost else ours from error
        finally:
            self._release()
        if self.written and self.log is not None:
            self.log.committed(self.written)

    def _write_events(self) -> None:
        """Write the transaction's events as its last statements; if they fail, roll back."""
        try:
            self.keep_log()
        except BaseException as error:
            self.rollback()
            raise self.runtime.translate(error) from error
        if self.written:
            self.announce(COMMITTED, self.written)

    def keep_log(self, *more: VerbChanges) -> bool:
        """Write events for the changes so far and for `more`. False if the log is off, or if no change became an event."""
        if self.journal is None or self.log is None:
            return False
        deeds = [*self.journal.drain(), *more]
        if not deeds:
            return True
        events = self.log.write(self, deeds)
        self.written += events
        return bool(events)

    @property
    def ends_at_once(self) -> bool:
        """Whether `end_read` returns without waiting for the database."""
        connection = self._connection
        return connection is not None and not self._doomed and self.runtime.dialect.ends_at_once(connection, self._driver)

    def end_read(self) -> None:
        """End a snapshot, by COMMIT unless a verb failed in it."""
        (self.rollback if self._doomed else self.commit)()

    def rollback(self) -> None:
        """Roll back; never raises for a connection that is already lost."""
        self._open = False
        if self.runtime.leave_to_parent(self._connection):
            return
        try:
            if self._connection is not None:
                self.runtime.dialect.end(self._connection, self._driver, commit=False)
        except Exception as error:
            if self.runtime.dialect.classify(error) is None:
                raise
            log.warning("rolling back on a lost connection: %s", type(error).__name__)
        finally:
            self._release()
            undo_announcements(self.announcements)

    @property
    def own_connection(self) -> Connection | None:
        """The store's own open connection; None in `join` and on a caller's engine."""
        return None if self._driver is None else self._connection

    def interrupt(self) -> None:
        """Cancel the statement that another thread is running in this transaction."""
        driver = self._driver
        if driver is not None:
            self.runtime.dialect.interrupt(driver)

    def _release(self) -> None:
        connection, self._connection, self._driver = self._connection, None, None
        try:
            if connection is not None:
                self.runtime.dialect.release(connection, write=self.writable)
        finally:
            if self.writable:
                self.runtime.leave_write(self.owner)
                held = time.monotonic() - self._began if self._began else 0.0
                if held > _LONG_BEGIN and self.runtime.dialect.one_writer:
                    log.warning("a write transaction held the store's lock for %.1f s", held)
            else:
                self.runtime.leave_read(self.owner)

    def announce(self, topic: str, value: Any) -> None:
        """Notify the observers of the topic after the commit. Does nothing in join(), where the caller commits."""
        if not self.joined and self.runtime.observers.wanted(topic):
            self.announcements.append((topic, results.without_unreadable_cells(value, writes=True) if self.carried else value))

    # -- verbs

    def verb(self, name: str, *, writes: bool) -> "Verb":
        """The context manager around one verb: checks before it; after an error, rollback marking and error translation."""
        self.runtime.check_process()
        if not self._open:
            raise Closed("transaction")
        if self._doomed:
            raise TransactionAborted
        if writes and not self.writable:
            raise ReadOnlyTransaction(name)
        return Verb(self, name, writes)

    def begin_event(self, name: str, stream: str | None = None) -> None:
        """Record the changes that follow as one event of that name and stream."""
        if self.journal is not None:
            self.journal.begin_verb(name, stream)


class Verb:
    """The context manager of UnitOfWork.verb. A verb that is called inside a verb is part of the outer one."""

    __slots__ = ("_mark", "_name", "_savepoint", "_work", "_writes")

    def __init__(self, work: UnitOfWork, name: str, writes: bool) -> None:
        self._work, self._name, self._writes = work, name, writes
        self._savepoint: NestedTransaction | None = None
        self._mark = (0, 0)

    def __enter__(self) -> None:
        work = self._work
        if not work.owner.using.acquire(blocking=False):
            raise WrongOwner
        work._depth += 1
        if work._depth > 1:
            return
        try:
            self._begin(work)
        except BaseException as error:
            work._depth -= 1
            work.carried, work.listing = None, False
            work.owner.using.release()
            raise work.runtime.translate(error) from error

    def _begin(self, work: UnitOfWork) -> None:
        if not work.is_open:  # another thread has just ended the transaction
            raise Closed("transaction")
        if work.marks:
            work.owner.take_up()
        work._wrote = False
        work.carried, work.listing = [], not self._writes
        if work.joined:
            assert work._connection is not None
            self._join(work, work._connection)
        if work.journal is not None:
            self._mark = work.journal.mark()
            work.journal.begin_verb(self._name)

    def _join(self, work: UnitOfWork, connection: Connection) -> None:
        check_reachable(connection)
        if not self._writes:
            return
        if work.journal is None and work.runtime.log is not None:
            work.log, work.journal = work.runtime.log, Journal()
        work.runtime.dialect.join(connection)
        self._savepoint = connection.begin_nested()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        work = self._work
        try:
            work._depth -= 1
            if not work._depth:
                self._end(work, error)
        finally:
            work.owner.using.release()

    def _end(self, work: UnitOfWork, error: BaseException | None) -> None:
        carried, work.carried, work.listing = work.carried, None, False
        raised = error
        if carried and isinstance(error, Exception) and not isinstance(work.runtime.translate(error), PersistError):
            error = error_of(carried[0])  # code that got the placeholder failed on it, as timedelta() does
        if self._savepoint is not None:
            error = self._end_joined(self._savepoint, error)
        if error is None:
            return
        if work.journal is not None:
            work.journal.rollback_to(self._mark)
        ours = work.runtime.translate(error)
        from_database = ours is not error and getattr(error, "orig", None) is not ours
        # a column type may refuse a value before it reaches the database; that needs no rollback
        if (work._wrote or from_database) and not work.joined:
            work._doomed = True
        if ours is not raised:
            raise ours from (raised if ours is error else error)

    def _end_joined(self, savepoint: NestedTransaction, error: BaseException | None) -> BaseException | None:
        """End the savepoint of a verb inside a host's transaction, which survives a refused verb.

        The commit is the host's, so the verb's events are numbered now.
        """
        work = self._work
        if error is None:
            try:
                work.keep_log()
                savepoint.commit()
            except Exception as failed:
                error = failed
        if error is not None and savepoint.is_active:
            savepoint.rollback()
        return error
