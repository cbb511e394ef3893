"""One transaction on a connection of the store: its lock, its connection, BEGIN, COMMIT and ROLLBACK."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from logging import DEBUG
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table, literal_column, select, update

from persist.db.changes.batch import StatementRunner
from persist.db.changes.journal import Journal, LogTables, VerbChanges
from persist.db.concurrency.ownership import Owner
from persist.db.concurrency.writer_lock import SHORT, Waiting
from persist.db.connections import Lent
from persist.db.dialects.backends import event_guards_of, lift_row_guards, raw_rows_of, row_guard_ddl, strict_guard_ddl
from persist.db.dialects.interface import Dialect
from persist.db.observation import Outcome, StatementWatch, WatchedDriver, is_logged
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.schema.row_guards import GUARDS, LOGGED, MARKED, UNMARKED, WRITER
from persist.db.statements.prepared import Statement
from persist.db.statements.schema_version import STRICT
from persist.db.transactions.runtime import EventLog, Runtime
from persist.errors import Unavailable

if TYPE_CHECKING:
    from persist.db.dialects.interface import StoredColumn
    from persist.db.dialects.raw_rows import RawRows


class TableOperations:
    """What a transaction asks of its dialect besides statements. `wrote` is told when something was changed."""

    def __init__(self, dialect: Dialect, connection: Connection, wrote: Callable[[bool], None]) -> None:
        self._dialect, self._connection, self._wrote = dialect, connection, wrote

    def names(self) -> set[str]:
        return self._dialect.tables.names(self._connection)

    def columns(self, table: str, *, computed: bool = False) -> "list[StoredColumn]":
        return self._dialect.tables.columns(self._dialect.transactions.driver_of(self._connection), table, computed=computed)

    def may_lack(self, table: Table) -> frozenset[str]:
        return self._dialect.tables.may_lack(self._dialect.transactions.driver_of(self._connection), table)

    def raw_rows(self) -> "RawRows":
        return raw_rows_of(self._dialect, self._dialect.transactions.driver_of(self._connection))

    def lock(self, tables: Sequence[Table]) -> None:
        event_guards_of(self._dialect).lock_tables(self._connection, tables)

    def suspend_references(self, tables: Sequence[Table]) -> Sequence[str]:
        return self._dialect.tables.suspend_references(self._connection, tables)

    def restore_references(self, suspended: Sequence[str]) -> None:
        self._dialect.tables.restore_references(self._connection, suspended)

    def check_guard(self, tables: Sequence[Table], *, on: bool) -> None:
        """Raise NotPermitted with the missing rights if `guard` would be refused."""
        event_guards_of(self._dialect).check_rights(self._connection, tables, on=on)

    def be_brief(self, *, at_once: bool = False) -> None:
        """Raise StoreBusy if a lock takes long, so that others do not queue behind the transaction. `at_once`: do not wait."""
        event_guards_of(self._dialect).be_brief(self._connection, at_once=at_once)

    def number_events(self, log: LogTables) -> bool:
        """Give positions of the sequence to the events of older releases, too. False: the database takes no triggers."""
        self._wrote(True)
        return event_guards_of(self._dialect).number(self._connection, log)

    def guard(self, tables: Sequence[Table], log: LogTables) -> None:
        """Create the event guards: they refuse every writer that changes the tables without writing events."""
        self._wrote(True)
        event_guards_of(self._dialect).create(self._connection, tables, log)

    def guard_log(self, tables: Sequence[Table], log: LogTables) -> None:
        """Number the events of older releases and guard the tables, unless the database takes no triggers."""
        if self.number_events(log):
            self.guard(tables, log)

    def unguarded(self, tables: Sequence[Table]) -> int:
        return event_guards_of(self._dialect).missing(self._connection, tables)

    def drop_guard(self, tables: Sequence[Table]) -> None:
        self._wrote(True)
        event_guards_of(self._dialect).drop(self._connection, tables)

    def drop_guards(self) -> None:
        self._wrote(True)
        event_guards_of(self._dialect).drop_functions(self._connection)

    def guard_rows(self, tables: Iterable[Table]) -> None:
        """Create the row guards of a file that has none since they were dropped. A server's are lifted and never dropped."""
        self._wrote(True)
        for statement in row_guard_ddl(tables, self._dialect.name, None) if self._dialect.one_file else ():
            self._connection.exec_driver_sql(statement)

    def guard_strictly(self, tables: Sequence[Table]) -> None:
        """Let nobody but persist change these tables of a file."""
        self._wrote(True)
        for statement in strict_guard_ddl(tables):
            self._connection.exec_driver_sql(statement)

    @contextmanager
    def without_row_guards(self, tables: Iterable[Table] | None = None) -> Iterator[None]:
        """Inside the block rows may break rules, in `tables` or, if None, in any. After an error, roll it back."""
        if tables is not None and not any(GUARDS in table.info or LOGGED in table.info for table in tables):
            yield
            return
        restore = lift_row_guards(self._dialect, self._dialect.transactions.driver_of(self._connection))
        yield
        restore()


