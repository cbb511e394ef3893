"""Columns of persist's tables, and tables `x_…`, that persist does not know: what they hold, and how a copy carries them along.

A host or the program that made a file has added them. Only values are carried, without constraints, defaults and indexes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from sqlalchemy import Table

from persist.db.dialects.bulk import Bulk, Columns, Row
from persist.db.dialects.plain_values import PlainColumn
from persist.errors import Conflict, InvalidValue, StoreCorrupt
from persist.maintenance.table_keys import key_columns
from persist.maintenance.transactions import TABLES, Session
from persist.quoting import shown

Scoped = Callable[[Columns, list[Row]], list[Row]]
"""Gives keys the scope that they have in the target."""

CUSTOM = "x_"
_BY_NAME = {table.name: table for table in TABLES}
_MODULUS = 2**128


@dataclass(frozen=True, slots=True)
class Unknown:
    """The unknown columns with values of one table. `known`: the table itself, unless it is one of a host's `x_…`."""

    table: str
    known: Table | None
    columns: tuple[PlainColumn, ...]
    rows: int

    def counts(self) -> dict[str, int]:
        """How many values there are by table.column, or how many rows of a table `x_…`."""
        return {self.table: self.rows} if self.known is None else {f"{self.table}.{one.name}": one.values for one in self.columns}


def unknown_in(reading: Session) -> list[Unknown]:
    """What the database holds that persist does not know."""
    names = reading.work.whole_tables.names()
    found = []
    for name in sorted(names):
        table = _BY_NAME.get(name)
        if table is None and not name.lower().startswith(CUSTOM):
            continue
        known = frozenset() if table is None else frozenset(column.name.lower() for column in table.columns)
        columns = [one for one in reading.bulk.plain_columns(name) if one.name.lower() not in known]
        columns = [one for one in columns if table is None or one.values]
        if columns:
            found.append(Unknown(name, table, tuple(columns), reading.bulk.rows_of(name) if table is None else 0))
    return found


def counts_of(found: Iterable[Unknown]) -> dict[str, int]:
    """How many values or rows there are, by name."""
    return {name: count for one in found for name, count in one.counts().items()}


def refuse(counts: Mapping[str, int], what: str) -> None:
    """Raise InvalidValue that names what would be lost, if anything would be."""
    lost = {name: count for name, count in counts.items() if count}
    if lost:
        units = {name: "row" if name.lower().startswith(CUSTOM) else "value" for name in lost}
        listed = ", ".join(f"{shown(name)} ({n:,} {units[name]}{'s' * (n != 1)})" for name, n in lost.items())
        remedy = "leave_unknown=True (--leave-unknown) leaves it"
        raise InvalidValue("source", f"{what} cannot take what persist does not know: {listed}. {remedy}. Nothing was written.")


class Carrying:
    """Carries what persist does not know from a source into the empty target of a copy."""

    def __init__(self, source: Session, target: Session, scoped: Scoped, *, leave: bool) -> None:
        self.source, self.target, self.scoped = source, target, scoped
        found = unknown_in(source)
        self.left = counts_of(found) if leave else {}
        self.found = [] if leave else found
        refuse({name: n for one in self.found for name, n in self._misfits(one).items()}, "the target")

    def _fits(self, column: PlainColumn) -> bool:
        return self.target.bulk.type_for(column) is not None

    def _misfits(self, one: Unknown) -> dict[str, int]:
        counts = one.counts()
        if one.known is None:
            return {} if all(map(self._fits, one.columns)) else counts
        return {f"{one.table}.{column.name}": column.values for column in one.columns if not self._fits(column)}

    def make(self, *, again: bool = False) -> None:
        """Make the columns and tables in the target. `again`: what is in them comes from an earlier attempt, and goes."""
        names = self.target.work.whole_tables.names()
        for one in self.found:
            if again and one.table in names:
                self.target.bulk.clear_plain(one.table, self._there(one), whole=one.known is None)
            if one.known is None and one.table in names:
                if again:
                    continue
                raise Conflict(f"The target has a table {shown(one.table)} already; it must be empty.", constraint=one.table)
            if one.known is None:
                self.target.bulk.create_plain(one.table, one.columns)
            else:
                there = self._there(one)
                self.target.bulk.add_plain(one.table, [column for column in one.columns if column not in there])

    def _there(self, one: Unknown) -> list[PlainColumn]:
        names = {column.name for column in self.target.work.whole_tables.columns(one.table)}
        return [column for column in one.columns if column.name in names]

    @property
    def counts(self) -> dict[str, int]:
        """What is carried, by name."""
        return counts_of(self.found)

    def carry(self) -> None:
        """Write the values, read them back and compare."""
        for one in self.found:
            key = () if one.known is None else key_columns(one.known)
            expected = 0
            for rows in self._rows(self.source.bulk, one):
                expected = _added(expected, rows)
                self.target.bulk.write_plain(one.table, key, one.columns, rows)
            found = 0
            for rows in self._rows(self.target.bulk, one):
                found = _added(found, rows)
            if found != expected:
                raise StoreCorrupt(one.table, "the target gives back other values than were written. Nothing was kept.")

    def _rows(self, bulk: Bulk, one: Unknown) -> Iterator[list[Row]]:
        """The key of each row, as the target has it, and then what is in the unknown columns."""
        key = () if one.known is None else key_columns(one.known)
        for rows in bulk.read_plain(one.table, key, one.columns):
            yield self.scoped(key, rows) if bulk is self.source.bulk and key else rows


def _added(total: int, rows: Sequence[Row]) -> int:
    hashes = (int.from_bytes(blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()) for row in rows)
    return (total + sum(hashes)) % _MODULUS
