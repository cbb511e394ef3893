"""The unit of work: one transaction on one connection, and the rules of what may run in it."""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from persist.db.base import SCHEMA_TOKEN
from persist.db.changes import COMMITTED, Deed, Journal
from persist.db.locks import Waiting
from persist.db.observers import take_back
from persist.db.ownership import Owner
from persist.db.running import Running
from persist.db.runtime import EventLog, Runtime
from persist.db.verb import Verb
from persist.errors import Closed, ReadOnlyTransaction, StoreForked, TransactionAborted, Unavailable
from persist.later import later

if TYPE_CHECKING:
    from persist.db import given_back
else:
    given_back = later("persist.db.given_back")

log = logging.getLogger("persist")

_LONG_BEGIN = 1.0


class Work(Running):
    """A transaction: `writable` or a snapshot, ours or joined into the caller's. One thread at a time is inside of a verb."""

    def __init__(self, runtime: Runtime, *, writable: bool, looks: bool = False, joined: Connection | None = None) -> None:
        super().__init__(runtime, joined)
        self.writable = writable
        self.owner = Owner(looks=looks)
        self.marks = joined is None and (writable or runtime.one_connection)
        """Whether whoever uses it is marked as inside of it, which others then cannot begin; the async face does that itself."""
        self.joined = self._open = joined is not None
        self._depth = 0
        self._doomed = False
        self._asked, self._began = time.monotonic(), 0.0
        self.announcements: list[tuple[str, Any]] = []
        self.written: list[Any] = []
        """The events of the transaction so far."""
        self.log: EventLog | None = None
        self.journal: Journal | None = None
        """What the transaction changed, where the database's log of events is on."""
        if joined is not None:
            # without the host's own, whose None would be another kind of map for the statements that Core keeps compiled
            self._options["schema_translate_map"] = {SCHEMA_TOKEN: runtime.dialect.schema}

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
                driver = dialect.begin(self._connection, write=self.writable, waiting=Waiting(self._asked, cancelled))
                self._driver = driver if runtime.owns_engine else None

            kept = runtime.log
            runtime.retrying_lock(start, self._asked)
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
            take_back(self.announcements)

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
            self.announcements.append((topic, given_back.given_back(value, writes=True) if self.carried else value))

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
