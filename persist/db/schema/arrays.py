"""Many values as one: rows aggregated into a JSON array by the database, and a list of labels as a single parameter."""

from typing import Any

import orjson
from sqlalchemy import Dialect, Select, bindparam, column
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import TableValuedAlias
from sqlalchemy.types import UserDefinedType

from persist.db.schema.base import Worded
from persist.db.schema.column_types import Int64, Json, Label, Processor
from persist.db.schema.instants import is_postgres
from persist.db.values.escaping import LEAD

_LEAD = ord(LEAD)


class labels_array(ColumnElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """A JSON array, in the stored form of a Json column, of the query's first column (a Label), ordered by its second."""

    inherit_cache = False  # compiled once per store, as part of a prepared statement

    def __init__(self, chosen: Select[Any]) -> None:
        self.rows = chosen.order_by(chosen.selected_columns[1]).subquery()
        self.type = Json()


@compiles(labels_array, "sqlite")
def _render_lite(element: labels_array, compiler: SQLCompiler, **kw: Any) -> str:
    """The array, ordered by the subquery: the oldest SQLite that persist supports has no ORDER BY inside of aggregates."""
    value, source = _parts(element, compiler, kw)
    return f"(SELECT json_group_array({value}) FROM {source})"


@compiles(labels_array, "postgresql")
def _render_pg(element: labels_array, compiler: SQLCompiler, **kw: Any) -> str:
    """The array, with the escape's lead doubled, as in all JSONB that persist stores."""
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
    """`column IN (…)` for a list of labels in one parameter; an expanded list would reach the limit of parameters."""

    inherit_cache = False  # compiled once per store, as part of a prepared statement

    def __init__(self, column: ColumnElement[Any], name: str) -> None:
        self.column, self.labels = column, bindparam(name, type_=_Labels())


@compiles(among_labels, "sqlite")
def _among_lite(element: among_labels, compiler: SQLCompiler, **kw: Any) -> str:
    column, labels = compiler.process(element.column, **kw), compiler.process(element.labels, **kw)
    return f"{column} IN (SELECT value FROM json_each({labels}))"


@compiles(among_labels, "postgresql")
def _among_pg(element: among_labels, compiler: SQLCompiler, **kw: Any) -> str:
    return f"{compiler.process(element.column, **kw)} = ANY ({compiler.process(element.labels, **kw)})"


class _LabelRows(FunctionElement[Any]):
    """See label_rows."""

    inherit_cache = False  # compiled once per store, as part of a prepared statement

    def __init__(self, name: str) -> None:
        super().__init__()
        self.labels = bindparam(name, type_=_Labels())


def label_rows(name: str) -> TableValuedAlias:
    """A list of labels in one parameter as rows: `value`, and `key`, by which they have the order of the list."""
    return _LabelRows(name).table_valued(column("key", Int64()), column("value", Label()))


@compiles(_LabelRows, "sqlite")
def _label_rows_lite(element: _LabelRows, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_each({compiler.process(element.labels, **kw)})"


@compiles(_LabelRows, "postgresql")
def _label_rows_pg(element: _LabelRows, compiler: SQLCompiler, **kw: Any) -> str:
    labels = compiler.process(element.labels, **kw)
    return f"(SELECT given.key, given.value FROM unnest({labels}) WITH ORDINALITY AS given (value, key))"
