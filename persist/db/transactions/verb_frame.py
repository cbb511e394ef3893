"""The frame of a verb: it checks before the verb runs, translates errors, and decides what an error does to the transaction."""

import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from sqlalchemy import NestedTransaction

from persist.db.concurrency.fork_count import PROCESS
from persist.db.concurrency.observers import undo_announcements
from persist.db.connections import check_reachable
from persist.db.observation import VerbTrace
from persist.db.statements.prepared import noted_deletions
from persist.db.transactions.database_transaction import TransactionEvents, mark, unmark
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import Carried, error_of, is_not_storable
from persist.errors import (
    Closed,
    Conflict,
    EventLogSwitched,
    PersistError,
    ReadOnlyTransaction,
    StoreCorrupt,
    StoreForked,
    TransactionAborted,
    WrongOwner,
)

log = logging.getLogger("persist")


class Verb:
    """One verb while it runs: from the making of this object to `end`. A verb inside a verb is part of the outer one."""

    __slots__ = ("_first", "_guarded", "_mark", "_savepoint", "_trace", "_work", "_writes", "name")

    def __init__(self, work: UnitOfWork, name: str, writes: bool, guarded: bool = False, module: str = "") -> None:
        """Raise an error if the transaction cannot run the verb. `module`: the module of the verb's function, for traces."""
        if work.runtime.forks != PROCESS.forks:  # before any lock is taken: the thread that holds it may not exist here
            raise StoreForked
        if not work.transaction.is_open:
            raise Closed("transaction")
        if work.doomed:
            raise TransactionAborted
        if writes and not work.writable:
            raise ReadOnlyTransaction(name)
        self._work = work
        self._savepoint: NestedTransaction | None = None
        self._trace: VerbTrace | None = None
        if not work.owner.using.acquire(False):
            raise WrongOwner
        work.depth += 1
        if work.depth > 1:
            return
        self.name, self._writes, self._guarded, self._mark = name, writes, guarded, (0, 0)
        self._first = not work.used
        if writes or work.runtime.dialect.one_writer:  # a read of a server leaves nothing: READ COMMITTED holds no lock
            work.used = True
        try:
            if not work.transaction.is_open:  # another thread has just ended the transaction
                raise Closed("transaction")
            if work.marks:
                work.owner.set_holder()
            work.wrote = False
            work.carried, work.listing = Carried(), not writes
            if work.joined:
                self._join(work)
            journal = work.events.journal
            if journal is not None:
                self._mark = journal.mark()
                journal.begin_verb(self.name)
            transaction = work.transaction
            if transaction.watch is not None:
                transaction.watch.verb = name
                if transaction.trace is not None:
                    self._trace = transaction.trace.verb(module, name)
        except BaseException as error:
            work.depth -= 1
            work.carried, work.listing = None, False
            work.owner.using.release()
            raise work.runtime.translate(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end(error)

    def _join(self, work: UnitOfWork) -> None:
        connection = work.connection
        check_reachable(connection)
        if not self._writes:
            return
        if work.journal is None and work.runtime.log is not None:
            work.events = TransactionEvents(work.runtime.log)
        work.runtime.transactions.join(connection)
        self._savepoint = connection.begin_nested()
        if work.runtime.marks_writes:
            mark(work)
        if self._guarded:
            work.runtime.transactions.mark_joined(connection, marked=True)

    def runs_again(self, error: Exception, given: Iterable[object]) -> bool:
        """Whether the verb is run again: it failed on a cell or on the log, and can be undone and given the same arguments."""
        work = self._work
        carried = work.carried
        if work.depth > 1 or any(hasattr(one, "read") or hasattr(one, "__next__") for one in given):
            return False
        if isinstance(work.runtime.translate(error), EventLogSwitched):
            return self._logs_now()
        if carried is None or carried.strict:
            return False
        if not is_not_storable(error) and (carried.missing is None or not self._is_bare(error)):
            return False
        if work.wrote and not self._begins_anew():
            return False
        work.carried = Carried()
        work.carried.strict = True
        return True

    def _begins_anew(self) -> bool:
        """Put another transaction in the place of this one, which is rolled back. False if it did more before than read."""
        work = self._work
        if work.joined or not self._first or not work.transaction.is_untouched or work.has_committed:
            return False
        work.transaction.begin_anew()
        undo_announcements(work.announcements)
        if work.runtime.marks_writes:
            mark(work)
        self._log_begins()
        return True

    def _log_begins(self) -> None:
        work = self._work
        work.wrote, work.touched = False, frozenset()
        work.events = TransactionEvents(work.runtime.log, work.events.actor)
        if work.journal is not None:
            work.journal.begin_verb(self.name)

    def _logs_now(self) -> bool:
        """Let the transaction keep the log, by another one in its place, or where it is. False where neither can be."""
        work = self._work
        if work.joined or work.is_alone or not work.writable or work.journal is not None:
            return False
        if self._begins_anew():
            work.runtime.counters.retried("event_log_switched")
        elif work.wrote or not work.runtime.dialect.one_writer:
            return False
        else:
            self._log_begins()
        work.carried = Carried()
        return True

    def _is_bare(self, error: BaseException | None) -> bool:
        """Whether the error is not about a stored row, or does not name the row."""
        if not isinstance(error, Exception):
            return False
        return type(error) is StoreCorrupt or not isinstance(self._work.runtime.translate(error), PersistError)

    def end(self, error: BaseException | None, result: object = None) -> None:
        """The verb has returned, or failed. Raises the error as callers get it, if that is another one."""
        work = self._work
        try:
            work.depth -= 1
            if not work.depth:
                carried, work.carried, work.listing = work.carried, None, False
                if error is not None or self._savepoint is not None:
                    self._end(work, error, carried)
        except BaseException as ours:
            error = ours
            raise
        finally:
            if self._trace is not None:
                self._trace.ended(result, error)
            work.owner.using.release()

    def _end(self, work: UnitOfWork, error: BaseException | None, carried: Carried | None) -> None:
        raised = error
        broken = None if carried is None else error_of(carried[0]) if carried else carried.missing
        if broken is not None and self._is_bare(error):
            error = broken  # code that got the placeholder failed on it, as timedelta() does, or on None
        if self._savepoint is not None:
            error = self._end_joined(self._savepoint, error)
        if error is None:
            return
        if work.journal is not None:
            work.journal.rollback_to(self._mark)
        ours = work.runtime.translate(error)
        if (work.joined or not work.writable) and work.runtime.errors.refuses_writes(error):
            ours = ReadOnlyTransaction(self.name)  # as it was begun, by persist or by the host
        from_database = ours is not error and getattr(error, "orig", None) is not ours
        if isinstance(ours, Conflict) and ours is not error:
            ours.__cause__ = error
            ours = self._explained(work, ours)
        # a column type may refuse a value before it reaches the database; that needs no rollback
        if (work.wrote or from_database) and not work.joined:
            work.doomed = True
        if ours is not raised:
            raise ours from (raised if ours is error else error)

    def _explained(self, work: UnitOfWork, error: Conflict) -> Conflict:
        """The error with what refused a deletion: a server is asked in another transaction, as the failed one is lost."""
        if not noted_deletions(error):
            return error
        if not (work.joined or work.runtime.dialect.one_writer):
            try:
                work.transaction.begin_anew()
            except Exception as other:
                log.warning("what refers to the rows cannot be said: %s", type(other).__name__)
                return error
        return work.runtime.explain(work, error)

    def _end_joined(self, savepoint: NestedTransaction, error: BaseException | None) -> BaseException | None:
        """End a verb's savepoint in a host's transaction. The host commits, so the verb's events get their numbers now."""
        work = self._work
        if error is None:
            try:
                work.store_events()
                if work.runtime.marks_writes:
                    unmark(work)
                if self._guarded:
                    work.runtime.transactions.mark_joined(work.connection, marked=False)
                savepoint.commit()
            except Exception as failed:
                error = failed
        if error is not None and savepoint.is_active:
            savepoint.rollback()
        return error
