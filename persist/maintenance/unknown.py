"""Columns of persist's tables, and tables `x_…`, that persist does not know: how copies, exports and imports carry them along.

A host or the program that made a file has added them. Only values are carried, without constraints, defaults and indexes.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from sqlalchemy import Table

from persist.db.dialects.bulk import Columns, PlainColumn, Row
from persist.errors import Conflict, InvalidValue, StoreCorrupt, shown
from persist.maintenance.table_keys import key_columns
from persist.maintenance.transactions import TABLES, Session

Scoped = Callable[[Columns, list[Row]], list[Row]]
"""Gives keys the scope that they have in the target."""
Key = tuple[object, ...]

CUSTOM = "x_"
_BY_NAME = {table.name: table for table in TABLES}
_MODULUS = 2**128
_REMEDY = "leave_unknown=True (--leave-unknown) leaves it"


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


def computed_in(reading: Session) -> tuple[str, ...]:
    """The columns of these tables, by table.column, that the database computes: they have no values of their own to carry."""
    tables = reading.work.whole_tables
    names = (name for name in tables.names() if name in _BY_NAME or name.lower().startswith(CUSTOM))
    return tuple(sorted(f"{name}.{column.name}" for name in names for column in tables.columns(name, computed=True)))


def counts_of(found: Iterable[Unknown]) -> dict[str, int]:
    """How many values or rows there are, by name."""
    return {name: count for one in found for name, count in one.counts().items()}


def refuse(counts: Mapping[str, int], what: str) -> None:
    """Raise InvalidValue that names what would be lost, if anything would be."""
    lost = {name: count for name, count in counts.items() if count}
    if lost:
        units = {name: "row" if name.lower().startswith(CUSTOM) else "value" for name in lost}
        listed = ", ".join(f"{shown(name)} ({n:,} {units[name]}{'s' * (n != 1)})" for name, n in lost.items())
        raise InvalidValue("source", f"{what} cannot take what persist does not know: {listed}. {_REMEDY}. Nothing was written.")


def unknown_key(one: Unknown) -> Columns:
    """What a row of `read_unknown` begins with: its key, or nothing in a table `x_…`."""
    return () if one.known is None else key_columns(one.known)


def read_unknown(reading: Session, one: Unknown) -> Iterator[list[Row]]:
    """The key of each row with values, and then what is in the unknown columns."""
    try:
        yield from reading.bulk.read_plain(one.table, unknown_key(one), one.columns)
    except InvalidValue as error:
        raise InvalidValue(error.path, f"{error.reason} {_REMEDY}.") from None


def all_rows(reading: Session, found: Iterable[Unknown], scoped: Scoped) -> Iterator[tuple[Unknown, Iterator[list[Row]]]]:
    """Table by table, what is in the unknown columns of a whole database, with the keys that the rows have in the target."""
    for one in found:
        key = unknown_key(one)
        yield one, (scoped(key, rows) if key else rows for rows in read_unknown(reading, one))


class Carrying:
    """Carries what persist does not know into the target of a copy or an import.

    `alone`: whether the target has no rows but those of the source. `there`: the keys of earlier rows, which stay as they are.
    """

    def __init__(self, found: Sequence[Unknown], target: Session, *, leave: bool, alone: bool = True) -> None:
        self.target, self.alone = target, alone
        self.left = counts_of(found) if leave else {}
        self.found = () if leave else found
        self.there: Mapping[str, Collection[Key]] = {}
        self._names = {target.bulk.folded(name) for name in target.work.whole_tables.names()}
        refuse({name: n for one in self.found for name, n in self._misfits(one).items()}, "the target")

    def _misfits(self, one: Unknown) -> dict[str, int]:
        bulk, counts = self.target.bulk, one.counts()
        names = Counter(bulk.folded(column.name) for column in one.columns)
        types = self._types(one)

        def fits(column: PlainColumn) -> bool:
            name = bulk.folded(column.name)
            if names[name] > 1 or (one.known is not None and column.name.lower() in one.known.columns):
                return False
            if name in types:
                return bulk.may_hold(types[name], column)
            return bulk.takes_name(column.name) and bulk.type_for(column) is not None

        if one.known is None:
            return {} if bulk.takes_name(one.table) and all(map(fits, one.columns)) else counts
        return {f"{one.table}.{column.name}": column.values for column in one.columns if not fits(column)}

    def _types(self, one: Unknown) -> dict[str, str]:
        """The types of the columns that the table has in the target, by name; nothing if it has no such table."""
        if self.target.bulk.folded(one.table) not in self._names:
            return {}
        columns = self.target.work.whole_tables.columns(one.table)
        return {self.target.bulk.folded(column.name): column.type for column in columns}

    def make(self, *, again: bool = False) -> None:
        """Make the columns and tables that the target lacks. `again`: what is in them comes from an earlier attempt, and goes."""
        bulk = self.target.bulk
        for one in self.found:
            if one.known is None and bulk.folded(one.table) not in self._names:
                bulk.create_plain(one.table, one.columns)
                continue
            types = self._types(one)
            there = [column for column in one.columns if bulk.folded(column.name) in types]
            if again:
                bulk.clear_plain(one.table, there, whole=one.known is None)
            elif one.known is None and bulk.rows_of(one.table):
                raise Conflict(f"The target has a table {shown(one.table)} with rows; it must be empty.", constraint=one.table)
            bulk.add_plain(one.table, [column for column in one.columns if column not in there])

    @property
    def counts(self) -> dict[str, int]:
        """What is carried, by name."""
        return counts_of(self.found)

    def carry(self, source: Iterable[tuple[Unknown, Iterable[list[Row]]]]) -> None:
        """Write the values, read them back and compare."""
        bulk = self.target.bulk
        for one, batches in source:
            key, expected = unknown_key(one), 0
            there = self.there.get(one.table, ())
            whole = self.alone or not key
            for rows in batches:
                wanted = [self._merged(one, row) if there and row[: len(key)] in there else row for row in rows]
                bulk.write_plain(one.table, key, one.columns, wanted)
                if whole:
                    expected = _sum_with(expected, wanted)
                elif any(self._row(one, row) != repr(row) for row in wanted):
                    raise _given_back_differently(one)
            if whole:
                found = 0
                for rows in read_unknown(self.target, one):
                    found = _sum_with(found, rows)
                if found != expected:
                    raise _given_back_differently(one)

    def _merged(self, one: Unknown, row: Row) -> Row:
        """What an earlier row has, and what it lacks. Raises Conflict if it has something else."""
        key = unknown_key(one)
        for (found,) in self.target.bulk.read_plain(one.table, key, one.columns, at=row[: len(key)]):
            for column, ours, theirs in zip(one.columns, found[len(key) :], row[len(key) :], strict=True):
                if ours is not None and theirs is not None and repr(ours) != repr(theirs):
                    named = ", ".join(map(repr, row[: len(key)]))
                    raise Conflict(
                        f"{one.table}: the row {named} has another value in {shown(column.name)}. Nothing was written.",
                        constraint=one.table,
                    )
            return tuple([theirs if ours is None else ours for ours, theirs in zip(found, row, strict=True)])
        return row

    def _row(self, one: Unknown, row: Row) -> str:
        key = unknown_key(one)
        batches = self.target.bulk.read_plain(one.table, key, one.columns, at=row[: len(key)])
        return "".join(repr(found) for batch in batches for found in batch)


def _given_back_differently(one: Unknown) -> StoreCorrupt:
    return StoreCorrupt(one.table, "the target gives back other values than were written. Nothing was kept.")


def _sum_with(total: int, rows: Sequence[Row]) -> int:
    hashes = (int.from_bytes(blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()) for row in rows)
    return (total + sum(hashes)) % _MODULUS
