"""JSON in SQL: conditions on members, ranges as rows, items appended where they are stored, and columns selected as text."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Dialect,
    Numeric,
    Select,
    Text,
    case,
    cast,
    func,
    literal_column,
    select,
    type_coerce,
)
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import FromClause
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import NullType, TypeDecorator

from persist.db.schema.base import Worded
from persist.db.schema.column_types import Processor
from persist.db.sqlalchemy_private import made_of, written_as
from persist.db.values.arguments import UNBOUNDED
from persist.db.values.json import from_jsonb, joined_from_jsonb


@written_as(postgresql="({column} || {added})")
class appended_items(ColumnElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """The array in a Json column, followed by the items of another array. Only for Postgres: nothing executes it elsewhere."""

    inherit_cache = False  # compiled once per store, as part of a prepared statement

    def __init__(self, column: ColumnElement[Any], added: ColumnElement[Any]) -> None:
        self.column, self.added = column, added
        self.type = column.type


@written_as(postgresql="(jsonb_typeof({column}) = 'array' AND octet_length(CAST({column} AS TEXT)) <= {room})")
class has_room(ColumnElement[bool]):  # noqa: N801  # reads as the SQL function it stands for
    """Whether a Json column holds an array of at most so many bytes, in JSONB's text, which is longer than that of `encode`."""

    inherit_cache = False
    type = Boolean()

    def __init__(self, column: ColumnElement[Any], room: ColumnElement[Any]) -> None:
        self.column, self.room = column, room


@written_as(
    sqlite="EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid({column}) THEN {column} END) AS stored, json_each({member}) AS"
    " wanted WHERE stored.key = wanted.key AND stored.atom IS wanted.atom AND (stored.type = wanted.type OR"
    " (stored.type IN ('integer', 'real') AND wanted.type IN ('integer', 'real'))))",
    postgresql="{column} @> {member}",
)
@made_of(column=InternalTraversal.dp_clauseelement, member=InternalTraversal.dp_clauseelement)
class json_has_member(Worded):  # noqa: N801  # reads as the SQL function it stands for
    """Whether a JSON object column has the one member, a scalar, of another object. A GIN index serves it on Postgres."""

    def __init__(self, column: ColumnElement[Any], member: ColumnElement[Any]) -> None:
        self.column, self.member = column, member


def ranges_in(column: ColumnElement[Any]) -> tuple[FromClause, ColumnElement[int], ColumnElement[int]]:
    """(what to join with the column's table, its low end, its high end). No rows for other JSON, NULL for other ends."""
    is_list = func.jsonb_typeof(column, type_=Text()) == literal_column("'array'")
    ranges = func.jsonb_array_elements(case((is_list, column))).table_valued("value", name="ranges")
    return ranges, _end(ranges.c.value, 0), _end(ranges.c.value, 1)


def _end(value: ColumnElement[Any], place: int) -> ColumnElement[int]:
    item, text = (value.op(operator)(literal_column(str(place))) for operator in ("->", "->>"))
    number = case((func.jsonb_typeof(item, type_=Text()) == literal_column("'number'"), cast(text, Numeric)))
    return cast(func.least(func.greatest(number, literal_column("0")), literal_column(str(UNBOUNDED))), BigInteger)


class _JsonText(TypeDecorator[str]):
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


def json_text(column: ColumnElement[Any]) -> ColumnElement[str]:
    """A Json column, selected as its JSON text."""
    return type_coerce(cast(column, Text), _JsonText())


@written_as(sqlite="CAST({clauses} AS BLOB)", postgresql="CAST({clauses} AS TEXT)")
class stored_text(FunctionElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """A text column in the form that `readable` takes: bytes on SQLite, whose driver fails at text that is not UTF-8."""

    inherit_cache = True
    type = NullType()
    """No type: the driver's value is passed to `readable` undecoded."""


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


@written_as(
    sqlite=f"CASE WHEN {{column}} GLOB '{{{{*}}}}' THEN {{column}} ELSE char({ord(NO_OBJECT)}) END",
    postgresql=f"CASE WHEN jsonb_typeof({{column}}) = 'object' THEN CAST({{column}} AS TEXT) ELSE chr({ord(NO_OBJECT)}) END",
)
@made_of(column=InternalTraversal.dp_clauseelement)
class _object_text(ColumnElement[str]):  # noqa: N801  # reads as the SQL function it stands for
    """The text of a Json column if it is an object, else NO_OBJECT. SQLite looks at the braces, which finds truncated text."""

    type = Text()

    def __init__(self, column: ColumnElement[Any]) -> None:
        self.column = column
