"""Text that grows inside a stored JSON object without leaving the database, so that no process has to hold it."""

from typing import Any

from sqlalchemy import Boolean, Select, Text, bindparam, func, literal_column, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal

from persist.db.escape import LEAD

_LEAD = ord(LEAD)
_CLAUSE = InternalTraversal.dp_clauseelement

# Parameters: the JSON text of the stored object before and after its text (`persist.db.json.Frame`), and what it will be after
# it. A database that knows objects asks for none of the three.
_HEAD, _FOOT, _NEW_FOOT = (bindparam(name, type_=Text()) for name in ("head", "foot", "new_foot"))


class continued(ColumnElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """A JSON object: `whole`, but for its "text", which is that of `column`, a Json column, and all that is chosen, in order."""

    inherit_cache = False  # compiled once per store, as part of a hot statement

    def __init__(self, whole: ColumnElement[Any], column: ColumnElement[Any], pieces: Select[Any]) -> None:
        self.whole, self.column = whole, column
        self.type = column.type
        chosen = pieces.subquery()
        nothing: Any = literal_column("''")  # a plain one is written into the statement only when it is executed
        self.more = select(func.coalesce(func.aggregate_strings(chosen.c[0], nothing), nothing)).scalar_subquery()


class framed(ColumnElement[bool]):  # noqa: N801  # as above
    """Whether a Json column is stored as `continued` needs it."""

    inherit_cache = False
    type = Boolean()

    def __init__(self, column: ColumnElement[Any]) -> None:
        self.column = column


class escaped(ColumnElement[bool]):  # noqa: N801  # as above
    """Whether a Body column holds text that its database refuses, which `continued` would take for what it looks like."""

    inherit_cache = True
    _traverse_internals = [("column", _CLAUSE)]  # noqa: RUF012  # SQLAlchemy's own declaration
    type = Boolean()

    def __init__(self, column: ColumnElement[Any]) -> None:
        self.column = column


@compiles(continued, "sqlite")
def _continued_lite(element: continued, compiler: SQLCompiler, **kw: Any) -> str:
    """Pasted together: its JSON functions would hold several copies of the text."""
    parts = (element.column, _FOOT, element.more, _NEW_FOOT)
    column, foot, more, new_foot = (compiler.process(part, **kw) for part in parts)
    return f"substr({column}, 1, length({column}) - length({foot})) || substr(json_quote({more}), 2) || substr({new_foot}, 2)"


@compiles(continued, "postgresql")
def _continued_pg(element: continued, compiler: SQLCompiler, **kw: Any) -> str:
    whole, column, more = (compiler.process(part, **kw) for part in (element.whole, element.column, element.more))
    return f"jsonb_set({whole}, '{{text}}', to_jsonb(coalesce({column} ->> 'text', '') || {more}))"


@compiles(framed, "sqlite")
def _framed_lite(element: framed, compiler: SQLCompiler, **kw: Any) -> str:
    column, head, foot = (compiler.process(part, **kw) for part in (element.column, _HEAD, _FOOT))
    return f"(substr({column}, 1, length({head})) = {head} AND substr({column}, -length({foot})) = {foot})"


@compiles(framed, "postgresql")
def _framed_pg(element: framed, compiler: SQLCompiler, **kw: Any) -> str:
    return "true"


@compiles(escaped, "sqlite")
def _escaped_lite(element: escaped, compiler: SQLCompiler, **kw: Any) -> str:
    column = compiler.process(element.column, **kw)
    return f"(instr({column}, char(0)) > 0 OR instr({column}, char({_LEAD})) > 0)"


@compiles(escaped, "postgresql")
def _escaped_pg(element: escaped, compiler: SQLCompiler, **kw: Any) -> str:
    return f"(strpos({compiler.process(element.column, **kw)}, chr({_LEAD})) > 0)"
