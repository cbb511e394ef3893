"""Operations of a transaction on whole tables, for the event log and for maintenance."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Table

from persist.db.changes.journal import LogTables
from persist.db.dialects.backends import event_guards_of, lift_row_guards, raw_rows_of, strict_guard_ddl
from persist.db.dialects.interface import Dialect
from persist.db.schema.row_guards import GUARDS, LOGGED

if TYPE_CHECKING:
    from persist.db.dialects.interface import StoredColumn
    from persist.db.dialects.raw_rows import RawRows


class TableOperations:
    """What a transaction asks of its dialect besides statements. `wrote` is told when something was changed."""

    def __init__(self, dialect: Dialect, connection: Connection, wrote: Callable[[bool], None]) -> None:
        self._dialect, self._connection, self._wrote = dialect, connection, wrote

    def names(self) -> set[str]:
        """The names of all tables in the store's schema, also of other programs' tables."""
        return self._dialect.tables.names(self._connection)

    def columns(self, table: str, *, computed: bool = False) -> "list[StoredColumn]":
        """The columns of a table, also those that persist does not know: the stored ones, or those that the database computes."""
        return self._dialect.tables.columns(self._dialect.transactions.driver_of(self._connection), table, computed=computed)

    def may_lack(self, table: Table) -> frozenset[str]:
        """The columns that persist's own tables have NOT NULL, and that may be NULL in this database."""
        return self._dialect.tables.may_lack(self._dialect.transactions.driver_of(self._connection), table)

    def raw_rows(self) -> "RawRows":
        """Access to undecoded rows in this transaction."""
        return raw_rows_of(self._dialect, self._dialect.transactions.driver_of(self._connection))

    def lock(self, tables: Sequence[Table]) -> None:
        """Lock the tables against changes by other transactions until this one ends."""
        event_guards_of(self._dialect).lock_tables(self._connection, tables)

    def suspend_references(self, tables: Sequence[Table]) -> Sequence[str]:
        """Check no foreign key of these tables until `restore_references`, which gets what is returned, or the COMMIT."""
        return self._dialect.tables.suspend_references(self._connection, tables)

    def restore_references(self, suspended: Sequence[str]) -> None:
        """Check the foreign keys again, also of existing rows."""
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
        """How many of the tables have no guard."""
        return event_guards_of(self._dialect).missing(self._connection, tables)

    def drop_guard(self, tables: Sequence[Table]) -> None:
        self._wrote(True)
        event_guards_of(self._dialect).drop(self._connection, tables)

    def drop_guards(self) -> None:
        """Drop the remaining event guards, so that writers are no longer refused."""
        self._wrote(True)
        event_guards_of(self._dialect).drop_functions(self._connection)

    def guard_strictly(self, tables: Sequence[Table]) -> None:
        """Let nobody but persist change these tables of a file."""
        self._wrote(True)
        for statement in strict_guard_ddl(tables):
            self._connection.exec_driver_sql(statement)

    @contextmanager
    def without_row_guards(self, tables: Iterable[Table] | None = None) -> Iterator[None]:
        """Inside the block the transaction may carry or repair rows that break rules. After an error, roll it back.

        `tables`: all whose rows change; nothing is lifted where none of them has triggers. None: any may.
        """
        if tables is not None and not any(GUARDS in table.info or LOGGED in table.info for table in tables):
            yield
            return
        restore = lift_row_guards(self._dialect, self._dialect.transactions.driver_of(self._connection))
        yield
        restore()
