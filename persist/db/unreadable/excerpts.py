"""Reads short fields of each object in a JSON array: the database picks them from a large one, a small one is cut here."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Dialect, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeDecorator

from persist.db.schema.column_types import other_shape
from persist.db.schema.instants import Processor, is_postgres
from persist.db.values.json import decode, value_of_jsonb

# Lists with a limit from which unreadable rows were left out: these do not count, and do not end the list before its end.

Row = tuple[Any, ...]


class Shortened(list[Row]):
    """The readable rows of a list, and the number of unreadable ones that were left out."""

    __slots__ = ("left_out",)

    def __init__(self, rows: Iterable[Row], left_out: int) -> None:
        super().__init__(rows)
        self.left_out = left_out


def left_out(rows: list[Row]) -> int:
    """How many unreadable rows were left out of a list."""
    return rows.left_out if isinstance(rows, Shortened) else 0


def filled_up(rows: list[Row], values: Mapping[str, Any], read: Callable[[Mapping[str, Any]], list[Row]]) -> list[Row]:
    """As many readable rows as the parameter `limit` asks for; `read` is asked with a limit that grows by what was left out."""
    asked = limit = values.get("limit")
    while asked is not None and isinstance(rows, Shortened) and len(rows) < asked and len(rows) + rows.left_out == limit:
        limit += rows.left_out
        rows = read({**values, "limit": limit})
    if asked is None or not isinstance(rows, Shortened):
        return rows
    return Shortened(rows[:asked], rows.left_out)


_SMALL = 2_000
"""The size up to which a whole array is read: characters of JSON text on SQLite, stored bytes on Postgres."""
_SHORT = 600
"""The length in characters up to which a text counts as short."""
_PICKED = "picked"
_SCALARS = (str, bool, int, float)


class Excerpt(TypeDecorator[Any]):
    """The type of `excerpt`: a list of dicts with all required fields, and with those optional fields that are short scalars."""

    impl = Text
    cache_ok = True

    def __init__(self, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
        self.required, self.optional = required, optional
        super().__init__()

    def result_processor(self, dialect: Dialect, coltype: object) -> Processor:
        value_of = value_of_jsonb if is_postgres(dialect) else decode
        return lambda text: [] if text == "[]" else None if text is None else self._cut(value_of(text))

    def _cut(self, value: Any) -> Any:
        if type(value) is dict and value.keys() == {_PICKED}:
            names = (*self.required, *self.optional)
            return [self._fields(dict(zip(names, fields, strict=True))) for fields in value[_PICKED]]
        if value is None:
            return None
        if type(value) is not list:
            raise other_shape(list)
        return [self._fields(item) for item in value if type(item) is dict]

    def _fields(self, item: dict[str, Any]) -> dict[str, Any]:
        fields = {name: _short(item.get(name)) for name in self.required}
        for name in self.optional:
            value = item.get(name)
            if type(value) in _SCALARS and not (type(value) is str and len(value) > _SHORT):
                fields[name] = value
        return fields


def _short(value: Any) -> Any:
    if type(value) is str:
        return value[:_SHORT]
    return value if type(value) in _SCALARS else None


class excerpt(ColumnElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """A Json column that holds an array of objects, read with the `required` and the short `optional` fields only."""

    inherit_cache = False  # compiled once per store, as part of a prepared statement

    def __init__(self, column: ColumnElement[Any], *required: str, optional: tuple[str, ...]) -> None:
        self.column, self.required, self.optional = column, required, optional
        self.type = Excerpt(required, optional)

    def get_children(self, **kw: Any) -> tuple[ColumnElement[Any]]:
        """The column, which the error for a cell names."""
        return (self.column,)


@compiles(excerpt, "sqlite")
def _render_lite(element: excerpt, compiler: SQLCompiler, **kw: Any) -> str:
    """json_extract with several paths returns JSON text, its strings unchanged. '$[0]' gives null, as an object has no item 0."""
    column = compiler.process(element.column, **kw)
    paths = [f"'$.{name}'" for name in element.required]
    for path in (f"'$.{name}'" for name in element.optional):
        kind, short = f"json_type(item.value, {path})", f"length(json_extract(item.value, {path})) <= {_SHORT}"
        is_scalar = f"{kind} IN ('integer', 'real', 'true', 'false') OR ({kind} = 'text' AND {short})"
        paths.append(f"CASE WHEN {is_scalar} THEN {path} ELSE '$[0]' END")
    return (
        f"CASE WHEN length({column}) <= {_SMALL} OR NOT json_valid({column}) THEN {column}"
        f" WHEN json_type({column}) <> 'array' THEN {column}"
        f" ELSE (SELECT json_object('{_PICKED}', json_group_array(json_extract(item.value, {', '.join(paths)})))"
        f" FROM json_each({column}) AS item WHERE item.type = 'object') END"
    )


@compiles(excerpt, "postgresql")
def _render_pg(element: excerpt, compiler: SQLCompiler, **kw: Any) -> str:
    column = compiler.process(element.column, **kw)
    values = [f"item.value -> '{name}'" for name in element.required]
    for name in element.optional:
        kind, short = f"jsonb_typeof(item.value -> '{name}')", f"length(item.value ->> '{name}') <= {_SHORT}"
        is_scalar = f"{kind} IN ('number', 'boolean') OR ({kind} = 'string' AND {short})"
        values.append(f"CASE WHEN {is_scalar} THEN item.value -> '{name}' END")
    return (
        f"CAST(CASE WHEN pg_column_size({column}) <= {_SMALL} OR jsonb_typeof({column}) <> 'array' THEN {column}"
        f" ELSE (SELECT jsonb_build_object('{_PICKED}', coalesce(jsonb_agg(jsonb_build_array({', '.join(values)})"
        f" ORDER BY item.place), '[]')) FROM jsonb_array_elements({column}) WITH ORDINALITY AS item(value, place)"
        f" WHERE jsonb_typeof(item.value) = 'object') END AS TEXT)"
    )
