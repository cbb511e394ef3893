"""Cells that hold nothing where persist's own tables must hold something, as the files of other programs may allow.

They are read as None, with which most verbs get along. A verb that fails on one is run again, and finds the cell unreadable:
its lists leave the row out, and everything that needs the cell raises `UnreadableRow`. A verb that has written something already
is not run again, and raises `UnreadableRow` at once.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Column, Delete, Insert, Join, Select, Table, Update
from sqlalchemy.sql.elements import Cast, ColumnElement, Label, TypeCoerce
from sqlalchemy.sql.selectable import Alias, FromClause
from sqlalchemy.sql.visitors import iterate

from persist.errors import UnreadableRow

HOLDS_NOTHING = "it holds nothing, and must hold a value"
"""The reason of an `UnreadableRow` with such a cell, which `UnreadableRow` recognises: the doctor never sets such a row aside."""
STORED: frozenset[type] = frozenset({int, float, str, bytes})
"""The types of everything that SQLite stores, but for NULL."""


class Carried(list[Any]):
    """The placeholders for unreadable cells that the running verb read."""

    missing: UnreadableRow | None = None
    """What the first cell that must hold something and holds nothing would raise; the verb got None for it."""
    refuses = False
    """Whether such a cell is unreadable, since the verb failed on a None before."""


def required(statement: Any, columns: Sequence[ColumnElement[Any]]) -> frozenset[int]:
    """The places of the result's columns that come from a table's column that must hold something.

    None of a table on the far side of an outer join, which has to be one of `Table.outerjoin`. What is computed is left out.
    """
    places = {place: found for place, column in enumerate(columns) if (found := _plain(column)) is not None}
    if isinstance(statement, Insert | Update | Delete):
        return frozenset(places)
    if not isinstance(statement, Select):
        return frozenset()
    optional = {table for part in iterate(statement) if isinstance(part, Join) for table in _optional(part)}
    return frozenset(place for place, column in places.items() if column.table not in optional)


def _plain(column: ColumnElement[Any]) -> Column[Any] | None:
    found: Any = column
    while isinstance(found, Label | Cast | TypeCoerce):
        found = found.element if isinstance(found, Label) else found.clause
    if not isinstance(found, Column) or found.nullable:
        return None
    of = found.table.element if isinstance(found.table, Alias) else found.table
    return found if isinstance(of, Table) else None


def _optional(join: Join) -> Iterator[FromClause]:
    """The tables that a row of the join may lack."""
    if join.full:
        yield from _tables(join)
    elif join.isouter:
        yield from _tables(join.right)


def _tables(source: FromClause) -> Iterator[FromClause]:
    if isinstance(source, Join):
        yield from _tables(source.left)
        yield from _tables(source.right)
    else:
        yield source
