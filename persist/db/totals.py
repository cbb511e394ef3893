"""Sums of whole numbers that never fail: one absurd number must not make a list unreadable."""

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal

_MOST = 2**63 - 1


class whole_total(ColumnElement[int]):  # noqa: N801  # reads as the SQL function it stands for
    """The sum over all rows and these columns, NULL being 0, and never more than 2**63-1."""

    inherit_cache = True
    _traverse_internals = [("columns", InternalTraversal.dp_clauseelement_tuple)]  # noqa: RUF012  # SQLAlchemy's own declaration
    type = BigInteger()

    def __init__(self, *columns: ColumnElement[Any]) -> None:
        self.columns = columns


@compiles(whole_total, "sqlite")
def _render_lite(element: whole_total, compiler: SQLCompiler, **kw: Any) -> str:
    """Its sum() fails beyond 64 bits, and total() is a float: halves of 32 bits add up exactly. What is more becomes a float."""
    row = " + ".join(f"coalesce({compiler.process(column, **kw)}, 0)" for column in element.columns)
    high, low = (f"CAST(total(({row}) {half}) AS INTEGER)" for half in (">> 32", f"& {2**32 - 1}"))
    return f"min({high} * {2**32} + {low}, {_MOST})"


@compiles(whole_total, "postgresql")
def _render_pg(element: whole_total, compiler: SQLCompiler, **kw: Any) -> str:
    sums = " + ".join(f"coalesce(sum({compiler.process(column, **kw)}), 0)" for column in element.columns)
    return f"CAST(least({sums}, {_MOST}) AS BIGINT)"
