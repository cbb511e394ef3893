"""The unit of work: what verbs read, write and check with, in one transaction."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, CursorResult, Delete, Executable, Insert, NestedTransaction, Select, Table, Update

from persist.db.changes.batch import Batch, ImmediateBatch, PipelinedBatch
from persist.db.changes.journal import COMMITTED, Journal, VerbChanges, twin_of
from persist.db.concurrency.fork_count import PROCESS
from persist.db.concurrency.observers import undo_announcements
from persist.db.expressions.upsert import refuse_former
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.schema.column_types import LABEL_BYTES
from persist.db.statements.prepared import Deletion, Row, Statement, fetched, note_deletions
from persist.db.transactions.database_transaction import (
    NO_EVENTS,
    DatabaseTransaction,
    Prepare,
    TableOperations,
    TransactionEvents,
    mark,
    unmark,
)
from persist.db.transactions.runtime import Runtime
from persist.db.unreadable.cells import By, Carried, OnUnreadable, not_storable, without_unreadable
from persist.db.unreadable.excerpts import filled_up
from persist.db.values.arguments import check_body, optional_label, required_label
from persist.db.values.escaping import utf8_size
from persist.db.values.json import Json, JsonText, check_object, encode
from persist.errors import Conflict, InvalidValue, PayloadTooLarge, StoreForked, TransactionAborted
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.unreadable import conditions
else:
    conditions = lazy_module("persist.db.unreadable.conditions")


log = logging.getLogger("persist")

_MOST_DELETIONS = 100
"""So many deletions of a transaction are remembered, for the sentence of a COMMIT that is refused because of one."""

OUTSIDE = "a verb outside of the transaction"
"""How errors call a verb that is called on a store."""


class UnitOfWork:
    """A write transaction or a snapshot, the store's own or joined into the caller's. One thread at a time runs a verb."""

    events = NO_EVENTS
    is_alone = False
    """Whether the transaction consists of a verb that was called outside of any transaction."""
    listing = False
    """Whether a reading verb is running: its lists leave out unreadable rows."""
    carried: Carried | None = None  # what the running verb read of unreadable cells; None outside of a verb
    depth = 0
    """How many verbs are running, one inside the other."""
    wrote = False
    """Whether the running verb has changed a row."""
    used = False
    """Whether a verb has begun in the transaction that another transaction in its place would lack."""
    doomed = False
    """Whether a verb failed after it wrote, so that the transaction can only be rolled back."""
    touched: frozenset[str] = frozenset()
    """The ids of rows whose instant of change this transaction has set."""
    check_deferred: Callable[[], object] | None = None
    """Raises what a deferred foreign key of another program's table would refuse at the COMMIT, where one is looked for."""
    ending = False  # whether its last events are being stored
    _options: Mapping[str, Any] = {"preserve_rowcount": True}  # an INSERT may write no row where one exists

    def __init__(self, runtime: Runtime, *, writable: bool, is_snapshot: bool = False, joined: Connection | None = None) -> None:
        self.runtime, self.writable = runtime, writable
        self.transaction = DatabaseTransaction(runtime, writable=writable, is_snapshot=is_snapshot, joined=joined)
        self.owner = self.transaction.owner
        self.now = runtime.now
        """The store's current time, truncated to the milliseconds that columns keep."""
        self.joined = joined is not None
        self.marks = joined is None and (writable or runtime.one_connection)
        """Whether verbs mark their caller as inside, which prevents a nested transaction. The async API marks it itself."""
        self._deletions: list[Deletion] = []  # the first ones, of which a refused COMMIT tells
        self.announcements: list[tuple[str, Any]] = []
        """What observers are told after the commit: topic and value."""
        if joined is not None:
            # without the host's own, whose None would be another kind of map for the statements that Core keeps compiled
            self._options = {**self._options, "schema_translate_map": {SCHEMA_TOKEN: runtime.dialect.schema}}

    # -- the transaction

    @property
    def is_open(self) -> bool:
        return self.transaction.is_open

    def begin(self, cancelled: Callable[[], bool] | None = None, prepare: Prepare | None = None) -> None:
        """Take the lock, a connection and a transaction, or leave nothing behind. On Postgres nothing is sent yet."""
        before = self.runtime.log
        self.transaction.begin(cancelled, prepare, what=OUTSIDE if self.is_alone else None)
        log = before or self.runtime.log  # as before BEGIN: another thread may have switched the log while we waited
        if self.writable and log is not None:
            self.events = TransactionEvents(log, self.events.actor)
        if self.writable and self.runtime.marks_writes:
            self._or_roll_back(mark)

    def commit(self) -> None:
        """Commit. A transaction in which a verb failed is rolled back instead and raises TransactionAborted."""
        if self.runtime.forks != PROCESS.forks and self.runtime.leave_to_parent(self.transaction.connection):
            raise StoreForked
        if self.doomed:
            self.rollback()
            raise TransactionAborted
        if self.events.log is not None:
            self.ending = True
            self._or_roll_back(UnitOfWork.store_events)  # the transaction's last statements
            if self.events.written:
                self.announce(COMMITTED, self.events.written)
        if self.writable and self.runtime.marks_writes:
            self._or_roll_back(unmark)
        try:
            self.transaction.commit()
        except Conflict as error:
            ours = self._explained(error)
            raise ours from (error.__cause__ if ours is error else error)
        if self.events.written:
            self.events.ended()

    def _explained(self, error: Conflict) -> Conflict:
        """The error of a COMMIT that a deferred foreign key refused, with what refers to the deleted rows."""
        if not self._deletions:
            return error
        note_deletions(error, self._deletions)
        work = UnitOfWork(self.runtime, writable=False, is_snapshot=True)
        try:
            work.begin()
            try:
                return self.runtime.explain(work, error)
            finally:
                work.rollback()
        except Exception as other:
            log.warning("what refers to the rows cannot be said: %s", type(other).__name__)
            return error

    def _ran(self, statement: Executable, rows: Sequence[Mapping[str, Any]]) -> None:
        if isinstance(statement, Delete):
            self._deletions += [(statement, values) for values in rows[: _MOST_DELETIONS - len(self._deletions)]]

    def _or_roll_back(self, step: Callable[["UnitOfWork"], object]) -> None:
        try:
            step(self)
        except BaseException as error:
            self.rollback()
            raise self.runtime.translate(error) from error

    def store_events(self, *more: VerbChanges) -> bool:
        return self.events.store(self, *more)

    @property
    def has_committed(self) -> bool:
        """Whether the verb's last batch has committed the transaction."""
        return bool(getattr(self.transaction.driver, "committed", False))

    def go_on(self) -> None:
        """Begin another transaction if the verb's last batch has committed, for a verb that has to mend what it wrote."""
        if self.has_committed:
            self.transaction.driver.begin_again()

    def end_read(self) -> None:
        """End a snapshot, by COMMIT unless a verb failed in it."""
        (self.rollback if self.doomed else self.commit)()

    @property
    def ends_at_once(self) -> bool:
        return not self.doomed and self.transaction.ends_at_once

    def rollback(self) -> None:
        try:
            self.transaction.rollback()
            self.events.ended()
        finally:
            undo_announcements(self.announcements)

    def interrupt(self) -> None:
        self.transaction.interrupt()

    def announce(self, topic: str, value: Any) -> None:
        """Notify the observers of the topic after the commit. Does nothing in join(), where the caller commits."""
        if not self.joined and self.runtime.observers.wanted(topic):
            self.announcements.append((topic, conditions.without_unreadable_cells(value, writes=True) if self.carried else value))

    # -- events

    @property
    def journal(self) -> Journal | None:
        return self.events.journal

    def begin_event(self, name: str, stream: str | None = None) -> None:
        if self.events.journal is not None:
            self.events.journal.begin_verb(name, stream)

    def json(self, path: str, value: Json) -> JsonText:
        """The checked JSON text of a value, part of which the verb may have read."""
        try:
            return encode(value, path, self.runtime.limits)
        except InvalidValue as error:
            raise not_storable(error) from None

    def json_object(self, path: str, value: Json) -> dict[str, Any]:
        return check_object(value, path, self.runtime.limits)

    label = staticmethod(required_label)

    def refuse_former(self, table: Table, kind: str, id: str) -> None:
        """Raise Conflict if rows of a former row with the id are left, as only a file may hold them."""
        if self.runtime.dialect.one_writer:
            refuse_former(self.row, table, kind, id)

    def body(self, path: str, value: object) -> str:
        return check_body(path, value, self.runtime.settings.max_text_bytes)

    def to_plain_json(self, text: str) -> str:
        return self.runtime.dialect.to_plain_json(text)

    # -- prepared statements

    def rows(self, prepared: Statement, **values: Any) -> list[Row]:
        """Every row of a prepared SELECT, decoded. Unreadable rows that are left out do not count for its `limit`."""
        rows = self._all(prepared, values)
        return rows if type(rows) is list else filled_up(rows, values, lambda more: self._all(prepared, more))

    def _all(self, prepared: Statement, values: Mapping[str, Any]) -> list[Row]:
        by = self.by(prepared.unreadable)
        driver = self.transaction.driver
        if driver is not None:
            return self.runtime.prepared[prepared].all(driver, values, by)
        return self._fetched(prepared.statement, values, by)

    def by(self, unreadable: OnUnreadable | None) -> By:
        """How unreadable rows are handled: as the statement says, else by the running verb."""
        return (OnUnreadable.LEAVE_OUT if unreadable is None and self.listing else unreadable), self.carried

    def row(self, prepared: Statement, **values: Any) -> Row | None:
        by = (prepared.unreadable, self.carried)
        driver = self.transaction.driver
        if driver is not None:
            return self.runtime.prepared[prepared].one(driver, values, by)
        return next(iter(self._fetched(prepared.statement, values, by)), None)

    def expected_rows(self, prepared: Statement, **values: Any) -> int | None:
        """How many rows the planner expects of a prepared SELECT; None if it does not say, or in a caller's transaction."""
        if (driver := self.transaction.driver) is None:
            return None
        compiled = self.runtime.prepared[prepared]
        return self.runtime.dialect.tables.expected_rows(driver, compiled.sql, compiled.args(values))

    def run(self, prepared: Statement, **values: Any) -> int:
        if self.carried and (smaller := without_unreadable(prepared.statement, values)) is not None:
            return self.change(*smaller)
        journal, driver = self.events.journal, self.transaction.driver
        try:
            if journal is not None and (kept := journal.run(prepared, values, self._all)) is not None:
                count = len(kept)
            elif driver is not None:
                count = self.runtime.prepared[prepared].run(driver, values)
            else:
                count = self._core(prepared.statement, values).rowcount
        except Exception as error:
            note_deletions(error, [(prepared.statement, values)])
            raise
        self._ran(prepared.statement, (values,))
        self.wrote = self.wrote or count != 0
        return count

    def returned(self, prepared: Statement, **values: Any) -> Row | None:
        found = self.returned_rows(prepared, **values)
        return found[0] if found else None

    def returned_rows(self, prepared: Statement, **values: Any) -> list[Row]:
        journal = self.events.journal
        try:
            found = None if journal is None else journal.run(prepared, values, self._all)
            if found is None:
                found = self._all(prepared, values)
        except Exception as error:
            note_deletions(error, [(prepared.statement, values)])
            raise
        self._ran(prepared.statement, (values,))
        self.wrote = self.wrote or bool(found)
        return found

    def run_many(self, prepared: Statement, values: Sequence[Mapping[str, Any]]) -> None:
        if len(values) < 2 or (self.events.journal is not None and twin_of(prepared) is not None):
            for row in values:
                self.run(prepared, **row)
            return
        self.wrote = True
        driver = self.transaction.driver
        try:
            if driver is None:
                self._core(prepared.statement, list(values))
            else:
                self.runtime.prepared[prepared].run_many(driver, values)
        except Exception as error:
            note_deletions(error, [(prepared.statement, row) for row in values])
            raise
        self._ran(prepared.statement, values)

    def batch(self, *, last: bool = False) -> Batch:
        """Several statements that travel together. `last`: they are the verb's last, and commit if the verb is alone."""
        driver, journal, runtime = self.transaction.driver, self.events.journal, self.runtime
        if driver is None or self.carried or not runtime.dialect.pipelines:
            return ImmediateBatch(self, one_writer=runtime.dialect.one_writer)
        commits = last and (self.ending or (self.is_alone and self.depth == 1 and journal is None))
        flush = self.transaction.flush_and_commit if commits else driver.flush
        return PipelinedBatch(driver, flush, runtime.prepared, journal, self._batch_by, self._batch_sent)

    def run_last(self, prepared: Statement, /, **values: Any) -> int:
        """`run` for the last write of a verb, which may commit with it."""
        with self.batch(last=True) as batch:
            changed = batch.run(prepared, **values)
        return changed.result

    def returned_last(self, prepared: Statement, /, **values: Any) -> Row | None:
        """`returned` for the last write of a verb, which may commit with it."""
        with self.batch(last=True) as batch:
            written = batch.returned(prepared, **values)
        return written.result

    def _batch_by(self, prepared: Statement, lists: bool) -> By:
        return self.by(prepared.unreadable) if lists else (prepared.unreadable, self.carried)

    def _batch_sent(self, wrote: bool, statements: Iterable[tuple[Executable, Mapping[str, Any]]] = ()) -> None:
        self.wrote = self.wrote or wrote
        for statement, values in statements:
            self._ran(statement, (values,))
        driver = self.transaction.driver
        if not self.wrote and self.runtime.dialect.pipelines and driver is not None and driver.committed:
            driver.begin_again()

    # -- statements that are built for one call

    def found(
        self, statement: Select[Any], values: Mapping[str, Any] | None = None, unreadable: OnUnreadable | None = None
    ) -> list[Row]:
        return self._fetched(statement, values, self.by(unreadable))

    def _fetched(self, statement: Any, values: Mapping[str, Any] | None, by: By) -> list[Row]:
        return fetched(self.connection, self._core, self.runtime.dialect.rereader, statement, values or {}, by)

    def select(self, statement: Executable, values: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        return self._core(statement, values)

    def _core(self, statement: Executable, values: Any) -> CursorResult[Any]:
        plain, watch = self.connection.execute, self.transaction.watch
        execute: Callable[..., CursorResult[Any]] = plain if watch is None else watch.core(plain)
        return execute(statement, values, execution_options=self._options)

    def change(self, statement: Insert | Update | Delete, values: Mapping[str, Any] | None = None) -> int:
        self.wrote = True
        self._ran(statement, (values or {},))
        try:
            if self.events.journal is not None:
                kept = self.events.journal.run(Statement(statement), values or {}, self._returned)
                if kept is not None:
                    return len(kept)
            return self._core(statement, values).rowcount
        except Exception as error:
            note_deletions(error, [(statement, values or {})])
            raise

    def _returned(self, twin: Statement, values: Mapping[str, Any]) -> list[Row]:
        return self._fetched(twin.statement, values, (None, self.carried))

    def savepoint(self) -> NestedTransaction:
        return self.connection.begin_nested()

    def advance_sequences(self, tables: Sequence[Table]) -> None:
        self.runtime.dialect.tables.advance_sequences(self.connection, tables)

    @property
    def connection(self) -> Connection:
        """SQLAlchemy's connection of the open transaction. A BEGIN that waits for a statement is sent."""
        connection, driver = self.transaction.for_core(), self.transaction.driver
        if driver is not None and self.runtime.dialect.pipelines:
            driver.start()  # before SQLAlchemy is in a transaction, in which it would not replace a connection that is lost
        return connection

    @property
    def own_connection(self) -> Connection | None:
        """The store's own open connection; None in `join` and on a caller's engine."""
        return None if self.transaction.driver is None else self.transaction.for_core()

    @property
    def whole_tables(self) -> TableOperations:
        return TableOperations(self.runtime.dialect, self.connection, self._batch_sent)


def check_actor(value: object) -> str | None:
    """An actor: a label of at most 600 bytes, or None. Raises InvalidValue, or PayloadTooLarge, before anything is written."""
    actor = optional_label("actor", value)
    if actor is not None and (size := utf8_size(actor)) > LABEL_BYTES:
        raise PayloadTooLarge("actor", size, LABEL_BYTES)
    return actor


def acting(work: UnitOfWork, path: str, named: object) -> str | None:
    """The actor: the given label, or the actor of the transaction, or the store's."""
    return optional_label(path, named) or work.events.actor or work.runtime.actor


def chunks(work: UnitOfWork, prepared: Statement, rows: int, **values: Any) -> Iterator[Sequence[Row]]:
    """Yield the decoded rows of a prepared SELECT, `rows` at a time. A caller's own driver may hold all rows in memory."""
    if work.own_connection is None:  # a caller's connection may be in autocommit, where Postgres keeps no cursor
        found = work.rows(prepared, **values)
        yield from (found[start : start + rows] for start in range(0, len(found), rows))
        return
    transactions = work.runtime.transactions
    with closing(transactions.reading_cursor(transactions.driver_of(work.own_connection))) as cursor:
        yield from work.runtime.prepared[prepared].chunks(cursor, values, rows, work.by(prepared.unreadable))


StandIn = Callable[[UnitOfWork, Mapping[str, Any]], Mapping[str, Any] | None]
"""Maps the readable values of a row, by column, to the values to set, or to None. `…["quarantine"]` is its id in quarantine."""
StandIns = Mapping[Column[Any], StandIn]
