"""Finds the rows that depend on a row by foreign keys: rows to remove with it, and nullable references to empty."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ForeignKeyConstraint, Table

from persist.db.dialects.raw_rows import Cells, Place, RawRows
from persist.schema.metadata import metadata

_ORDER = {table: at for at, table in enumerate(metadata.sorted_tables)}


Row = tuple[Table, Place]
Further = Callable[[Table, Place], Iterable[tuple[Table, Mapping[str, Any], str | None]]]


@dataclass(slots=True)
class Hanging:
    """A row and its dependents.

    `rows`: the row and the rows that must be removed with it, parents first.
    `loose`: rows that stay, each with its columns that refer to a removed row and must be emptied.
    """

    rows: list[Row] = field(default_factory=list)
    loose: dict[Row, list[str]] = field(default_factory=dict)


def hanging_on(raw: RawRows, table: Table, place: Place, further: Further) -> Hanging:
    """Find every row that depends on a row, directly or indirectly. The rows found are locked against other writers.

    `further`: what depends on a row though no foreign key says so; a column of a row that stays and lets go.
    """
    found: dict[Row, None] = {(table, place): None}
    loose: dict[Row, list[str]] = {}
    waiting = [(table, place)]
    for parent, at in waiting:  # the loop appends to this list
        cells = raw.cells(parent, at)
        for key in _references_to(raw, parent):
            where = {element.parent.name: cells.get(element.column.name) for element in key.elements}
            if any(cell is None for cell in where.values()):
                continue
            for row in [(key.table, place) for place in raw.find(key.table, where)]:
                if _lets_go(key):
                    loose.setdefault(row, []).extend(key.column_keys)
                elif row not in found:
                    found[row] = None
                    waiting.append(row)
        for of, named, column in further(parent, at):
            for row in [(of, place) for place in raw.find(of, {name: raw.cell(value) for name, value in named.items()})]:
                if column is not None:
                    loose.setdefault(row, []).append(column)
                elif row not in found:
                    found[row] = None
                    waiting.append(row)
    rows = sorted(found, key=lambda row: _ORDER[row[0]])  # stable: rows of one table keep their order
    return Hanging(rows, {row: columns for row, columns in loose.items() if row not in found})


def parents_of(raw: RawRows, table: Table) -> Iterator[tuple[ForeignKeyConstraint, Table]]:
    """Yield the foreign keys that a table has in this database, each with the table referred to."""
    for key in table.foreign_key_constraints:
        if key.info.get("dialect", raw.word) == raw.word:
            yield key, key.referred_table


def referred(key: ForeignKeyConstraint, cells: Cells) -> Cells | None:
    """Return the column values of the row that a foreign key refers to. None if the foreign key is null."""
    pairs = {element.column.name: cells.get(element.parent.name) for element in key.elements}
    return None if any(cell is None for cell in pairs.values()) else pairs


def _references_to(raw: RawRows, parent: Table) -> Iterator[ForeignKeyConstraint]:
    for table in _ORDER:
        for key, of in parents_of(raw, table):
            if of is parent:
                yield key


def _lets_go(key: ForeignKeyConstraint) -> bool:
    """Whether a foreign key is emptied when its target is removed; otherwise the referring row is removed too.

    True for a single nullable column that refers to another table and has no ON DELETE.
    """
    column = next(iter(key.columns))
    alone = len(key.columns) == 1 and key.table is not key.referred_table
    return alone and bool(column.nullable) and key.ondelete is None
