"""What a unit of work does with whole tables, for the log of events and for maintenance."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Table

from persist.db.intake import Intake

if TYPE_CHECKING:
    from persist.db.dialects.raw_rows import RawRows


class WholeTables(Intake):
    """The part of a unit of work that asks its dialect for more than statements."""

    _connection: Connection | None
    _wrote: bool

    def lock_tables(self, tables: Sequence[Table]) -> None:
        """Keep everybody else from changing these until the transaction ends."""
        assert self._connection is not None
        self.runtime.dialect.lock_tables(self._connection, tables)

    def guard(self, tables: Sequence[Table], *, on: bool) -> None:
        """Refuse whoever changes these without keeping the log of events; or refuse nobody."""
        assert self._connection is not None
        self._wrote = True
        if on:
            self.runtime.dialect.guard(self._connection, tables)
        else:
            self.runtime.dialect.unguard(self._connection)

    def count_on(self, tables: Sequence[Table]) -> None:
        """After rows were inserted with the numbers they had elsewhere."""
        assert self._connection is not None
        self.runtime.dialect.count_on(self._connection, tables)

    def tables(self) -> set[str]:
        """The names of the tables in our schema, those of others included."""
        assert self._connection is not None
        return self.runtime.dialect.tables(self._connection)

    def raw_rows(self) -> "RawRows":
        """Rows as they are, in this transaction."""
        assert self._connection is not None
        return self.runtime.dialect.raw_rows(self._connection.connection.driver_connection)
