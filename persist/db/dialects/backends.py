"""Creates the SQLite or Postgres version of each database tool; its module is imported on first use."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table

from persist.db.changes.batch import Batch, Pending
from persist.db.dialects.interface import Dialect
from persist.db.statements.prepared import Row
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.dialects.bulk import Bulk
    from persist.db.dialects.event_guards import EventGuards
    from persist.db.dialects.operations import DatabaseOperations
    from persist.db.dialects.postgres.subagent_access import SubagentAccess as SubagentAccess
    from persist.db.dialects.raw_rows import RawRows
    from persist.db.dialects.vector_functions import VectorFunctions

if TYPE_CHECKING:
    from persist.db.dialects.postgres import bulk as postgres_bulk
    from persist.db.dialects.postgres import event_guards as postgres_event_guards
    from persist.db.dialects.postgres import operations as postgres_operations
    from persist.db.dialects.postgres import raw_rows as postgres_raw_rows
    from persist.db.dialects.postgres import row_guards as postgres_row_guards
    from persist.db.dialects.postgres import subagent_access as postgres_subagent_access
    from persist.db.dialects.sqlite import bulk as sqlite_bulk
    from persist.db.dialects.sqlite import event_guards as sqlite_event_guards
    from persist.db.dialects.sqlite import operations as sqlite_operations
    from persist.db.dialects.sqlite import raw_rows as sqlite_raw_rows
    from persist.db.dialects.sqlite import row_guards as sqlite_row_guards
    from persist.db.dialects.sqlite import vector_functions as sqlite_vectors
else:
    postgres_bulk = lazy_module("persist.db.dialects.postgres.bulk")
    postgres_event_guards = lazy_module("persist.db.dialects.postgres.event_guards")
    postgres_operations = lazy_module("persist.db.dialects.postgres.operations")
    postgres_raw_rows = lazy_module("persist.db.dialects.postgres.raw_rows")
    postgres_row_guards = lazy_module("persist.db.dialects.postgres.row_guards")
    postgres_subagent_access = lazy_module("persist.db.dialects.postgres.subagent_access")
    sqlite_bulk = lazy_module("persist.db.dialects.sqlite.bulk")
    sqlite_event_guards = lazy_module("persist.db.dialects.sqlite.event_guards")
    sqlite_operations = lazy_module("persist.db.dialects.sqlite.operations")
    sqlite_raw_rows = lazy_module("persist.db.dialects.sqlite.raw_rows")
    sqlite_row_guards = lazy_module("persist.db.dialects.sqlite.row_guards")
    sqlite_vectors = lazy_module("persist.db.dialects.sqlite.vector_functions")


def operations_of(dialect: Dialect) -> "DatabaseOperations":
    """The administrative operations for the dialect's database."""
    if dialect.schema is None:
        return sqlite_operations.SqliteOperations(dialect)
    return postgres_operations.PostgresOperations(dialect)


def bulk_of(dialect: Dialect, driver: Any) -> "Bulk":
    """Bulk reads and writes inside the driver connection's current transaction."""
    return sqlite_bulk.SqliteBulk(dialect, driver) if dialect.schema is None else postgres_bulk.PostgresBulk(dialect, driver)


def raw_rows_of(dialect: Dialect, driver: Any) -> "RawRows":
    """Access to raw rows inside the driver connection's current transaction."""
    if dialect.schema is None:
        return sqlite_raw_rows.SqliteRawRows(driver)
    return postgres_raw_rows.PostgresRawRows(driver, dialect.schema, dialect.transactions.reading_cursor)


def event_guards_of(dialect: Dialect) -> "EventGuards":
    """The guard triggers of the event log for the dialect's database."""
    if dialect.schema is None:
        return sqlite_event_guards.SqliteEventGuards()
    return postgres_event_guards.PostgresEventGuards(dialect.schema)


def row_guard_ddl(table: Table, name: str, schema: str | None) -> list[str]:
    """The DDL statements that create the row guards of one table, for the dialect of that name."""
    if name == "sqlite":
        return sqlite_row_guards.row_guard_ddl(table)
    return postgres_row_guards.row_guard_ddl(table, schema)


def strict_guard_ddl(tables: Sequence[Table]) -> list[str]:
    """The DDL statements that let nobody but persist change these tables of a SQLite file."""
    return sqlite_row_guards.strict_guard_ddl(tables)


def ask_row_guards(dialect: Dialect, batch: Batch) -> Pending[list[Row]]:
    """Look for the row guards of the database with a batch, for `missing_row_guards`."""
    if dialect.schema is None:
        return batch.rows(sqlite_row_guards.FOUND)
    return batch.rows(postgres_row_guards.FOUND, schema=dialect.schema)


def missing_row_guards(
    dialect: Dialect, found: Sequence[Row], tables: Sequence[Table], strict: Sequence[Table] = (), *, marked_rows: bool = False
) -> list[str]:
    """The names of the row guards of these tables that were not found, or not as they should be.

    `strict`: tables that only persist may write; `marked_rows`: by a mark that is a row, as in a file made at revision 0028.
    """
    if dialect.schema is None:
        return sqlite_row_guards.missing_row_guards(found, tables, strict, marked_rows=marked_rows)
    return postgres_row_guards.missing_row_guards(found, tables)


def unknown_triggers(dialect: Dialect, found: Sequence[Row], tables: Sequence[Table], strict: Sequence[Table] = ()) -> list[str]:
    """The names of the triggers of these tables that were found and that persist did not make; `strict` as above."""
    if dialect.schema is None:
        return sqlite_row_guards.unknown_triggers(found, tables, strict)
    return postgres_row_guards.unknown_triggers(found, tables)


def lift_row_guards(dialect: Dialect, driver: Any) -> Callable[[], None]:
    """Let the open transaction carry or repair rows that break the rules of row guards, until the returned function is called."""
    if dialect.schema is None:
        return sqlite_row_guards.lift_row_guards(driver)
    return postgres_row_guards.lift_row_guards(driver)


def vector_functions_of(dialect: Dialect, connection: Connection) -> "VectorFunctions | None":
    """The distance functions, loaded into one of persist's own connections at the first call; None where unavailable."""
    return sqlite_vectors.sqlite_vec_functions(connection) if dialect.schema is None else None


def subagent_access(dialect: Dialect) -> "SubagentAccess | None":
    """How subagents with a token connect to the dialect's server; None for a file, which has no roles."""
    if dialect.schema is None:
        return None
    return postgres_subagent_access.SubagentAccess(dialect.connections.writer.url, dialect.schema)
