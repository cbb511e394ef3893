"""The tools of a database beside its dialect: each kind of database has one of each, loaded when it is first asked for."""

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from persist.db.dialects.interface import Dialect
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.dialects.bulk import Bulk
    from persist.db.dialects.event_guards import EventGuards
    from persist.db.dialects.operations import DatabaseOperations
    from persist.db.dialects.postgres import bulk as postgres_bulk
    from persist.db.dialects.postgres import event_guards as postgres_event_guards
    from persist.db.dialects.postgres import operations as postgres_operations
    from persist.db.dialects.postgres import raw_rows as postgres_raw_rows
    from persist.db.dialects.raw_rows import RawRows
    from persist.db.dialects.sqlite import bulk as sqlite_bulk
    from persist.db.dialects.sqlite import event_guards as sqlite_event_guards
    from persist.db.dialects.sqlite import operations as sqlite_operations
    from persist.db.dialects.sqlite import raw_rows as sqlite_raw_rows
    from persist.db.dialects.sqlite import vector_functions as sqlite_vectors
    from persist.db.dialects.vector_functions import VectorFunctions
else:
    postgres_bulk = lazy_module("persist.db.dialects.postgres.bulk")
    postgres_event_guards = lazy_module("persist.db.dialects.postgres.event_guards")
    postgres_operations = lazy_module("persist.db.dialects.postgres.operations")
    postgres_raw_rows = lazy_module("persist.db.dialects.postgres.raw_rows")
    sqlite_bulk = lazy_module("persist.db.dialects.sqlite.bulk")
    sqlite_event_guards = lazy_module("persist.db.dialects.sqlite.event_guards")
    sqlite_operations = lazy_module("persist.db.dialects.sqlite.operations")
    sqlite_raw_rows = lazy_module("persist.db.dialects.sqlite.raw_rows")
    sqlite_vectors = lazy_module("persist.db.dialects.sqlite.vector_functions")


def operations_of(dialect: Dialect) -> "DatabaseOperations":
    """What an operator does with the database and asks of it."""
    if dialect.one_file:
        return sqlite_operations.SqliteOperations(dialect)
    return postgres_operations.PostgresOperations(dialect)


def bulk_of(dialect: Dialect, driver: Any) -> "Bulk":
    """Whole tables in and out, inside the transaction that the driver connection is in."""
    return sqlite_bulk.SqliteBulk(dialect, driver) if dialect.one_file else postgres_bulk.PostgresBulk(dialect, driver)


def raw_rows_of(dialect: Dialect, driver: Any) -> "RawRows":
    """Rows as they are stored, inside the transaction that the driver connection is in."""
    if dialect.schema is None:
        return sqlite_raw_rows.SqliteRawRows(driver)
    return postgres_raw_rows.PostgresRawRows(driver, dialect.schema, dialect.reading_cursor)


def event_guards_of(dialect: Dialect) -> "EventGuards":
    """The guard of the log of events."""
    if dialect.schema is None:
        return sqlite_event_guards.SqliteEventGuards()
    return postgres_event_guards.PostgresEventGuards(dialect.schema)


def vector_functions_of(dialect: Dialect, connection: Connection) -> "VectorFunctions | None":
    """The SQL functions of vectors, loaded into one of persist's own connections at the first call; None where there are none."""
    return sqlite_vectors.sqlite_vec_functions(connection) if dialect.schema is None else None
