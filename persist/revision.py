"""Whether a database is at the revision of this code, without Alembic and without changing anything."""

from sqlalchemy import Connection

from persist.db.dialects.base import Dialect
from persist.db.version import read_version
from persist.errors import SchemaOutdated, SchemaTooNew, UnmanagedDatabase
from persist.metadata import HEAD, REVISIONS, metadata


def verify(connection: Connection, dialect: Dialect) -> None:
    """SchemaOutdated, SchemaTooNew or UnmanagedDatabase, unless the database is at HEAD."""
    found = read_version(connection, dialect)
    if found == HEAD:
        return
    if found is None:
        strangers = sorted(dialect.tables(connection) & {table.name for table in metadata.sorted_tables})
        if strangers:
            raise UnmanagedDatabase(strangers)
    elif found not in REVISIONS:
        raise SchemaTooNew(found, HEAD)
    raise SchemaOutdated(found, HEAD, dialect.upgrade_command())
