"""The text of columns as it is stored: that of Json ones as plain JSON, not parsed, and any as nothing can make it fail."""

from typing import Any

from sqlalchemy import Dialect, Select, Text, cast, func, literal_column, select, type_coerce
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import NullType, TypeDecorator

from persist.db.key_order import from_jsonb, joined_from_jsonb
from persist.db.types import Processor


class _WireText(TypeDecorator[str]):
    impl = Text
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor | None:
        return from_jsonb if dialect.name == "postgresql" else None


class _JoinedText(TypeDecorator[str]):
    impl = Text
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor | None:
        return _joined if dialect.name == "postgresql" else None


def _joined(text: str) -> str:
    return text if NO_OBJECT in text else joined_from_jsonb(text)


def wire_text(column: ColumnElement[Any]) -> ColumnElement[str]:
    """What to select for one."""
    return type_coerce(cast(column, Text), _WireText())


class stored_text(FunctionElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """A column of text as `readable` takes it. A driver that decodes text itself gives no row at all where one is no UTF-8."""

    inherit_cache = True
    type = NullType()
    """Whatever the driver gives: `readable` looks at it."""


@compiles(stored_text, "sqlite")
def _stored_lite(element: stored_text, compiler: SQLCompiler, **kw: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **kw)} AS BLOB)"


@compiles(stored_text, "postgresql")
def _stored_pg(element: stored_text, compiler: SQLCompiler, **kw: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **kw)} AS TEXT)"


def readable(stored: Any) -> str:
    """The text that `stored_text` gave; ValueError where it is none."""
    if isinstance(stored, bytes):
        return stored.decode()
    if not isinstance(stored, str):
        raise ValueError(f"{stored!r:.40} is stored")
    return stored


NO_OBJECT = "\x01"
"""In joined objects, what stands for one that is none: a character that JSON text does not hold as it is."""


def joined_objects(chosen: Select[Any]) -> ColumnElement[str]:
    """The objects of the one Json column that is chosen, in its order and with commas between; NULL where there are none."""
    column = chosen.selected_columns[0]
    texts = chosen.with_only_columns(_object_text(column).label("text"), maintain_column_froms=True).subquery()
    comma: Any = literal_column("','")  # a plain one is written into the statement only when it is executed
    return type_coerce(select(func.aggregate_strings(texts.c.text, comma)).scalar_subquery(), _JoinedText())


class _object_text(ColumnElement[str]):  # noqa: N801  # reads as the SQL function it stands for
    """The text of a Json column, where it looks like an object: cut off or foreign text shows at its ends."""

    inherit_cache = True
    _traverse_internals = [("column", InternalTraversal.dp_clauseelement)]  # noqa: RUF012  # SQLAlchemy's own declaration
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
