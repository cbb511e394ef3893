"""Sums of integers that saturate instead of failing, so that one absurd number does not make a list unreadable."""

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal

from persist.db.sqlalchemy_private import made_of

_MAX = 2**63 - 1


@made_of(columns=InternalTraversal.dp_clauseelement_tuple)
class whole_total(ColumnElement[int]):  # noqa: N801  # reads as the SQL function it stands for
    """The sum over all rows and these columns; NULL counts as 0, and the result is at most 2**63-1."""

    type = BigInteger()

    def __init__(self, *columns: ColumnElement[Any]) -> None:
        self.columns = columns


@compiles(whole_total, "sqlite")
def _render_lite(element: whole_total, compiler: SQLCompiler, **kw: Any) -> str:
    """The sum of the upper and of the lower 32 bits, which are exact as floats.

    SQLite's sum() would fail beyond 64 bits, and total() of whole values would lose digits.
    """
    row = " + ".join(f"coalesce({compiler.process(column, **kw)}, 0)" for column in element.columns)
    high, low = (f"CAST(total(({row}) {half}) AS INTEGER)" for half in (">> 32", f"& {2**32 - 1}"))
    return f"min({high} * {2**32} + {low}, {_MAX})"


@compiles(whole_total, "postgresql")
def _render_pg(element: whole_total, compiler: SQLCompiler, **kw: Any) -> str:
    sums = " + ".join(f"coalesce(sum({compiler.process(column, **kw)}), 0)" for column in element.columns)
    return f"CAST(least({sums}, {_MAX}) AS BIGINT)"
