"""The frame around each verb: checks before it, translation of errors, and what an error does to the transaction."""

from types import TracebackType

from sqlalchemy import NestedTransaction

from persist.db.connections.host_connections import check_reachable
from persist.db.transactions.transaction_events import TransactionEvents
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import error_of
from persist.errors import Closed, PersistError, ReadOnlyTransaction, TransactionAborted, WrongOwner


class Verb:
    """The context manager around one verb. A verb that is called inside a verb is part of the outer one."""

    __slots__ = ("_mark", "_savepoint", "_work", "_writes", "name")

    def __init__(self, work: UnitOfWork, name: str, *, writes: bool) -> None:
        """Raise an error if the transaction cannot run such a verb."""
        work.runtime.check_process()
        if not work.is_open:
            raise Closed("transaction")
        if work.doomed:
            raise TransactionAborted
        if writes and not work.writable:
            raise ReadOnlyTransaction(name)
        self.name = name
        self._work, self._writes = work, writes
        self._savepoint: NestedTransaction | None = None
        self._mark = (0, 0)

    def __enter__(self) -> None:
        work = self._work
        if not work.owner.using.acquire(blocking=False):
            raise WrongOwner
        work.depth += 1
        if work.depth > 1:
            return
        try:
            self._begin(work)
        except BaseException as error:
            work.depth -= 1
            work.carried, work.listing = None, False
            work.owner.using.release()
            raise work.runtime.translate(error) from error

    def _begin(self, work: UnitOfWork) -> None:
        if not work.is_open:  # another thread has just ended the transaction
            raise Closed("transaction")
        if work.marks:
            work.owner.take_up()
        work.wrote = False
        work.carried, work.listing = [], not self._writes
        if work.joined:
            self._join(work)
        if work.journal is not None:
            self._mark = work.journal.mark()
            work.journal.begin_verb(self.name)

    def _join(self, work: UnitOfWork) -> None:
        connection = work.connection
        check_reachable(connection)
        if not self._writes:
            return
        if work.journal is None and work.runtime.log is not None:
            work.events = TransactionEvents(work.runtime.log)
        work.runtime.transactions.join(connection)
        self._savepoint = connection.begin_nested()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        work = self._work
        try:
            work.depth -= 1
            if not work.depth:
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
        if (work.wrote or from_database) and not work.joined:
            work.doomed = True
        if ours is not raised:
            raise ours from (raised if ours is error else error)

    def _end_joined(self, savepoint: NestedTransaction, error: BaseException | None) -> BaseException | None:
        """End the savepoint of a verb inside a host's transaction, which survives a refused verb.

        The commit is the host's, so the verb's events are numbered now.
        """
        work = self._work
        if error is None:
            try:
                work.store_events()
                savepoint.commit()
            except Exception as failed:
                error = failed
        if error is not None and savepoint.is_active:
            savepoint.rollback()
        return error
