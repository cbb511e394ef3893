"""The statements of a unit of work: prepared ones on the store's own driver connection, all others through Core."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Delete, Executable, Insert, NestedTransaction, Select, Update

from persist.db.changes.batch import Batch, ImmediateBatch, PipelinedBatch
from persist.db.changes.journal import Journal, twin_of
from persist.db.statements.core_statements import fetched
from persist.db.statements.prepared import Row, Statement
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.table_operations import TableOperations
from persist.db.unreadable.cells import OnUnreadable, Unreadable, without_unreadable
from persist.db.unreadable.rereading import By
from persist.errors import Unavailable


class StatementExecution(TableOperations):
    """The part of a unit of work that runs statements."""

    journal: Journal | None

    def __init__(self, runtime: Runtime, connection: Connection | None) -> None:
        super().__init__(runtime)
        self._connection = connection
        self._driver: Any = None
        self._wrote = False
        self._options: dict[str, Any] = {"preserve_rowcount": True}  # an INSERT may write no row where one exists
        self.is_alone = False
        """Whether the transaction consists of one verb, called outside of any transaction."""
        self.listing = False
        """Whether a reading verb is running: its lists leave out unreadable rows."""
        self.carried: list[Unreadable] | None = None
        """The placeholders for unreadable cells that the running verb read; None outside of a verb. See unreadable.cells."""

    def rows(self, prepared: Statement, **values: Any) -> list[Row]:
        """Every row of a prepared SELECT, decoded."""
        return self._all(prepared, values)

    def _all(self, prepared: Statement, values: Mapping[str, Any]) -> list[Row]:
        by = self.by(prepared.unreadable)
        if self._driver is not None:
            return self.runtime.prepared[prepared].all(self._driver, values, by)
        return self._fetched(prepared.statement, values, by)

    def by(self, unreadable: OnUnreadable | None) -> By:
        """How unreadable rows are handled: as the statement says, else by the running verb."""
        return (OnUnreadable.LEAVE_OUT if unreadable is None and self.listing else unreadable), self.carried

    def row(self, prepared: Statement, **values: Any) -> Row | None:
        """The first row of a prepared SELECT, decoded."""
        by = (prepared.unreadable, self.carried)
        if self._driver is not None:
            return self.runtime.prepared[prepared].one(self._driver, values, by)
        found = self._fetched(prepared.statement, values, by)
        return found[0] if found else None

    def run(self, prepared: Statement, **values: Any) -> int:
        """Run a prepared INSERT, UPDATE or DELETE. Return the number of rows."""
        if self.carried and (smaller := without_unreadable(prepared.statement, values)) is not None:
            return self.change(*smaller)
        if self.journal is not None and (kept := self.journal.run(prepared, values, self._all)) is not None:
            count = len(kept)
        elif self._driver is not None:
            count = self.runtime.prepared[prepared].run(self._driver, values)
        else:
            count = self._core(prepared.statement, values).rowcount
        self._wrote = self._wrote or count != 0
        return count

    def returned(self, prepared: Statement, **values: Any) -> Row | None:
        """Run a prepared INSERT or UPDATE … RETURNING. Return the first row it wrote, decoded, or None."""
        found = None if self.journal is None else self.journal.run(prepared, values, self._all)
        if found is None:
            found = self._all(prepared, values)
        self._wrote = self._wrote or bool(found)
        return found[0] if found else None

    def batch(self, *, last: bool = False) -> Batch:
        """Several statements that travel together; see persist.db.changes.batch.

        `last`: the verb has written everything once these are executed. A verb outside of a transaction then commits with them.
        """
        if self._driver is None or self.carried or not self.runtime.dialect.pipelines:
            return ImmediateBatch(self, one_writer=self.runtime.dialect.one_writer)
        flush = self._flush_and_commit if last and self.is_alone and self.journal is None else self._driver.flush
        return PipelinedBatch(self._driver, flush, self.runtime.prepared, self.journal, self._batch_by, self._batch_sent)

    def _flush_and_commit(self) -> None:
        try:
            self._driver.flush(commit=True)
        except Exception as error:
            if isinstance(self.runtime.translate(error), Unavailable):
                raise Unavailable("The connection was lost while committing", outcome="unknown") from error
            raise

    def _batch_by(self, prepared: Statement, lists: bool) -> By:
        return self.by(prepared.unreadable) if lists else (prepared.unreadable, self.carried)

    def _batch_sent(self, wrote: bool) -> None:
        self._wrote = self._wrote or wrote

    def run_many(self, prepared: Statement, values: Sequence[Mapping[str, Any]]) -> None:
        """Run one prepared statement for many rows."""
        if len(values) < 2 or (self.journal is not None and twin_of(prepared) is not None):
            for row in values:
                self.run(prepared, **row)
            return
        self._wrote = True
        if self._driver is None:
            self._core(prepared.statement, list(values))
            return
        self.runtime.prepared[prepared].run_many(self._driver, values)

    def found(
        self, statement: Select[Any], values: Mapping[str, Any] | None = None, unreadable: OnUnreadable | None = None
    ) -> list[Row]:
        """Every row of a Core SELECT that is built per call. For unreadable rows see unreadable.cells."""
        return self._fetched(statement, values, self.by(unreadable))

    def _fetched(self, statement: Any, values: Mapping[str, Any] | None, by: By) -> list[Row]:
        assert self._connection is not None
        return fetched(self._connection, self._core, self.runtime.dialect.rereader, statement, values or {}, by)

    def select(self, statement: Executable, values: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        """Run a Core SELECT that is built per call."""
        return self._core(statement, values)

    def _core(self, statement: Executable, values: Any) -> CursorResult[Any]:
        assert self._connection is not None
        result: CursorResult[Any] = self._connection.execute(statement, values, execution_options=self._options)
        return result

    def change(self, statement: Insert | Update | Delete, values: Mapping[str, Any] | None = None) -> int:
        """Run a Core INSERT, UPDATE or DELETE that is built per call. Return the number of rows."""
        self._wrote = True
        if self.journal is not None:
            kept = self.journal.run(Statement(statement), values or {}, self._returned)
            if kept is not None:
                return len(kept)
        return self._core(statement, values).rowcount

    def _returned(self, twin: Statement, values: Mapping[str, Any]) -> list[Row]:
        return self._fetched(twin.statement, values, (None, self.carried))

    def savepoint(self) -> NestedTransaction:
        """Set a savepoint."""
        assert self._connection is not None
        return self._connection.begin_nested()
