"""The UTC day or hour of an instant inside a query, to group by."""

from typing import Any, Literal

from sqlalchemy import Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal

from persist.db.sqlalchemy_private import made_of

Size = Literal["day", "hour"]

_LETTERS = {"day": len("2026-01-02"), "hour": len("2026-01-02T03")}
_FORMATS = {"day": "YYYY-MM-DD", "hour": 'YYYY-MM-DD"T"HH24'}


@made_of(column=InternalTraversal.dp_clauseelement, size=InternalTraversal.dp_string)
class utc_bucket(ColumnElement[str]):  # noqa: N801  # reads as the SQL function it stands for
    """The UTC day (`YYYY-MM-DD`) or hour (`YYYY-MM-DDTHH`) of an IsoMs column, as text."""

    type = Text()

    def __init__(self, column: ColumnElement[Any], size: Size) -> None:
        self.column, self.size = column, size


@compiles(utc_bucket, "sqlite")
def _render_lite(element: utc_bucket, compiler: SQLCompiler, **kw: Any) -> str:
    return f"substr({compiler.process(element.column, **kw)}, 1, {_LETTERS[element.size]})"


@compiles(utc_bucket, "postgresql")
def _render_pg(element: utc_bucket, compiler: SQLCompiler, **kw: Any) -> str:
    return f"to_char({compiler.process(element.column, **kw)} AT TIME ZONE 'UTC', '{_FORMATS[element.size]}')"
