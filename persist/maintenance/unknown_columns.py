"""What a database holds that persist does not know, columns and tables `x_…`: found, carried along, or refused by name."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b

from sqlalchemy import Table

from persist.db.dialects.bulk import Columns, PlainColumn, Row
from persist.db.dialects.interface import StoredColumn
from persist.errors import Conflict, InvalidValue, StoreCorrupt, shown
from persist.maintenance.table_keys import key_columns
from persist.maintenance.transactions import TABLES, Session

Scoped = Callable[[Columns, list[Row]], list[Row]]
"""Gives keys the scope that they have in the target."""
Key = tuple[object, ...]

CUSTOM = "x_"
BY_NAME = {table.name: table for table in TABLES}
_MODULUS = 2**128
_REMEDY = "leave_unknown=True (--leave-unknown) leaves it"
_NOTHING = "Nothing was written."
_NO_NULL = "Its column has to have a value, and rows of the source have none."
_DEFAULT = "Its column gives each new row a default, where rows of the source have no value."


@dataclass(frozen=True, slots=True)
class Unknown:
    """The unknown columns with values of one table. `known`: the table itself, unless it is one of a host's `x_…`."""

    table: str
    known: Table | None
    columns: tuple[PlainColumn, ...]
    rows: int

    def counts(self) -> dict[str, int]:
        """How many values there are by table.column, or how many rows of a table `x_…`."""
        return {self.table: self.rows} if self.known is None else _values(self, self.columns)


def _values(one: Unknown, columns: Iterable[PlainColumn]) -> dict[str, int]:
    """How many values there are by table.column."""
    return {f"{one.table}.{column.name}": column.values for column in columns}


def unknown_in(reading: Session) -> list[Unknown]:
    """What the database holds that persist does not know."""
    names = reading.work.whole_tables.names()
    found = []
    for name in sorted(names):
        table = BY_NAME.get(name)
        if table is None and not name.lower().startswith(CUSTOM):
            continue
        known = frozenset() if table is None else frozenset(column.name.lower() for column in table.columns)
        plain = reading.bulk.plain_columns(name)
        columns = [one for one in plain if one.name.lower() not in known and (table is None or one.values)]
        if columns:
            found.append(Unknown(name, table, tuple(columns), reading.bulk.rows_of(name) if table is None else 0))
    return found


def computed_in(reading: Session) -> tuple[str, ...]:
    """The columns of these tables, by table.column, that the database computes: they have no values of their own to carry."""
    tables = reading.work.whole_tables
    names = (name for name in tables.names() if name in BY_NAME or name.lower().startswith(CUSTOM))
    return tuple(sorted(f"{name}.{column.name}" for name in names for column in tables.columns(name, computed=True)))


def counts_of(found: Iterable[Unknown]) -> dict[str, int]:
    """How many values or rows there are, by name."""
    return {name: count for one in found for name, count in one.counts().items()}


