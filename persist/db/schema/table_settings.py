"""Settings of tables that only Postgres has: what a changed row is known by to replicas, and how full its pages are filled.

`set_for` declares them. They are a statement of their own: CREATE TABLE has no words for the first. SQLite has neither.
"""

from typing import Any

from sqlalchemy import DDLElement, Dialect, Table, event
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import DDLCompiler

_SETTINGS = "settings"


class TableSettings(DDLElement):
    """The statement that gives a table its settings."""

    inherit_cache = False

    def __init__(self, table: Table) -> None:
        self.table = table


@compiles(TableSettings)
def _render(element: TableSettings, compiler: DDLCompiler, **kw: Any) -> str:
    actions = element.table.info[_SETTINGS]
    return f"ALTER TABLE {compiler.preparer.format_table(element.table)} {', '.join(actions)}"


def set_for(table: Table, *, whole_row_identity: bool = False, fill_percent: int | None = None) -> None:
    """Declare the settings of a table, which it gets after it is created.

    `whole_row_identity`: the table has no primary key, so that a replica knows a changed row by all its columns; without it
    Postgres refuses every UPDATE and DELETE once a publication has the table. `fill_percent`: how full of rows a page is filled
    by inserts; in the room that is left a row is rewritten beside its old version, without a new entry in any index.
    """
    actions = []
    if whole_row_identity:
        actions.append("REPLICA IDENTITY FULL")
    if fill_percent is not None:
        actions.append(f"SET (fillfactor = {fill_percent})")
    table.info[_SETTINGS] = actions
    event.listen(table, "after_create", TableSettings(table).execute_if(dialect="postgresql"))


def settings_of(table: Table, dialect: Dialect) -> list[TableSettings]:
    """The statement that gives a new table its settings, in a list; an empty one where there are none."""
    return [TableSettings(table)] if dialect.name == "postgresql" and _SETTINGS in table.info else []