class TransactionEvents:
    """A transaction's changes, and the event log, or None without one. `actor`: by default the actor of the store."""

    __slots__ = ("actor", "journal", "log", "written")

    def __init__(self, log: EventLog | None = None, actor: str | None = None) -> None:
        self.log, self.actor = log, actor
        self.journal = None if log is None else Journal()
        """The changes that are not yet stored as events."""
        self.written: list[Any] = []
        """The events that the transaction has stored so far."""

    def store(self, db: StatementRunner, *more: VerbChanges) -> bool:
        """Store events for the changes so far and for `more`. False if the log is off, or if there were changes but no event."""
        if self.journal is None or self.log is None:
            return False
        changes = [*self.journal.drain(), *more]
        if not changes:
            return True
        events: Sequence[Any] = self.log.write(db, changes, self.actor)
        self.written += events
        return bool(events)

    def ended(self) -> None:
        """Tell the log that the transaction has ended: the events are durable now, or their positions stay unused."""
        if self.written and self.log is not None:
            self.log.ended()


NO_EVENTS = TransactionEvents()
"""For every transaction without an event log."""


# The mark of persist's own write transactions in a strict file made at revision 0028, whose triggers look for it.
#
# The mark is the value of `strict` in `_meta`: it is set first and taken back last in a transaction, so that no other connection
# ever sees it. Triggers made later look for the mark of persist's connections (persist/db/schema/row_guards.py).

_meta = table_of(Meta)
_THIS = _meta.c.key == literal_column(f"'{STRICT}'")
_MARK = Statement(update(_meta).where(_THIS).values(value=literal_column(f"'{MARKED}'")))
_UNMARK = Statement(update(_meta).where(_THIS).values(value=literal_column(f"'{UNMARKED}'")))
LEFT = Statement(
    select(_meta.c.key).where((_meta.c.key == WRITER) | (_THIS & (_meta.c.value == literal_column(f"'{MARKED}'")))).limit(1)
)
"""Finds, in a snapshot, the key of a mark that a transaction left behind: with it no raw writer is refused or noted."""


def mark(work: StatementRunner) -> None:
    """Mark a write transaction as persist's, as its first statement."""
    work.run(_MARK)


def unmark(work: StatementRunner) -> None:
    """Take the mark back, at the end of the transaction, or of a verb in a host's own transaction."""
    work.run(_UNMARK)


log = logging.getLogger("persist")

_LONG_BEGIN = 1.0
"""Seconds after which a write transaction that blocks all others is worth a warning."""

Prepare = Callable[[Connection], Callable[[], None]]
"""Sets up a connection before BEGIN, and returns what restores it after the end of the transaction."""


