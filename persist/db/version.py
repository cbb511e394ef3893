"""Which revision a database is at, read without Alembic: its version row and `_meta.schema_version`."""

from collections.abc import Callable

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, ScalarSelect, String, Table, select

from persist.db.base import SCHEMA_TOKEN, VERSION_TABLE, table_of
from persist.db.hot import Hot, Row
from persist.db.models import Meta

HEAD = "0009"
"""The newest revision in alembic/versions."""

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")
"""Every revision, oldest first: how a version is known to be older, or newer than this code."""

# As Alembic makes it, so that a file made here and one made by `alembic upgrade head` are the same.
version_table = Table(
    VERSION_TABLE,
    MetaData(schema=SCHEMA_TOKEN),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
_meta = table_of(Meta).c
OWN_SCOPES = ("run_id", "instance_id", "workspace_id")
"""The keys of `_meta` that say whose file this is."""


EVENTS = "events"
"""The key of `_meta` that says that the log of events is on."""


def _noted(key: str) -> ScalarSelect[str]:
    return select(_meta.value).where(_meta.key == key).scalar_subquery()


_CURRENT = Hot(select(version_table.c.version_num, _noted("schema_version"), *map(_noted, (*OWN_SCOPES, EVENTS))))


def scopes_at(ask: Callable[[Hot], Row | None], revision: str) -> dict[str, str] | None:
    """What `_meta` says of whose file this is and of events, if both marks name that revision. One statement."""
    row = ask(_CURRENT)
    if row is None or row[:2] != (revision, revision):
        return None
    return {key: value for key, value in zip((*OWN_SCOPES, EVENTS), row[2:], strict=True) if value is not None}


def read_noted(connection: Connection) -> str | None:
    """`_meta.schema_version`; the table must exist."""
    noted: str | None = connection.execute(select(_noted("schema_version"))).scalar()
    return noted


def read_version(connection: Connection) -> str | None:
    """The revision in the version table, which must exist; None without a row."""
    version: str | None = connection.execute(select(version_table.c.version_num)).scalar()
    return version
