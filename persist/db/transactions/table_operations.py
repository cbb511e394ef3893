"""Operations of a unit of work on whole tables, for the event log and for maintenance."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Table

from persist.db.changes.event_streams import LogTables
from persist.db.dialects.backends import event_guards_of, raw_rows_of
from persist.db.transactions.validation import Validation

if TYPE_CHECKING:
    from persist.db.dialects.raw_rows import RawRows


class TableOperations(Validation):
    """The part of a unit of work that asks its dialect for more than statements."""

    _connection: Connection | None
    _wrote: bool

    def lock_tables(self, tables: Sequence[Table]) -> None:
        """Lock the tables against changes by other transactions until this one ends."""
        assert self._connection is not None
        event_guards_of(self.runtime.dialect).lock_tables(self._connection, tables)

    def check_guard(self, tables: Sequence[Table], *, on: bool) -> None:
        """Raise NotPermitted with the missing rights if `guard` would be refused."""
        assert self._connection is not None
        event_guards_of(self.runtime.dialect).check_rights(self._connection, tables, on=on)

    def guard(self, tables: Sequence[Table], log: LogTables) -> None:
        """Create the event guards: they refuse every writer that changes the tables without writing events."""
        assert self._connection is not None
        self._wrote = True
        event_guards_of(self.runtime.dialect).create(self._connection, tables, log)

    def drop_guard(self) -> None:
        """Drop the event guards, so that no writer is refused any more."""
        assert self._connection is not None
        self._wrote = True
        event_guards_of(self.runtime.dialect).drop(self._connection)

    def count_on(self, tables: Sequence[Table]) -> None:
        """Advance the id sequences of the tables, after rows were inserted with explicit ids."""
        assert self._connection is not None
        self.runtime.dialect.count_on(self._connection, tables)

    def tables(self) -> set[str]:
        """The names of all tables in the store's schema, also those of other programs."""
        assert self._connection is not None
        return self.runtime.dialect.tables(self._connection)

    def raw_rows(self) -> "RawRows":
        """Access to undecoded rows in this transaction."""
        assert self._connection is not None
        return raw_rows_of(self.runtime.dialect, self.runtime.dialect.driver_of(self._connection))
