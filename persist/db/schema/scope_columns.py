"""Scope columns: which run, instance or workspace a row belongs to; '' on SQLite is the scope of the file itself."""

from typing import Any

from sqlalchemy import Column, ForeignKeyConstraint, Identity, PrimaryKeyConstraint, TextClause
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import MappedColumn, mapped_column
from sqlalchemy.sql.compiler import DDLCompiler

from persist.db.schema.base import NEVER_REUSED, SCHEMA_TOKEN
from persist.db.schema.column_types import Int64, Label
from persist.db.sqlalchemy_private import written_as

OWN = ""
"""The scope, on SQLite, of rows that belong to the file itself."""


@written_as(sqlite="{text}", postgresql="NULLIF(current_setting('persist.{scope}', true), '')")
class _ScopeDefault(TextClause):
    inherit_cache = False

    def __init__(self, scope: str) -> None:
        super().__init__("''")
        self.scope = scope


@written_as(sqlite="{text}", postgresql="date_trunc('second', now())")
class _NowDefault(TextClause):
    inherit_cache = False

    def __init__(self) -> None:
        super().__init__("(datetime('now'))")


def this_second() -> TextClause:
    """The current second as a server default, for a SqlSeconds column that raw INSERTs leave out."""
    return _NowDefault()


def scope_column(scope: str, *, primary_key: bool = False) -> MappedColumn[str]:
    """A scope column: `run_id`, `instance_id` or `workspace_id`."""
    assert scope.isidentifier(), scope
    return mapped_column(scope, Label(), nullable=False, primary_key=primary_key, server_default=_ScopeDefault(scope))


def numbered() -> MappedColumn[int]:
    """An integer key that counts up and is never reused; in a table with `key_per_scope` it is the key within a scope."""
    return mapped_column(Int64(), Identity(), primary_key=True)


def key_per_scope(scope: str, **options: Any) -> dict[str, Any]:
    """Table options: on Postgres the primary key is (scope, id), on SQLite the id alone, as AUTOINCREMENT requires."""
    return {**NEVER_REUSED, "info": {"key_scope": scope}, **options}


def key_within_scope(table: str, scope: str, column: str, target: str) -> tuple[ForeignKeyConstraint, ForeignKeyConstraint]:
    """The foreign key to a table with `key_per_scope`: to its id on SQLite, to (scope, id) on Postgres. `target`: "table.id"."""
    target_table, _, target_column = target.partition(".")
    referred = f"{SCHEMA_TOKEN}.{target_table}"
    by_id = ForeignKeyConstraint(
        [column], [f"{referred}.{target_column}"], name=f"fk_{table}_{column}", info={"dialect": "sqlite"}
    )
    by_scope_and_id = ForeignKeyConstraint(
        [scope, column],
        [f"{referred}.{scope}", f"{referred}.{target_column}"],
        name=f"fk_{table}_{scope}_{column}",
        info={"dialect": "postgresql"},
    )
    return by_id.ddl_if(dialect="sqlite"), by_scope_and_id.ddl_if(dialect="postgresql")


@compiles(PrimaryKeyConstraint, "postgresql")
def _render_key(element: PrimaryKeyConstraint, compiler: DDLCompiler, **kw: Any) -> str:
    scope = element.table.info.get("key_scope")
    if scope is None:
        text: str = compiler.visit_primary_key_constraint(element, **kw)
        return text
    preparer = compiler.preparer
    name = preparer.format_constraint(element)
    columns = ", ".join(preparer.quote(column) for column in (scope, *[column.name for column in element.columns]))
    return f"CONSTRAINT {name} PRIMARY KEY ({columns})"


def scope_of(column: Column[Any]) -> str | None:
    """The name of a scope column's scope; None for any other column."""
    default = getattr(column.server_default, "arg", None)
    return default.scope if isinstance(default, _ScopeDefault) else None
