"""Appends items to a JSON array where it is stored. Only for Postgres: elsewhere nothing executes such a statement."""

from typing import Any

from sqlalchemy import Boolean
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement


class appended_items(ColumnElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """The array in a Json column, followed by the items of another array."""

    inherit_cache = False  # compiled once per store, as part of a prepared statement

    def __init__(self, column: ColumnElement[Any], added: ColumnElement[Any]) -> None:
        self.column, self.added = column, added
        self.type = column.type


class has_room(ColumnElement[bool]):  # noqa: N801  # reads as the SQL function it stands for
    """Whether a Json column holds an array of at most so many bytes, in JSONB's text, which is longer than that of `encode`."""

    inherit_cache = False
    type = Boolean()

    def __init__(self, column: ColumnElement[Any], room: ColumnElement[Any]) -> None:
        self.column, self.room = column, room


@compiles(appended_items)
def _render_appended(element: appended_items, compiler: SQLCompiler, **kw: Any) -> str:
    return f"({compiler.process(element.column, **kw)} || {compiler.process(element.added, **kw)})"


@compiles(has_room)
def _render_room(element: has_room, compiler: SQLCompiler, **kw: Any) -> str:
    column, room = compiler.process(element.column, **kw), compiler.process(element.room, **kw)
    return f"(jsonb_typeof({column}) = 'array' AND octet_length(CAST({column} AS TEXT)) <= {room})"
