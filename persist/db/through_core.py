"""Statements through Core: on a connection of the caller's, and those that are put together per call."""

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, CursorResult, Select

from persist.db.hot import Row, decoder_of
from persist.db.rereading import By, Rereader
from persist.db.spoilt import Cells, kind_of

Kinds = list[tuple[int, frozenset[type]]]
_kinds: WeakKeyDictionary[Any, Kinds] = WeakKeyDictionary()
"""By the compiled statement, which Core keeps for the next one of the same form: what its columns may hold."""


def fetched(
    connection: Connection,
    execute: Callable[[Any, Any], CursorResult[Any]],
    reader: Rereader,
    statement: Any,
    values: Mapping[str, Any],
    by: By,
) -> list[Row]:
    """Every row, decoded. Of rows that cannot be read, see `persist.db.spoilt`."""
    result = execute(statement, values)
    kinds = [] if reader.typed else _kinds_of(result, statement)
    try:
        rows = [tuple(row) for row in result]
        if not rows or _fit(rows, kinds):
            return rows
    except Exception as error:
        if not isinstance(statement, Select):
            raise
        return _cell_by_cell(connection, execute, reader, statement, values, by, error)
    return _cell_by_cell(connection, execute, reader, statement, values, by, None)


def _fit(rows: list[Row], kinds: Kinds) -> bool:
    columns = list(zip(*rows, strict=True))
    return all(kind.issuperset(map(type, columns[place])) for place, kind in kinds)


def _kinds_of(result: CursorResult[Any], statement: Any) -> Kinds:
    compiled: Any = getattr(result.context, "compiled", None)
    known = None if compiled is None else _kinds.get(compiled)
    if known is None:
        columns = statement.selected_columns if isinstance(statement, Select) else ()
        known = [(place, kind) for place, column in enumerate(columns) if (kind := kind_of(column)) is not None]
        if compiled is not None:
            _kinds[compiled] = known
    return known


def _cell_by_cell(
    connection: Connection,
    execute: Callable[[Any, Any], CursorResult[Any]],
    reader: Rereader,
    statement: Select[Any],
    values: Mapping[str, Any],
    by: By,
    error: Exception | None,
) -> list[Row]:
    """Asked for again, and fetched as the driver gives it; an error that no cell is the reason of is raised as it was."""
    with reader.lenient(connection.connection.driver_connection):
        result = execute(statement, values)
        assert result.cursor is not None
        raw = result.cursor.fetchall()
        result.close()
    columns = list(statement.selected_columns)
    decoders = [decoder_of(column.type, connection.dialect) for column in columns]
    kinds = [None if reader.typed else kind_of(column) for column in columns]
    return Cells(statement, columns, decoders, kinds).rows(raw, values, *by)
