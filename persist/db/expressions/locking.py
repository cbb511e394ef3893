"""Locks in SQL: advisory locks by key, table locks, and the lock timeout."""

from typing import Any

from sqlalchemy import Boolean, Executable, Table, Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement, ColumnElement
from sqlalchemy.types import NullType

from persist.db.sqlalchemy_private import made_of, written_as

LOCK_TIMEOUT_SECONDS = 5.0
LOCK_TIMEOUT = f"{LOCK_TIMEOUT_SECONDS:.0f}s"
"""How long a writer waits for a row that another transaction has locked."""


@written_as(sqlite="NULL", postgresql="CAST(pg_advisory_xact_lock(hashtextextended({text}, 0)) AS TEXT)")
@made_of()
class advisory_lock(ColumnElement[None]):  # noqa: N801  # reads as the SQL function it stands for
    """Takes the advisory lock of the text in the parameter `lock_key` until the transaction ends; nothing on SQLite."""

    type = NullType()
    text = bindparam("lock_key", type_=Text())


@written_as(sqlite="1", postgresql="(SELECT set_config('lock_timeout', '{limit}', true) IS NOT NULL)")
@made_of()
class with_lock_timeout(ColumnElement[bool]):  # noqa: N801  # reads as the SQL function it stands for
    """True, and on Postgres the LOCK_TIMEOUT of a transaction of one statement: a pooler may pass its session on."""

    type = Boolean()
    limit = LOCK_TIMEOUT


@written_as(sqlite="SELECT NULL")
class lock_table(Executable, ClauseElement):  # noqa: N801  # reads as the statement it stands for
    """Waits for every transaction that wrote to the table, and blocks other writers until this one ends; nothing on SQLite."""

    inherit_cache = False

    def __init__(self, table: Table) -> None:
        self.table = table


@compiles(lock_table, "postgresql")
def _render_lock_pg(element: lock_table, compiler: SQLCompiler, **kw: Any) -> str:
    return f"LOCK TABLE {compiler.preparer.format_table(element.table)} IN SHARE ROW EXCLUSIVE MODE"