class DatabaseTransaction:
    """A write transaction or a snapshot. A caller's own transaction is one that is open from the start and never ended here."""

    __slots__ = (
        "_asked",
        "_began",
        "_interrupting",
        "_plain",
        "_restore",
        "connection",
        "driver",
        "is_open",
        "may_be_long",
        "owner",
        "runtime",
        "trace",
        "watch",
        "writable",
    )

    def __init__(self, runtime: Runtime, *, writable: bool, is_snapshot: bool = False, joined: Connection | None = None) -> None:
        self.runtime, self.writable = runtime, writable
        self.owner = Owner(is_snapshot=is_snapshot)
        self.connection = joined
        self._plain: Any = None
        """The driver's connection; None once SQLAlchemy may have run something on it, as on a caller's engine."""
        self.driver: Any = None
        """What executes prepared statements; None on a caller's connection and engine, where SQLAlchemy executes them."""
        self.is_open = joined is not None
        """Whether the transaction has begun and not ended."""
        self.may_be_long = False
        """Whether it is expected to hold the lock for long, which then is not worth a warning."""
        self._asked, self._began = time.monotonic(), 0.0
        self._interrupting = threading.Lock()
        """Held while the connection's statement is interrupted: it is not given to anyone else before that is over."""
        self._restore: Callable[[], None] | None = None
        tracer = runtime.tracer
        self.trace = None if tracer is None else tracer.transaction(writable=writable, joined=joined is not None)
        """Who is told of this transaction, if anybody traces the store."""
        self.watch: StatementWatch | None = None
        """Who is told of each statement; None unless statements are logged or traced."""
        if joined is not None:
            self._watch("join()")

    def begin(
        self, cancelled: Callable[[], bool] | None = None, prepare: Prepare | None = None, *, what: str | None = None
    ) -> None:
        """Take the lock, a connection and a transaction, or leave nothing behind. `what`: the call that an error names."""
        try:
            if self.writable:
                self.runtime.enter_write(self.owner, what or "begin()", cancelled)
            else:
                self.runtime.enter_read(self.owner, what or "read()", cancelled)
        except BaseException as error:
            self._give_up()
            self._refused(error)
            raise
        try:
            try:
                self._start(cancelled, prepare)
            except Exception as error:
                self.runtime.begin_later(lambda: self._start(cancelled, prepare), error, self._asked)
        except BaseException as error:
            self._release()
            self._refused(error)
            raise
        self._began = time.monotonic()
        self.is_open = True
        if self.trace is not None:
            self.trace.began(self._began - self._asked)

    def _refused(self, error: BaseException) -> None:
        if self.trace is not None:
            self.trace.ended("rolled_back", 0.0, error)

    def _ended(self, outcome: Outcome, committing: float = 0.0, error: BaseException | None = None) -> None:
        if self.writable:
            self.runtime.counters.transaction_ended(outcome, self._began - self._asked, committing)
        else:
            outcome = "read"
        if self.trace is not None:
            self.trace.ended(outcome, committing, error)

    def _start(self, cancelled: Callable[[], bool] | None, prepare: Prepare | None) -> None:
        runtime = self.runtime
        if self.connection is None:
            self.connection, self._plain = runtime.connections.lend(write=self.writable)
        if prepare is not None and self._restore is None:
            self._restore = prepare(self.for_core())
        waiting = None
        if self.writable and (cancelled is not None or time.monotonic() - self._asked >= SHORT):
            waiting = Waiting(self._asked, cancelled)
        driver = runtime.transactions.begin(self.connection, write=self.writable, driver=self._plain, waiting=waiting)
        if runtime.owns_engine:
            self.driver = driver
        else:
            self._plain = None
        if self.trace is not None or is_logged(DEBUG):
            self._watch("a transaction")

    @property
    def is_untouched(self) -> bool:
        """Whether SQLAlchemy has run nothing on the connection, which is the store's own."""
        return self._plain is not None

    def begin_anew(self) -> None:
        """Roll back, and begin another transaction in its place. The store's writer lock is kept."""
        self.runtime.transactions.end(self.connection if self._plain is None else None, self.driver, commit=False)
        self.runtime.retrying_lock(lambda: self._start(None, None))

    def take(self, lent: Lent) -> None:
        self.connection, self._plain = lent

    def for_core(self) -> Connection:
        assert self.connection is not None
        self._plain = None
        return self.connection

    def _watch(self, what: str) -> None:
        if self.trace is None and not is_logged(DEBUG):
            return
        self.watch = StatementWatch(what, self.trace, values=self.runtime.settings.log_statement_values)
        if self.driver is not None:
            self.driver = WatchedDriver(self.driver, self.watch)

    def _give_up(self) -> None:
        # neither cache the connection nor return it to the pool: the store may be closing both at this moment
        connection, self.connection = self.connection, None
        if connection is not None and not self.runtime.leave_to_parent(connection):
            self.runtime.connections.discard(connection)

    def commit(self) -> None:
        """Commit, or end a snapshot. Unavailable with outcome "unknown" if the connection is lost in the middle of it."""
        runtime = self.runtime
        writes, driver = self.writable, self.driver
        core = self.connection if self._plain is None else None
        self.is_open = False
        with self._interrupting:  # an interrupt that comes later finds the transaction closed
            pass
        started = time.monotonic() if writes else 0.0
        failed: BaseException | None = None
        try:
            if writes:
                runtime.transactions.end(core, driver, commit=True)
            else:
                runtime.transactions.end_read(core, driver)
        except Exception as error:
            failed = runtime.commit_error(error)
            raise failed from error
        finally:
            ended = time.monotonic() if writes else 0.0
            committing = ended - started
            self._release(ended)
            if writes and failed is None and self.trace is None:
                runtime.counters.committed(self._began - self._asked, committing)
            elif writes or self.trace is not None:
                lost = isinstance(failed, Unavailable) and failed.outcome == "unknown"
                self._ended("unknown" if lost else "committed" if failed is None else "rolled_back", committing, failed)

    @property
    def ends_at_once(self) -> bool:
        return self.connection is not None and self.runtime.transactions.ends_at_once(self.connection, self.driver)

    def flush_and_commit(self) -> None:
        driver = self.driver
        try:
            driver.flush(commit=True)
        except Exception as error:
            if not driver.is_lost:
                raise  # the server has answered with an error, and so it has not committed
            raise self.runtime.commit_error(error) from error

    def rollback(self) -> None:
        """Roll back; never raises for a connection that is already lost."""
        if self.runtime.leave_to_parent(self.connection):
            self.is_open = False
            return
        self.is_open = False
        with self._interrupting:
            pass
        cause = sys.exception()  # None on the worker thread of an AsyncStore; then the trace knows the verb's
        outcome: Outcome = "unknown" if isinstance(cause, Unavailable) and cause.outcome == "unknown" else "rolled_back"
        if getattr(self.driver, "committed", False):  # together with a verb's last batch
            outcome = "committed"
        try:
            if self.connection is not None:
                self.runtime.transactions.end(self.connection, self.driver, commit=False)
        except Exception as error:
            if self.runtime.errors.classify(error) is None:
                raise
            log.warning("rolling back on a lost connection: %s", type(error).__name__)
        finally:
            self._release()
            self._ended(outcome, error=cause)

    def interrupt(self) -> None:
        """Cancel the statement that another thread is running in this transaction, unless the transaction is ending."""
        with self._interrupting:
            driver = self.driver
            if driver is not None and self.is_open:
                self.runtime.transactions.interrupt(driver)

    def _release(self, now: float = 0.0) -> None:
        connection, plain = self.connection, self._plain
        self.connection = self.driver = self._plain = None
        try:
            if connection is not None:
                if self._restore is not None and not connection.invalidated:
                    self._restore()
                self.runtime.connections.release(connection, write=self.writable, driver=plain)
        finally:
            if self.writable:
                self.runtime.leave_write(self.owner)
                held = (now or time.monotonic()) - self._began if self._began else 0.0
                if held > _LONG_BEGIN and self.runtime.dialect.one_writer and not self.may_be_long:
                    log.warning("a write transaction held the store's lock for %.1f s", held)
            else:
                self.runtime.leave_read(self.owner)
