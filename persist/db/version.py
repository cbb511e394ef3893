"""Which revision a database is at, read without Alembic: its version row and `_meta.schema_version`."""

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, select

from persist.db.base import SCHEMA_TOKEN, VERSION_TABLE, table_of
from persist.db.models import Meta

# As Alembic makes it, so that a file made here and one made by `alembic upgrade head` are the same.
version_table = Table(
    VERSION_TABLE,
    MetaData(schema=SCHEMA_TOKEN),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
_meta = table_of(Meta)
_NOTED = select(_meta.c.value).where(_meta.c.key == "schema_version").scalar_subquery()
_CURRENT = select(version_table.c.version_num, _NOTED)


def is_at(connection: Connection, revision: str) -> bool:
    """Whether both marks name that revision: one statement, all that opening a current database runs."""
    row = connection.execute(_CURRENT).first()
    return row is not None and tuple(row) == (revision, revision)


def read_version(connection: Connection) -> str | None:
    """The revision in the version table, which must exist; None without a row."""
    version: str | None = connection.execute(select(version_table.c.version_num)).scalar()
    return version
