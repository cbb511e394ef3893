"""Every table of persist, imported here once: Alembic's target, and what a new SQLite file is made from."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table

import persist.chat.models
import persist.checkpoints.models
import persist.conversations.models
import persist.events.models
import persist.messaging.models
import persist.programs.models
import persist.telemetry.models
import persist.workflows.models  # noqa: F401  # importing a model registers its table
from persist.db.base import SCHEMA_TOKEN, VERSION_TABLE, Base, complete_indexes, table_of
from persist.db.models import Meta
from persist.db.version import HEAD as HEAD
from persist.db.version import REVISIONS as REVISIONS

metadata = Base.metadata
complete_indexes(metadata)

table_of(Meta).info["seed"] = [{"key": "schema_version", "value": HEAD}]


def domain_of(table: Table) -> str:
    """The package that a table belongs to: "chat", …; "db" for the database's own facts."""
    return _DOMAINS[table.name]


_DOMAINS = {table_of(mapper.class_).name: mapper.class_.__module__.split(".")[1] for mapper in Base.registry.mappers}


def include_name(name: str | None, type_: str, parents: Mapping[str, Any]) -> bool:
    """A filter for a host's own autogenerate (`include_name=` of `context.configure`): leaves persist's tables alone.

    Give it to your env.py, so that `alembic revision --autogenerate` and `alembic check` do not propose to drop them.
    """
    if type_ == "schema":
        return name != SCHEMA_TOKEN
    if type_ == "table":
        return f"{SCHEMA_TOKEN}.{name}" not in metadata.tables and name != VERSION_TABLE
    return True
