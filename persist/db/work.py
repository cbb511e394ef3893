"""The unit of work: one transaction on one connection, and the rules of what may run in it."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Delete, Executable, Insert, NestedTransaction, Update

from persist.db.base import SCHEMA_TOKEN
from persist.db.changes import COMMITTED, Deed, Journal, twin_of
from persist.db.hot import Hot, Row
from persist.db.ownership import Owner
from persist.db.runtime import EventLog, Runtime
from persist.db.verb import Verb
from persist.db.whole_tables import WholeTables
from persist.errors import Closed, ReadOnlyTransaction, StoreForked, TransactionAborted, Unavailable

log = logging.getLogger("persist")

_LONG_BEGIN = 1.0


class Work(WholeTables):
    """A transaction: `writable` or a snapshot, ours or joined into the caller's. One thread at a time is inside of a verb."""

    def __init__(self, runtime: Runtime, *, writable: bool, looks: bool = False, joined: Connection | None = None) -> None:
        super().__init__(runtime)
        self.writable = writable
        self.owner = Owner(looks=looks)
        self.marks = joined is None and (writable or runtime.one_connection)
        """Whether whoever uses it is marked as inside of it, which others then cannot begin; the async face does that itself."""
        self.joined = self._open = joined is not None
        self._connection: Connection | None = joined
        self._driver: Any = None
        self._wrote = False
        self._depth = 0
        self._doomed = False
        self._began = 0.0
        self.announcements: list[tuple[str, Any]] = []
        self.written: list[Any] = []
        """The events of the transaction so far."""
        self.log: EventLog | None = None
        self.journal: Journal | None = None
        """What the transaction changed, where the database's log of events is on."""
        self._options: dict[str, Any] = {"preserve_rowcount": True}  # of an INSERT, too, which may find its row there
        if joined is not None:
            theirs = joined.get_execution_options().get("schema_translate_map") or {}
            self._options["schema_translate_map"] = {**theirs, SCHEMA_TOKEN: runtime.dialect.schema}

    # -- life

    @property
    def is_open(self) -> bool:
        """Between begin and its end."""
        return self._open

    def use(self, connection: Connection) -> None:
        """Begin on this one."""
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
                driver = dialect.begin(self._connection, write=self.writable, cancelled=cancelled)
                self._driver = driver if runtime.owns_engine else None

            kept = runtime.log
            runtime.retrying_lock(start)
            self.log = kept or runtime.log  # whatever others find out meanwhile: only the log itself knows at the commit
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
        # not to the next transaction, nor to the pool: the store may be closing them at this moment
        connection, self._connection = self._connection, None
        if connection is not None and not self.runtime.leave_to_parent(connection):
            self.runtime.dialect.discard(connection)

    def commit(self) -> None:
        """Make it durable; a doomed transaction rolls back instead and says so."""
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
        """The last statements of a transaction, where the log is on; if they fail, nothing of it was written."""
        try:
            self.keep_log()
        except BaseException as error:
            self.rollback()
            raise self.runtime.translate(error) from error
        if self.written:
            self.announce(COMMITTED, self.written)

    def keep_log(self, *more: Deed) -> bool:
        """Make events of what was done so far, and of `more`; False where the log is off."""
        if self.journal is None or self.log is None:
            return False
        deeds = [*self.journal.take(), *more]
        if not deeds:
            return True
        events = self.log.write(self, deeds)
        self.written += events
        return bool(events)

    @property
    def ends_at_once(self) -> bool:
        """Whether `end_read` has to wait for nobody."""
        connection = self._connection
        return connection is not None and not self._doomed and self.runtime.dialect.ends_at_once(connection, self._driver)

    def end_read(self) -> None:
        """End a snapshot."""
        (self.rollback if self._doomed else self.commit)()

    def rollback(self) -> None:
        """Undo everything; never raises for a connection that is already gone."""
        self._open = False
        self.announcements.clear()
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

    @property
    def own_connection(self) -> Connection | None:
        """The connection that only we use; None inside a transaction or over an engine of the caller's."""
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
        """After the commit, whoever observes the topic is told. Not in join(), where the commit is the caller's."""
        if not self.joined and self.runtime.observers.wanted(topic):
            self.announcements.append((topic, value))

    # -- verbs

    def verb(self, name: str, *, writes: bool) -> Verb:
        """The frame of one repository verb: refusals before it, dooming and error translation after it."""
        self.runtime.check_process()
        if not self._open:
            raise Closed("transaction")
        if self._doomed:
            raise TransactionAborted
        if writes and not self.writable:
            raise ReadOnlyTransaction(name)
        return Verb(self, name, writes)

    def deed(self, name: str, stream: str | None = None) -> None:
        """What follows is one event of that name, and of that stream."""
        if self.journal is not None:
            self.journal.open(name, stream)

    # -- statements

    def rows(self, hot: Hot, **values: Any) -> list[Row]:
        """Every row of a hot SELECT, decoded."""
        return self._all(hot, values)

    def _all(self, hot: Hot, values: Mapping[str, Any]) -> list[Row]:
        if self._driver is not None:
            return self.runtime.hot[hot].all(self._driver, values)
        return [tuple(row) for row in self._core(hot.statement, values)]

    def row(self, hot: Hot, **values: Any) -> Row | None:
        """The first row of a hot SELECT, decoded."""
        if self._driver is not None:
            return self.runtime.hot[hot].one(self._driver, values)
        found = self._core(hot.statement, values).first()
        return None if found is None else tuple(found)

    def run(self, hot: Hot, **values: Any) -> int:
        """Run a hot INSERT, UPDATE or DELETE; the number of rows."""
        if self.journal is not None and (kept := self.journal.run(hot, values, self._all)) is not None:
            count = len(kept)
        elif self._driver is not None:
            count = self.runtime.hot[hot].run(self._driver, values)
        else:
            count = self._core(hot.statement, values).rowcount
        self._wrote = self._wrote or count != 0
        return count

    def returned(self, hot: Hot, **values: Any) -> Row | None:
        """The first row that a hot INSERT or UPDATE … RETURNING wrote, decoded; None where it wrote none."""
        found = None if self.journal is None else self.journal.run(hot, values, self._all)
        if found is None:
            found = self._all(hot, values)
        self._wrote = self._wrote or bool(found)
        return found[0] if found else None

    def run_many(self, hot: Hot, values: Sequence[Mapping[str, Any]]) -> None:
        """Run one hot statement for many rows."""
        if len(values) < 2 or (self.journal is not None and twin_of(hot) is not None):
            for row in values:
                self.run(hot, **row)
            return
        self._wrote = True
        if self._driver is None:
            self._core(hot.statement, list(values))
            return
        self.runtime.hot[hot].run_many(self._driver, values)

    def select(self, statement: Executable, values: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        """Run a Core SELECT that is put together per call."""
        return self._core(statement, values)

    def _core(self, statement: Executable, values: Any) -> CursorResult[Any]:
        assert self._connection is not None
        result: CursorResult[Any] = self._connection.execute(statement, values, execution_options=self._options)
        return result

    def change(self, statement: Insert | Update | Delete) -> int:
        """Run a Core INSERT, UPDATE or DELETE that is put together per call; the number of rows."""
        self._wrote = True
        if self.journal is not None:
            kept = self.journal.run(Hot(statement), {}, lambda twin, _: [tuple(row) for row in self._core(twin.statement, None)])
            if kept is not None:
                return len(kept)
        return self._core(statement, None).rowcount

    def savepoint(self) -> NestedTransaction:
        """A point to roll back to."""
        assert self._connection is not None
        return self._connection.begin_nested()
