"""Bringing a database to the schema of this code, or saying why it cannot be: what happens before a store exists."""

from typing import Any

from sqlalchemy import Connection, Table, insert, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable

from persist.db.base import SCHEMA_TOKEN, table_of
from persist.db.dialects.base import Dialect
from persist.db.models import Meta
from persist.db.version import scopes_at, version_table
from persist.errors import PersistError, SchemaOutdated, SchemaTooNew
from persist.metadata import HEAD, metadata
from persist.revision import verify

_meta = table_of(Meta)


def prepare(dialect: Dialect, *, migrate: bool | None) -> dict[str, str]:
    """Check the version; create or upgrade where `migrate` says so (None: on SQLite yes, on Postgres no).

    What the file says about whose it is, by scope.
    """
    if migrate is False and not dialect.read_only and dialect.path is not None and not dialect.path.exists():
        raise SchemaOutdated(None, HEAD, dialect.upgrade_command())  # connecting would leave an empty file behind
    try:
        with dialect.reader.connect() if dialect.read_only else dialect.writer.connect() as connection:
            scopes = _scopes_if_current(connection)
            if scopes is None:
                _bring_up(connection, dialect, migrate=migrate)
                scopes = _scopes_if_current(connection) or {}
        dialect.settle()
    except PersistError:
        raise
    except Exception as error:
        raise (dialect.classify(error) or error) from error
    return scopes


def _scopes_if_current(connection: Connection) -> dict[str, str] | None:
    try:
        return scopes_at(connection, HEAD)
    except DBAPIError:  # no such table: a new, foreign or older database, looked at closely next
        return None
    finally:
        connection.rollback()


def _bring_up(connection: Connection, dialect: Dialect, *, migrate: bool | None) -> None:
    may_write = not dialect.read_only and (migrate if migrate is not None else dialect.one_writer)
    try:
        verify(connection, dialect)
        connection.rollback()
        if may_write:
            _note_head(connection, dialect)
    except SchemaTooNew:
        if not dialect.read_only:
            raise
    except SchemaOutdated as outdated:
        connection.rollback()
        if not may_write:
            raise
        if outdated.found is None and dialect.one_writer:
            _create(connection, dialect)
        else:
            # Alembic costs 80 ms to import, and only a database that lags behind needs it
            from persist.migrate import upgrade_with

            upgrade_with(dialect)
    finally:
        connection.rollback()


def _note_head(connection: Connection, dialect: Dialect) -> None:
    """The tables are right, and `_meta.schema_version` lags behind or is missing: another program wrote it."""
    dialect.begin(connection, write=True)
    if not connection.execute(update(_meta).where(_meta.c.key == "schema_version").values(value=HEAD)).rowcount:
        connection.execute(insert(_meta), {"key": "schema_version", "value": HEAD})
    connection.commit()


def _create(connection: Connection, dialect: Dialect) -> None:
    """A new file: the models' own DDL and seed rows in one transaction, after looking again under the write lock."""
    dialect.begin(connection, write=True)
    try:
        verify(connection, dialect)
    except SchemaOutdated as outdated:
        if outdated.found is not None:
            raise
    else:
        return  # another process was faster
    driver = connection.connection.driver_connection
    assert driver is not None
    for statement in ddl(dialect):
        driver.execute(statement)
    for table in metadata.sorted_tables:
        for row in table.info.get("seed", ()):
            connection.execute(insert(table), row)
    connection.execute(insert(version_table), {"version_num": HEAD})
    connection.commit()


def ddl(dialect: Dialect) -> list[str]:
    """The statements that make every table and index of the models."""
    return [statement for table in (version_table, *metadata.sorted_tables) for statement in table_ddl(dialect, table)]


def table_ddl(dialect: Dialect, table: Table) -> list[str]:
    """The statements that make one table and its indexes."""
    options: dict[str, Any] = {
        "dialect": dialect.writer.dialect,
        "schema_translate_map": {SCHEMA_TOKEN: dialect.schema},
        "render_schema_translate": True,
    }
    if dialect.schema is None:  # SQLite says main. then, and strips it from what it stores
        dialect.writer.dialect.default_schema_name = "main"
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    return [
        str(CreateTable(table).compile(**options)),
        *[str(CreateIndex(index).compile(**options)) for index in indexes],
    ]
