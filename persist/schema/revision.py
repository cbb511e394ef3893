"""Compares a database's revision with that of this code, without Alembic and without changing the database."""

from typing import TYPE_CHECKING

import orjson
from sqlalchemy import Connection

from persist.db.dialects.interface import Dialect
from persist.db.schema.base import VERSION_TABLE
from persist.db.schema.meta_table import Meta
from persist.db.statements.schema_version import (
    COPYING,
    HEAD,
    REVISIONS,
    is_newer,
    number_of,
    read_copy,
    read_noted,
    read_version,
)
from persist.errors import CopyUnfinished, SchemaOutdated, SchemaTooNew, SchemaUnknown, UnmanagedDatabase
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.schema import metadata as catalog
else:
    catalog = lazy_module("persist.schema.metadata")


def found_revision(connection: Connection, dialect: Dialect) -> str | None:
    """The revision of a database; None if persist never created its tables there."""
    return read_version(connection) if VERSION_TABLE in dialect.tables.names(connection) else None


def verify(connection: Connection, dialect: Dialect) -> None:
    """Raises unless the database is at HEAD, as the version row says. A `_meta.schema_version` that lags behind is no error."""
    tables = dialect.tables.names(connection)  # read only once: another process may be creating them
    found = read_version(connection) if VERSION_TABLE in tables else None
    noted = read_noted(connection) if found is not None and Meta.__tablename__ in tables else None
    for mark in (noted, found):
        if is_newer(mark):
            raise SchemaTooNew(str(mark), HEAD)
    if noted == COPYING:
        raise CopyUnfinished(copy_command(read_copy(connection), dialect))
    if noted is not None and number_of(noted) is None:
        raise SchemaUnknown(noted, HEAD, f"{Meta.__tablename__}.schema_version")
    if found == HEAD:
        return
    if found is None:
        strangers = sorted(tables & {table.name for table in catalog.metadata.tables.values()})
        if strangers:
            raise UnmanagedDatabase(strangers)
    elif found not in REVISIONS:
        raise SchemaUnknown(found, HEAD, f"{VERSION_TABLE}.version_num")
    raise SchemaOutdated(found, HEAD, dialect.tables.upgrade_command())


def copy_command(noted: str | None, dialect: Dialect) -> str:
    """The shell command that continues the copy in this note of `_meta`."""
    try:
        source = orjson.loads(noted or "")["source"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        source = "SRC"
    return f"persist copy --resumable {source} {dialect.tables.arguments('--target-schema')}"