def refuse(counts: Mapping[str, int], what: str, why: str = "", done: str = _NOTHING) -> None:
    """Raise InvalidValue that names what would be lost, if anything would be. `why` and `done`, what was written: sentences."""
    lost = {name: count for name, count in counts.items() if count}
    if lost:
        units = {name: "row" if name.lower().startswith(CUSTOM) else "value" for name in lost}
        listed = ", ".join(f"{shown(name)} ({n:,} {units[name]}{'s' * (n != 1)})" for name, n in lost.items())
        refused = f"{what} cannot take what persist does not know: {listed}."
        raise InvalidValue("source", " ".join(filter(None, (refused, why, f"{_REMEDY}.", done))))


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
    `done`: what an error says of what was written.
    """

    def __init__(
        self, found: Sequence[Unknown], target: Session, *, leave: bool, alone: bool = True, done: str = _NOTHING
    ) -> None:
        self.target, self.alone, self._done = target, alone, done
        self.left = counts_of(found) if leave else {}
        self.found = () if leave else found
        self.there: Mapping[str, Collection[Key]] = {}
        self._names = {target.bulk.folded(name) for name in target.work.whole_tables.names()}
        self._already = {one.table: self._stored(one) for one in self.found}
        """The columns that the target had before, as it knows them, by table."""
        self._refuse({name: n for one in self.found for name, n in self._misfits(one).items()})

    def _refuse(self, counts: Mapping[str, int], why: str = "") -> None:
        refuse(counts, "the target", why, self._done)

    def _misfits(self, one: Unknown) -> dict[str, int]:
        bulk, counts = self.target.bulk, one.counts()
        names = Counter(bulk.folded(column.name) for column in one.columns)
        stored, computed = self._already[one.table], self._stored(one, computed=True)

        def fits(column: PlainColumn) -> bool:
            name = bulk.folded(column.name)
            if names[name] > 1 or column in computed or (one.known is not None and column.name.lower() in one.known.columns):
                return False
            if column in stored:
                loaded = one.known is None or stored[column].has_default or not stored[column].not_null  # without it, at first
                return loaded and bulk.may_hold(stored[column].type, column)
            return bulk.takes_name(column.name) and bulk.type_for(column) is not None

        if one.known is None:
            return {} if bulk.takes_name(one.table) and all(map(fits, one.columns)) else counts
        return _values(one, (column for column in one.columns if not fits(column)))

    def _stored(self, one: Unknown, *, computed: bool = False) -> dict[PlainColumn, StoredColumn]:
        """The columns that the table has in the target; nothing if it has no such table."""
        if self.target.bulk.folded(one.table) not in self._names:
            return {}
        columns = self.target.work.whole_tables.columns(one.table, computed=computed)
        names = {self.target.bulk.folded(column.name): column for column in columns}
        found = ((column, names.get(self.target.bulk.folded(column.name))) for column in one.columns)
        return {column: stored for column, stored in found if stored is not None}

    def fill_from(self, rows_of: Callable[[str], int]) -> None:
        """Refuse columns that were in the target and would keep another value than the source's, by its number of rows a table.

        A row without a value there has NULL here, unless the column refuses NULL or, in a target with other rows, has a default.
        """
        for one in (one for one in self.found if one.known is not None):
            rows = rows_of(one.table)
            gaps = {column: stored for column, stored in self._already[one.table].items() if column.values < rows}
            self._refuse(_values(one, (column for column, stored in gaps.items() if stored.not_null)), _NO_NULL)
            if not self.alone:
                self._refuse(_values(one, (column for column, stored in gaps.items() if stored.has_default)), _DEFAULT)

    @contextmanager
    def _named(self, one: Unknown) -> Iterator[None]:
        """Name what the target refuses: only columns and tables that it had already have rules of their own."""
        try:
            yield
        except (Conflict, InvalidValue) as error:
            already = self._already[one.table]
            said = [column for column in already if column.name in str(error)] or already
            self._refuse(one.counts() if one.known is None else _values(one, said), f"It says: {error}")
            raise

    def make(self, *, again: bool = False) -> None:
        """Make the columns and tables that the target lacks. `again`: what is in them comes from an earlier attempt, and goes."""
        bulk = self.target.bulk
        for one in self.found:
            if one.known is None and bulk.folded(one.table) not in self._names:
                bulk.create_plain(one.table, one.columns)
                continue
            if again and one.known is None:
                bulk.clear_plain(one.table)
            elif one.known is None and bulk.rows_of(one.table):
                raise Conflict(f"The target has a table {shown(one.table)} with rows; it must be empty.", constraint=one.table)
            bulk.add_plain(one.table, [column for column in one.columns if column not in self._already[one.table]])

    @property
    def counts(self) -> dict[str, int]:
        return counts_of(self.found)

    def carry(self, source: Iterable[tuple[Unknown, Iterable[list[Row]]]]) -> None:
        """Write the values, read them back and compare."""
        bulk = self.target.bulk
        for one, batches in source:
            key, expected = unknown_key(one), 0
            there = self.there.get(one.table, ())
            whole = self.alone or not key
            if self.alone and key:  # what loaded rows were given by defaults, and what an earlier attempt wrote
                already = self._already[one.table].items()
                bulk.clear_plain(one.table, [column for column, stored in already if not stored.not_null])
            for rows in batches:
                wanted = [self._merged(one, row) if there and row[: len(key)] in there else row for row in rows]
                with self._named(one):
                    bulk.write_plain(one.table, key, one.columns, wanted)
                if whole:
                    expected = _sum_with(expected, wanted)
                elif any(self._row(one, row) != repr(row) for row in wanted):
                    raise _given_back_differently(one)
            if whole and reduce(_sum_with, read_unknown(self.target, one), 0) != expected:
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
