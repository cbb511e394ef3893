"""Converts column values to plain JSON and back: instants as SQLite files store them, blobs as base64, others unchanged."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Double, LargeBinary, Table
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.types import TypeEngine

from persist.db.schema.column_types import EnumText, Instant

_PUBLISHED = SQLiteDialect()
Convert = Callable[[Any], Any]


class JsonRows:
    """Converts rows of one table to JSON objects and back."""

    __slots__ = ("_from", "_to")

    def __init__(self, table: Table) -> None:
        pairs = {column.name: _conversions(column.type) for column in table.columns}
        self._to = {name: pair[0] for name, pair in pairs.items() if pair is not None}
        self._from = {name: pair[1] for name, pair in pairs.items() if pair is not None}

    def plain(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON object for a row, or for some of its columns."""
        return _converted(row, self._to)

    def values(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        """The column values of a JSON object that `plain` returned."""
        return _converted(plain, self._from)


def _converted(row: Mapping[str, Any], by: Mapping[str, Convert]) -> dict[str, Any]:
    return {name: value if value is None or (code := by.get(name)) is None else code(value) for name, value in row.items()}


def _conversions(kind: TypeEngine[Any]) -> tuple[Convert, Convert] | None:
    if isinstance(kind, Instant):
        return kind.storing(_PUBLISHED), kind.reading(_PUBLISHED)
    if isinstance(kind, EnumText):
        return str, str
    if isinstance(kind, Double):
        return _fraction, _fraction
    if isinstance(kind, LargeBinary):
        return lambda value: {"base64": base64.b64encode(value).decode()}, lambda value: base64.b64decode(value["base64"])
    return None


def _fraction(value: Any) -> Any:
    """An integer as a float; other values, which adopted files may hold, unchanged."""
    return float(value) if type(value) is int else value
