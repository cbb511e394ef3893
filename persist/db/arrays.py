"""Many values as one: rows as a JSON array, made where they are, and labels given as one parameter, however many they are."""

from typing import Any

import orjson
from sqlalchemy import Dialect, Select, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import UserDefinedType

from persist.db.base import Worded
from persist.db.escape import LEAD
from persist.db.times import is_postgres
from persist.db.types import Json, Processor

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


class _Labels(UserDefinedType[Any]):
    """A list of labels as one parameter: JSON text on SQLite, an array on Postgres."""

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **_: Any) -> str:
        return "TEXT[]"

    def bind_processor(self, dialect: Dialect) -> Processor:
        return list if is_postgres(dialect) else lambda labels: orjson.dumps(labels).decode()


class among_labels(Worded):  # noqa: N801  # reads as the SQL function it stands for
    """Whether a column of labels holds one of a list: a plain list would be a parameter for each, of which there is a most."""

    inherit_cache = False  # compiled once per store, as part of a hot statement

    def __init__(self, column: ColumnElement[Any], name: str) -> None:
        self.column, self.labels = column, bindparam(name, type_=_Labels())


@compiles(among_labels, "sqlite")
def _among_lite(element: among_labels, compiler: SQLCompiler, **kw: Any) -> str:
    column, labels = compiler.process(element.column, **kw), compiler.process(element.labels, **kw)
    return f"{column} IN (SELECT value FROM json_each({labels}))"


@compiles(among_labels, "postgresql")
def _among_pg(element: among_labels, compiler: SQLCompiler, **kw: Any) -> str:
    return f"{compiler.process(element.column, **kw)} = ANY ({compiler.process(element.labels, **kw)})"
