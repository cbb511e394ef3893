"""The metadata of every table of persist: the target of Alembic, and the source of a new SQLite file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, inspect

from persist.db.schema.base import SCHEMA_TOKEN, VERSION_TABLE, Base, complete_indexes, table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements.schema_version import HEAD as HEAD
from persist.db.statements.schema_version import REVISIONS as REVISIONS
from persist.domains import domain_of_module, import_models
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from alembic import context as env
else:
    env = lazy_module("alembic.context")

import_models()
metadata = Base.metadata
complete_indexes(metadata)

table_of(Meta).info["seed"] = [{"key": "schema_version", "value": HEAD}]


def domain_of(table: Table) -> str:
    """The package that defines a table, such as "chat"; "db" for the `_meta` table."""
    return _DOMAINS[table.name]


_DOMAINS = {table_of(mapper.class_).name: domain_of_module(mapper.class_.__module__) for mapper in Base.registry.mappers}


def include_name(name: str | None, type_: str, parents: Mapping[str, Any]) -> bool:
    """A filter for a host's own autogenerate (`include_name=` of `context.configure`): leaves persist's tables alone.

    Give it to your env.py, so that `alembic revision --autogenerate` and `alembic check` do not propose to drop them. A table of
    yours with the same name is not taken for persist's: those stand with persist's version table, and have its columns.
    """
    if type_ == "schema":
        return name != SCHEMA_TOKEN
    if type_ == "table":
        ours = metadata.tables.get(f"{SCHEMA_TOKEN}.{name}")
        return name != VERSION_TABLE and (ours is None or not _is_there(ours, parents.get("schema_name")))
    return True


def include_object(found: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:
    """A filter beside `include_name` (`include_object=`), for a host whose tables have foreign keys to those of persist.

    Autogenerate makes such a key with its table, and does not compare it afterwards: its schema is named otherwise in a database.
    """
    if type_ != "foreign_key_constraint":
        return True
    schema, _, referred = found.elements[0].target_fullname.rpartition(".")[0].rpartition(".")
    if not reflected:
        return bool(schema != SCHEMA_TOKEN)
    ours = metadata.tables.get(f"{SCHEMA_TOKEN}.{referred}")
    return ours is None or not _is_there(ours, schema or None)


def _is_there(ours: Table, schema: str | None) -> bool:
    """Whether the running env.py compares a table of persist. Outside of env.py the name alone decides."""
    try:
        connection = env.get_context().connection
    except (NameError, AttributeError):  # raised by Alembic outside of env.py
        return True
    if connection is None:
        return True
    inspector = inspect(connection)
    if not inspector.has_table(VERSION_TABLE, schema=schema):
        return False
    found = {column["name"] for column in inspector.get_columns(ours.name, schema=schema)}
    # required columns are never removed, and columns of later revisions are optional
    return {column.name for column in ours.columns if not column.nullable and column.server_default is None} <= found
