"""Taking turns: transactions that ask for the same key go one after the other."""

from typing import Any

from sqlalchemy import Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import NullType


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
