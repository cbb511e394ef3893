"""Selects columns as text: Json columns as JSON text without parsing it, and text columns so that the driver cannot fail."""

from typing import Any

from sqlalchemy import Dialect, Select, Text, cast, func, literal_column, select, type_coerce
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import NullType, TypeDecorator

from persist.db.schema.column_types import Processor
from persist.db.sqlalchemy_private import made_of
from persist.db.values.key_order import from_jsonb, joined_from_jsonb


class _JsonText(TypeDecorator[str]):
    """The text of a Json column, as plain JSON."""

    impl = Text
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor | None:
        return from_jsonb if dialect.name == "postgresql" else None


class _JoinedText(TypeDecorator[str]):
    """The texts of several JSON objects, joined with commas, as plain JSON."""

    impl = Text
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor | None:
        return _joined if dialect.name == "postgresql" else None


def _joined(text: str) -> str:
    return text if NO_OBJECT in text else joined_from_jsonb(text)


def json_text(column: ColumnElement[Any]) -> ColumnElement[str]:
    """A Json column, selected as its JSON text."""
    return type_coerce(cast(column, Text), _JsonText())


class stored_text(FunctionElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """A text column, selected in the form that `readable` takes.

    SQLite returns bytes: its driver decodes text itself, and fails for the whole result if one text is not UTF-8.
    """

    inherit_cache = True
    type = NullType()
    """No type: the driver's value is passed to `readable` undecoded."""


@compiles(stored_text, "sqlite")
def _stored_lite(element: stored_text, compiler: SQLCompiler, **kw: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **kw)} AS BLOB)"


@compiles(stored_text, "postgresql")
def _stored_pg(element: stored_text, compiler: SQLCompiler, **kw: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **kw)} AS TEXT)"


def readable(stored: Any) -> str:
    """The text of a value that was selected with `stored_text`. Raises ValueError if it is not text."""
    if isinstance(stored, bytes):
        return stored.decode()
    if not isinstance(stored, str):
        raise ValueError(f"{stored!r:.40} is stored")
    return stored


NO_OBJECT = "\x01"
"""Replaces items that are not objects in joined JSON text: a control character, which JSON text never contains unescaped."""


def json_array_text(chosen: Select[Any]) -> ColumnElement[str]:
    """The JSON texts of the objects in the query's only column (Json), in its order, joined with commas; NULL without rows."""
    column = chosen.selected_columns[0]
    texts = chosen.with_only_columns(_object_text(column).label("text"), maintain_column_froms=True).subquery()
    comma: Any = literal_column("','")  # a plain "," would become a parameter that is rendered only at execution
    return type_coerce(select(func.aggregate_strings(texts.c.text, comma)).scalar_subquery(), _JoinedText())


@made_of(column=InternalTraversal.dp_clauseelement)
class _object_text(ColumnElement[str]):  # noqa: N801  # reads as the SQL function it stands for
    """The text of a Json column if it is an object, else NO_OBJECT.

    On SQLite it counts as one if it begins with { and ends with }, which detects truncated or foreign text.
    """

    type = Text()

    def __init__(self, column: ColumnElement[Any]) -> None:
        self.column = column


@compiles(_object_text, "sqlite")
def _render_lite(element: _object_text, compiler: SQLCompiler, **kw: Any) -> str:
    text = compiler.process(element.column, **kw)
    return f"CASE WHEN {text} GLOB '{{*}}' THEN {text} ELSE char({ord(NO_OBJECT)}) END"


@compiles(_object_text, "postgresql")
def _render_pg(element: _object_text, compiler: SQLCompiler, **kw: Any) -> str:
    text = compiler.process(element.column, **kw)
    return f"CASE WHEN jsonb_typeof({text}) = 'object' THEN CAST({text} AS TEXT) ELSE chr({ord(NO_OBJECT)}) END"
