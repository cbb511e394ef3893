"""Texts in SQL: LIKE with a pattern that is a parameter, and appending inside a stored JSON object."""

from typing import Any

from sqlalchemy import Boolean, ColumnElement, Select, Text, bindparam, func, literal_column, select
from sqlalchemy.sql.visitors import InternalTraversal

from persist.db.schema.column_types import FreeText
from persist.db.sqlalchemy_private import made_of, written_as
from persist.db.values.escaping import LEAD

# A parameter that is a LIKE pattern by itself would make SQLite compile the statement each time, as an index may find its prefix.


def like(column: ColumnElement[Any], name: str, *, escape: str | None = None) -> ColumnElement[bool]:
    """Whether the column's text matches the pattern in the parameter `name`."""
    return column.like(bindparam(name, type_=FreeText()).concat(""), escape=escape)


_LEAD = ord(LEAD)

# Parameters for SQLite: the JSON text of the stored object before and after its text (`values.json.JsonFrame`), and the JSON
# text that will follow the appended text. Postgres needs none of the three.
_HEAD, _FOOT, _NEW_FOOT = (bindparam(name, type_=Text()) for name in ("head", "foot", "new_foot"))


@written_as(
    # concatenated as strings: SQLite's JSON functions would hold several copies of the text
    sqlite="substr({column}, 1, length({column}) - length({foot})) || substr(json_quote({added}), 2) || substr({new_foot}, 2)",
    postgresql="jsonb_set({target}, '{{text}}', to_jsonb(coalesce({column} ->> 'text', '') || {added}))",
)
class appended_text(ColumnElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """The JSON object `target` with its "text" replaced by that of `column` and all texts of the query `pieces`, in order."""

    inherit_cache = False  # compiled once per store, as part of a prepared statement
    foot, new_foot = _FOOT, _NEW_FOOT

    def __init__(self, target: ColumnElement[Any], column: ColumnElement[Any], pieces: Select[Any]) -> None:
        self.target, self.column = target, column
        self.type = column.type
        texts = pieces.subquery()
        empty: Any = literal_column("''")  # a plain "" would become a parameter that is rendered only at execution
        self.added = select(func.coalesce(func.aggregate_strings(texts.c[0], empty), empty)).scalar_subquery()


@written_as(
    sqlite="(substr({column}, 1, length({head})) = {head} AND substr({column}, -length({foot})) = {foot})", postgresql="true"
)
class has_frame(ColumnElement[bool]):  # noqa: N801  # reads as the SQL function it stands for
    """Whether the stored text of a Json column begins with `head` and ends with `foot`, as `appended_text` requires on SQLite."""

    inherit_cache = False
    type = Boolean()
    head, foot = _HEAD, _FOOT

    def __init__(self, column: ColumnElement[Any]) -> None:
        self.column = column


@written_as(
    sqlite=f"(instr({{column}}, char(0)) > 0 OR instr({{column}}, char({_LEAD})) > 0)",
    postgresql=f"(strpos({{column}}, chr({_LEAD})) > 0)",
)
@made_of(column=InternalTraversal.dp_clauseelement)
class has_escapes(ColumnElement[bool]):  # noqa: N801  # reads as the SQL function it stands for
    """Whether a FreeText column holds escaped text (or, on SQLite, a NUL), which `appended_text` would not decode."""

    type = Boolean()

    def __init__(self, column: ColumnElement[Any]) -> None:
        self.column = column
