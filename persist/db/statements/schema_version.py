"""Reads the revision of a database without Alembic: from the version table and from `_meta.schema_version`."""

import re
from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    ScalarSelect,
    String,
    Table,
    select,
)

from persist.db.schema.base import SCHEMA_TOKEN, VERSION_TABLE, table_of
from persist.db.schema.meta_table import Meta
from persist.db.sqlalchemy_private import made_of, written_as
from persist.db.statements.prepared import Row, Statement


@written_as(sqlite="NULL", postgresql="EXISTS (SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'citus')")
@made_of()
class is_distributed(ColumnElement[Any]):  # noqa: N801  # reads as the SQL it stands for
    """Whether tables may be on other nodes, where a sequence is not."""

    type = Boolean()


@written_as(
    sqlite="NULL",
    postgresql="(SELECT system_identifier FROM pg_catalog.pg_control_system())"
    " || '.' || (SELECT datname || ' ' || oid FROM pg_catalog.pg_database WHERE datname = current_database()) || '.' || tableoid",
)
@made_of()
class place_of_tables(ColumnElement[Any]):  # noqa: N801  # reads as the SQL it stands for
    """What tells a table of a server, read in the same query, from one that was restored beside it; NULL in a file."""

    type = String()


HEAD = "0033"
"""The newest revision in alembic/versions."""

REVISIONS = tuple(f"{number:04d}" for number in range(1, int(HEAD) + 1))
"""Every revision, oldest first; tells whether a version is older, or newer than this code."""

_NUMBER = re.compile(r"[0-9]{1,18}")


def number_of(version: object) -> int | None:
    """The number of a revision, with or without leading zeros; None if the value is none, such as "v3" or bytes."""
    return int(version) if isinstance(version, str) and _NUMBER.fullmatch(version) else None


def is_newer(version: object) -> bool:
    """Whether a stored version is greater than HEAD, so that only a later persist can have written it."""
    number = number_of(version)
    return number is not None and number > int(HEAD)


# Declared as Alembic declares it, so that a file created here equals one created by `alembic upgrade head`.
version_table = Table(
    VERSION_TABLE,
    MetaData(schema=SCHEMA_TOKEN),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
_meta = table_of(Meta).c
OWN_SCOPES = ("run_id", "instance_id", "workspace_id")
"""The keys of `_meta` that name the owner of a file: one run, instance or workspace."""


EVENTS = "events"
"""The key of `_meta` that is there if the event log is on."""
GUARDING = "guarding"
"""The value of EVENTS, instead of a revision, while the log is being switched on or off."""

STRICT = "strict"
"""The key of `_meta` that is there if only persist may write some tables of the file."""


UNFINISHED = "unfinished"
"""The key of `_meta` that is there while a copy into the database has begun and has not ended."""
COPYING = "copying"
"""The value of `_meta.schema_version` while a resumable copy into the database is under way: no version of persist opens it."""
COPY = "copy"
"""The key of `_meta` for the facts of a resumable copy."""


def _meta_value(key: str) -> ScalarSelect[str]:
    return select(_meta.value).where(_meta.key == key).scalar_subquery()


DATABASE_ID = "database_id"
"""The key of `_meta` for the database's id, by which a place of blobs knows the database."""
PLACE = "place"
"""The key among the facts of `scopes_at` for what tells tables on a server from others, such as a copy of them."""
DISTRIBUTED = "distributed"
"""The key among the facts of `scopes_at` that is there if tables may be on other nodes of a cluster."""

_NOTED = (*OWN_SCOPES, EVENTS, STRICT, UNFINISHED, DATABASE_ID)
_FACTS = map(_meta_value, _NOTED)
_CURRENT = Statement(
    select(version_table.c.version_num, _meta_value("schema_version"), *_FACTS, place_of_tables(), is_distributed())
)


def scopes_at(ask: Callable[[Statement], Row | None], revision: str | None) -> dict[str, str] | None:
    """The keys of `_meta` that are set, PLACE and DISTRIBUTED, in one statement. None at another version than `revision`."""
    row = ask(_CURRENT)
    if row is None or (revision is not None and row[:2] != (revision, revision)):
        return None
    found = {key: value for key, value in zip((*_NOTED, PLACE), row[2:-1], strict=True) if value is not None}
    return {**found, DISTRIBUTED: "yes"} if row[-1] else found


ADOPTED = "adopted_schema_version"
"""The key of `_meta` for the version that another program had noted in a file that was adopted."""


def read_noted(connection: Connection) -> str | None:
    """`_meta.schema_version`; the table must exist. None if missing, or if an adopted file's other program has written it."""
    noted, adopted = connection.execute(select(_meta_value("schema_version"), _meta_value(ADOPTED))).one()
    return None if noted == adopted else noted


def read_copy(connection: Connection) -> str | None:
    """What is noted of the resumable copy into the database that is under way; None without one."""
    noted: str | None = connection.execute(select(_meta_value(COPY))).scalar()
    return noted


def read_version(connection: Connection) -> str | None:
    """The revision in the version table, which must exist; None if it has no row."""
    version: str | None = connection.execute(select(version_table.c.version_num)).scalar()
    return version
