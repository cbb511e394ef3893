"""Rows as one JSON array, made where they are: what is already in the database is not sent there again."""

from typing import Any

from sqlalchemy import Select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement

from persist.db.escape import LEAD
from persist.db.types import Json

_LEAD = ord(LEAD)


class labels_array(ColumnElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """A JSON array, as a Json column keeps it, of the first column chosen, a Label, in the order of the second."""

    inherit_cache = False  # compiled once per store, as part of a hot statement

    def __init__(self, chosen: Select[Any]) -> None:
        self.rows = chosen.order_by(chosen.selected_columns[1]).subquery()
        self.type = Json()


@compiles(labels_array, "sqlite")
def _render_lite(element: labels_array, compiler: SQLCompiler, **kw: Any) -> str:
    """Rows come to an aggregate as a subquery orders them: its own ORDER BY is younger than the oldest SQLite that we take."""
    value, source = _parts(element, compiler, kw)
    return f"(SELECT json_group_array({value}) FROM {source})"


@compiles(labels_array, "postgresql")
def _render_pg(element: labels_array, compiler: SQLCompiler, **kw: Any) -> str:
    """With the lead of the escape doubled, as it is in all JSON there."""
    value, source = _parts(element, compiler, kw)
    place = compiler.process(element.rows.c[1], **kw)
    escaped = f"replace({value}, chr({_LEAD}), repeat(chr({_LEAD}), 2))"
    return f"(SELECT coalesce(jsonb_agg({escaped} ORDER BY {place}), '[]') FROM {source})"


def _parts(element: labels_array, compiler: SQLCompiler, kw: dict[str, Any]) -> tuple[str, str]:
    return compiler.process(element.rows.c[0], **kw), compiler.process(element.rows, **{**kw, "asfrom": True})
