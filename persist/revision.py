"""Whether a database is at the revision of this code, without Alembic and without changing anything."""

from typing import TYPE_CHECKING

from sqlalchemy import Connection

from persist.db.base import VERSION_TABLE
from persist.db.dialects.base import Dialect
from persist.db.models import Meta
from persist.db.version import HEAD, REVISIONS, read_noted, read_version
from persist.errors import SchemaOutdated, SchemaTooNew, UnmanagedDatabase
from persist.later import later

if TYPE_CHECKING:
    from persist import metadata as catalog
else:
    catalog = later("persist.metadata")


def found_revision(connection: Connection, dialect: Dialect) -> str | None:
    """The revision a database is at; None where persist was never here."""
    return read_version(connection) if VERSION_TABLE in dialect.tables(connection) else None


def verify(connection: Connection, dialect: Dialect) -> None:
    """SchemaOutdated, SchemaTooNew or UnmanagedDatabase, unless the database is at HEAD."""
    tables = dialect.tables(connection)  # looked at once: another process may be making them right now
    found = read_version(connection) if VERSION_TABLE in tables else None
    noted = read_noted(connection) if found is not None and Meta.__tablename__ in tables else None
    if noted is not None and noted not in REVISIONS:
        raise SchemaTooNew(noted, HEAD)
    if found == HEAD:
        return
    if found is None:
        strangers = sorted(tables & {table.name for table in catalog.metadata.sorted_tables})
        if strangers:
            raise UnmanagedDatabase(strangers)
    elif found not in REVISIONS:
        raise SchemaTooNew(found, HEAD)
    raise SchemaOutdated(found, HEAD, dialect.upgrade_command())
