"""What hangs on a row by foreign keys: rows that cannot stay without it, and columns that can let it go."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlalchemy import ForeignKeyConstraint, Table

from persist.db.dialects.raw_rows import Cells, Place, RawRows
from persist.schema.metadata import metadata

_ORDER = {table: at for at, table in enumerate(metadata.sorted_tables)}


Row = tuple[Table, Place]


@dataclass(slots=True)
class Hanging:
    """A row and what hangs on it: `rows` parents first; `loose` are rows that stay, with the columns that referred to one."""

    rows: list[Row] = field(default_factory=list)
    loose: dict[Row, list[str]] = field(default_factory=dict)


def hanging_on(raw: RawRows, table: Table, place: Place) -> Hanging:
    """Everything that goes with a row, locked against other writers."""
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
    rows = sorted(found, key=lambda row: _ORDER[row[0]])  # those of one table stay in the order in which they were found
    return Hanging(rows, {row: columns for row, columns in loose.items() if row not in found})


def parents_of(raw: RawRows, table: Table) -> Iterator[tuple[ForeignKeyConstraint, Table]]:
    """The foreign keys of a table in this database, and what they refer to."""
    for key in table.foreign_key_constraints:
        if key.info.get("dialect", raw.word) == raw.word:
            yield key, key.referred_table


def referred(key: ForeignKeyConstraint, cells: Cells) -> Cells | None:
    """The values that the row referred to must have; None where it refers to none."""
    pairs = {element.column.name: cells.get(element.parent.name) for element in key.elements}
    return None if any(cell is None for cell in pairs.values()) else pairs


def _references_to(raw: RawRows, parent: Table) -> Iterator[ForeignKeyConstraint]:
    for table in _ORDER:
        for key, of in parents_of(raw, table):
            if of is parent:
                yield key


def _lets_go(key: ForeignKeyConstraint) -> bool:
    """A pointer to a row of another table, which may be empty, is emptied; a row that belongs to another one goes with it."""
    column = next(iter(key.columns))
    alone = len(key.columns) == 1 and key.table is not key.referred_table
    return alone and bool(column.nullable) and key.ondelete is None
