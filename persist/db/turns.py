"""Taking turns: transactions that ask for the same key go one after the other; and how long anybody waits for a lock."""

from typing import Any

from sqlalchemy import Boolean, Executable, Table, Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement, ColumnElement
from sqlalchemy.types import NullType

LOCK_TIMEOUT = "5s"
"""How long a writer waits for a row that somebody else holds."""


class turn(ColumnElement[None]):  # noqa: N801  # reads as the SQL function it stands for
    """Waits for whoever has the turn of the text in the parameter `turn`, and has it until the transaction ends.

    A SQLite transaction that writes has the turn of everything from its beginning.
    """

    inherit_cache = True
    _traverse_internals = []  # noqa: RUF012  # SQLAlchemy's own declaration: each is like the other
    type = NullType()


@compiles(turn, "sqlite")
def _render_lite(element: turn, compiler: SQLCompiler, **kw: Any) -> str:
    return "NULL"


@compiles(turn, "postgresql")
def _render_pg(element: turn, compiler: SQLCompiler, **kw: Any) -> str:
    key = compiler.process(bindparam("turn", type_=Text()), **kw)
    return f"CAST(pg_advisory_xact_lock(hashtextextended({key}, 0)) AS TEXT)"


class in_time(ColumnElement[bool]):  # noqa: N801  # as above
    """True; a statement that is a transaction by itself gives up after the usual time where somebody holds what it needs.

    It rests on nothing that was set for the connection, which a pooler may give to somebody else.
    """

    inherit_cache = True
    _traverse_internals = []  # noqa: RUF012  # SQLAlchemy's own declaration: each is like the other
    type = Boolean()


@compiles(in_time, "sqlite")
def _render_in_time_lite(element: in_time, compiler: SQLCompiler, **kw: Any) -> str:
    return "1"


@compiles(in_time, "postgresql")
def _render_in_time_pg(element: in_time, compiler: SQLCompiler, **kw: Any) -> str:
    return f"(SELECT set_config('lock_timeout', '{LOCK_TIMEOUT}', true) IS NOT NULL)"


class lock_table(Executable, ClauseElement):  # noqa: N801  # reads as the statement it stands for
    """Waits for every transaction that wrote to the table, and lets nobody else write to it until this one ends.

    A SQLite transaction that writes is alone from its beginning.
    """

    inherit_cache = False

    def __init__(self, table: Table) -> None:
        self.table = table


@compiles(lock_table, "sqlite")
def _render_lock_lite(element: lock_table, compiler: SQLCompiler, **kw: Any) -> str:
    return "SELECT NULL"


@compiles(lock_table, "postgresql")
def _render_lock_pg(element: lock_table, compiler: SQLCompiler, **kw: Any) -> str:
    return f"LOCK TABLE {compiler.preparer.format_table(element.table)} IN SHARE ROW EXCLUSIVE MODE"
