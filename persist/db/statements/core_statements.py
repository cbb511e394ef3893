"""Queries that run through SQLAlchemy Core: on a caller's connection, and those that are built anew for each call."""

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, CursorResult, Dialect, Select

from persist.db.statements.prepared import Row, columns_of, decoder_of
from persist.db.unreadable.cells import Cells
from persist.db.unreadable.rereading import By, Rereader, rows_on

Kinds = list[tuple[int, frozenset[type]]]
_kinds: WeakKeyDictionary[Any, Kinds] = WeakKeyDictionary()
"""Positions and allowed types of a statement's columns, by the compiled statement, which Core caches by the statement's form."""


def fetched(
    connection: Connection,
    execute: Callable[[Any, Any], CursorResult[Any]],
    reader: Rereader,
    statement: Any,
    values: Mapping[str, Any],
    by: By,
) -> list[Row]:
    """Execute; every row, decoded. For unreadable rows (`by`), see `persist.db.unreadable.cells`."""
    result = execute(statement, values)
    if not (reader.typed or isinstance(statement, Select)):
        driver = connection.connection.driver_connection
        raw = rows_on(result.cursor, driver, reader)
        result.close()
        return _decoded(connection, reader, statement, raw, values, by)
    kinds = [] if reader.typed else _kinds_of(result, statement)
    try:
        rows = [tuple(row) for row in result]
        if not rows or _fit(rows, kinds):
            return rows
    except Exception as error:
        result.close()  # the traceback of an error that somebody keeps would keep it open, and on SQLite its snapshot of the file
        if not isinstance(statement, Select):
            raise
        return _cell_by_cell(connection, execute, reader, statement, values, by, error)
    return _cell_by_cell(connection, execute, reader, statement, values, by, None)


def _fit(rows: list[Row], kinds: Kinds) -> bool:
    columns = list(zip(*rows, strict=True))
    return all(kind.issuperset(map(type, columns[place])) for place, kind in kinds)


def _kinds_of(result: CursorResult[Any], statement: Any) -> Kinds:
    compiled: Any = getattr(result.context, "compiled", None)
    kinds = None if compiled is None else _kinds.get(compiled)
    if kinds is None:
        kinds = _cells_of(statement, None, typed=False).kinds()
        if compiled is not None:
            _kinds[compiled] = kinds
    return kinds


def _cell_by_cell(
    connection: Connection,
    execute: Callable[[Any, Any], CursorResult[Any]],
    reader: Rereader,
    statement: Select[Any],
    values: Mapping[str, Any],
    by: By,
    error: Exception | None,
) -> list[Row]:
    """Execute the query again, fetch the driver's raw rows, and decode them cell by cell."""
    with reader.lenient(connection.connection.driver_connection):
        result = execute(statement, values)
        assert result.cursor is not None
        raw = result.cursor.fetchall()
        result.close()
    return _decoded(connection, reader, statement, raw, values, by)


def _decoded(connection: Connection, reader: Rereader, statement: Any, raw: Any, values: Mapping[str, Any], by: By) -> list[Row]:
    """The driver's raw rows, decoded cell by cell."""
    return _cells_of(statement, connection.dialect, typed=reader.typed).rows(raw, values, *by)


def _cells_of(statement: Any, dialect: Dialect | None, *, typed: bool) -> Cells:
    columns = columns_of(statement)
    decoders = [] if dialect is None else [decoder_of(column.type, dialect) for column in columns]
    return Cells(statement, columns, decoders, typed=typed)
