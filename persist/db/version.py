"""Which revision a database is at, read without Alembic: its version row and `_meta.schema_version`."""

import re
from collections.abc import Callable

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, ScalarSelect, String, Table, select

from persist.db.base import SCHEMA_TOKEN, VERSION_TABLE, table_of
from persist.db.hot import Hot, Row
from persist.db.models import Meta

HEAD = "0009"
"""The newest revision in alembic/versions."""

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")
"""Every revision, oldest first: how a version is known to be older, or newer than this code."""

_NUMBER = re.compile(r"[0-9]{1,18}")


def number_of(mark: object) -> int | None:
    """The number of a revision, however many zeros stand before it; None for what names none, such as "v3" or bytes."""
    return int(mark) if isinstance(mark, str) and _NUMBER.fullmatch(mark) else None


def is_newer(mark: object) -> bool:
    """Whether only a later persist can have written it."""
    number = number_of(mark)
    return number is not None and number > int(HEAD)


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


def scopes_at(ask: Callable[[Hot], Row | None], revision: str | None) -> dict[str, str] | None:
    """What `_meta` says of whose file this is and of events, if both marks name that revision (None: any). One statement."""
    row = ask(_CURRENT)
    if row is None or (revision is not None and row[:2] != (revision, revision)):
        return None
    return {key: value for key, value in zip((*OWN_SCOPES, EVENTS), row[2:], strict=True) if value is not None}


ADOPTED = "adopted_schema_version"
"""The key of `_meta` under which the version of the program is kept whose file was adopted."""


def read_noted(connection: Connection) -> str | None:
    """`_meta.schema_version`; the table must exist. None also where the program noted its own again whose file was adopted."""
    noted, theirs = connection.execute(select(_noted("schema_version"), _noted(ADOPTED))).one()
    return None if noted == theirs else noted


def read_version(connection: Connection) -> str | None:
    """The revision in the version table, which must exist; None without a row."""
    version: str | None = connection.execute(select(version_table.c.version_num)).scalar()
    return version
