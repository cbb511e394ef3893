"""Conditions on the members of a JSON object column."""

from typing import Any

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal

from persist.db.schema.base import Worded
from persist.db.sqlalchemy_private import made_of


@made_of(column=InternalTraversal.dp_clauseelement, member=InternalTraversal.dp_clauseelement)
class json_has_member(Worded):  # noqa: N801  # reads as the SQL function it stands for
    """Whether a JSON object column has the one member of another object, whose value is no list and no object.

    A GIN index of the column serves it on Postgres. On SQLite, text that is not a JSON object has no members.
    """

    def __init__(self, column: ColumnElement[Any], member: ColumnElement[Any]) -> None:
        self.column, self.member = column, member


@compiles(json_has_member, "sqlite")
def _render_lite(element: json_has_member, compiler: SQLCompiler, **kw: Any) -> str:
    column, member = compiler.process(element.column, **kw), compiler.process(element.member, **kw)
    stored = f"json_each(CASE WHEN json_valid({column}) THEN {column} END) AS stored"
    numbers = "stored.type IN ('integer', 'real') AND wanted.type IN ('integer', 'real')"
    return (
        f"EXISTS (SELECT 1 FROM {stored}, json_each({member}) AS wanted WHERE stored.key = wanted.key "
        f"AND stored.atom IS wanted.atom AND (stored.type = wanted.type OR ({numbers})))"
    )


@compiles(json_has_member, "postgresql")
def _render_pg(element: json_has_member, compiler: SQLCompiler, **kw: Any) -> str:
    return f"{compiler.process(element.column, **kw)} @> {compiler.process(element.member, **kw)}"
