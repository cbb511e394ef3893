"""The statements of a unit of work: hot ones on the driver connection itself, where it is ours, and the others through Core."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Delete, Executable, Insert, NestedTransaction, Select, Update

from persist.db.changes import Journal, twin_of
from persist.db.hot import Hot, Row
from persist.db.rereading import By
from persist.db.runtime import Runtime
from persist.db.spoilt import Spoilt, Unreadable, kept_as_it_is
from persist.db.through_core import fetched
from persist.db.whole_tables import WholeTables


class Running(WholeTables):
    """The part of a unit of work that runs statements."""

    journal: Journal | None

    def __init__(self, runtime: Runtime, connection: Connection | None) -> None:
        super().__init__(runtime)
        self._connection = connection
        self._driver: Any = None
        self._wrote = False
        self._options: dict[str, Any] = {"preserve_rowcount": True}  # of an INSERT, too, which may find its row there
        self.listing = False
        """Whether a verb is running that only reads: a row that cannot be read is left out of its lists."""
        self.carried: list[Unreadable] | None = None
        """In a verb that writes: what stands for cells that cannot be read; see persist.db.spoilt."""

    def rows(self, hot: Hot, **values: Any) -> list[Row]:
        """Every row of a hot SELECT, decoded."""
        return self._all(hot, values)

    def _all(self, hot: Hot, values: Mapping[str, Any]) -> list[Row]:
        by = self.by(hot.spoilt)
        if self._driver is not None:
            return self.runtime.hot[hot].all(self._driver, values, by)
        return self._fetched(hot.statement, values, by)

    def by(self, spoilt: Spoilt | None) -> By:
        """What becomes of rows that cannot be read, of a statement that says so or not."""
        return (Spoilt.LEAVE_OUT if spoilt is None and self.listing else spoilt), self.carried

    def row(self, hot: Hot, **values: Any) -> Row | None:
        """The first row of a hot SELECT, decoded."""
        by = (hot.spoilt, self.carried)
        if self._driver is not None:
            return self.runtime.hot[hot].one(self._driver, values, by)
        found = self._fetched(hot.statement, values, by)
        return found[0] if found else None

    def run(self, hot: Hot, **values: Any) -> int:
        """Run a hot INSERT, UPDATE or DELETE; the number of rows."""
        if self.carried and (smaller := kept_as_it_is(hot.statement, values)) is not None:
            return self.change(*smaller)
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

    def found(self, statement: Select[Any], values: Mapping[str, Any] | None = None, spoilt: Spoilt | None = None) -> list[Row]:
        """Every row of a Core SELECT that is put together per call; of rows that cannot be read, see persist.db.spoilt."""
        return self._fetched(statement, values, self.by(spoilt))

    def _fetched(self, statement: Any, values: Mapping[str, Any] | None, by: By) -> list[Row]:
        assert self._connection is not None
        return fetched(self._connection, self._core, self.runtime.dialect.rereader, statement, values or {}, by)

    def select(self, statement: Executable, values: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        """Run a Core SELECT that is put together per call."""
        return self._core(statement, values)

    def _core(self, statement: Executable, values: Any) -> CursorResult[Any]:
        assert self._connection is not None
        result: CursorResult[Any] = self._connection.execute(statement, values, execution_options=self._options)
        return result

    def change(self, statement: Insert | Update | Delete, values: Mapping[str, Any] | None = None) -> int:
        """Run a Core INSERT, UPDATE or DELETE that is put together per call; the number of rows."""
        self._wrote = True
        if self.journal is not None:
            kept = self.journal.run(Hot(statement), values or {}, self._returned)
            if kept is not None:
                return len(kept)
        return self._core(statement, values).rowcount

    def _returned(self, twin: Hot, values: Mapping[str, Any]) -> list[Row]:
        return self._fetched(twin.statement, values, (None, self.carried))

    def savepoint(self) -> NestedTransaction:
        """A point to roll back to."""
        assert self._connection is not None
        return self._connection.begin_nested()
