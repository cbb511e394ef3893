"""The frame of one repository verb inside a unit of work."""

from types import TracebackType
from typing import TYPE_CHECKING

from sqlalchemy import Connection, NestedTransaction

from persist.db.changes import Journal
from persist.db.guests import check_reachable
from persist.db.spoilt import error_of
from persist.errors import Closed, PersistError, WrongOwner

if TYPE_CHECKING:
    from persist.db.work import Work


class Verb:
    """See Work.verb. A verb called by a verb is part of it."""

    __slots__ = ("_mark", "_name", "_savepoint", "_work", "_writes")

    def __init__(self, work: "Work", name: str, writes: bool) -> None:
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

    def _begin(self, work: "Work") -> None:
        if not work.is_open:  # another thread has ended it in this moment
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
            work.journal.open(self._name)

    def _join(self, work: "Work", connection: Connection) -> None:
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

    def _end(self, work: "Work", error: BaseException | None) -> None:
        carried, work.carried, work.listing = work.carried, None, False
        raised = error
        if carried and isinstance(error, Exception) and not isinstance(work.runtime.translate(error), PersistError):
            error = error_of(carried[0])  # what is in between did not ask it: timedelta() just says that it is no number
        if self._savepoint is not None:
            error = self._end_joined(self._savepoint, error)
        if error is None:
            return
        if work.journal is not None:
            work.journal.back(self._mark)
        ours = work.runtime.translate(error)
        from_database = ours is not error and getattr(error, "orig", None) is not ours
        # a column may refuse a value before it gets there
        if (work._wrote or from_database) and not work.joined:
            work._doomed = True
        if ours is not raised:
            raise ours from (raised if ours is error else error)

    def _end_joined(self, savepoint: NestedTransaction, error: BaseException | None) -> BaseException | None:
        """The host's transaction survives a refused verb: only our savepoint goes. Its commit is the host's, so what the
        verb did is numbered now."""
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
