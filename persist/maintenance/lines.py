"""The JSON Lines format of an export (docs/moving.md), and what is carried along unknown to persist: columns, tables `x_…`.

Values are in the published form, in which a JSON column is text. Version 2 has columns or tables that persist does not know, so
that an older persist, which would lose them, refuses the export.
"""

import base64
import binascii
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from hashlib import blake2b, sha256
from itertools import groupby
from typing import IO, Any

import orjson
from sqlalchemy import Column, Float, LargeBinary, Table

from persist.db.dialects.bulk import KINDS, Columns, PlainColumn, Row, converted
from persist.db.formats import Step, form_of
from persist.db.schema.instants import EpochReal
from persist.db.values.clock import as_utc, iso_ms
from persist.errors import Conflict, InvalidValue, StoreCorrupt, shown
from persist.maintenance.table_keys import key_columns
from persist.maintenance.transactions import TABLES, Session
from persist.schema.metadata import HEAD, REVISIONS

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
        plain = reading.bulk.plain_columns(name)
        columns = [one for one in plain if one.name.lower() not in known and (table is None or one.values)]
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


FORMAT, VERSION, WITH_UNKNOWN = "persist-export", 1, 2


class LineWriter:
    """Writes the lines of an export, counts the rows of each table and computes the checksum."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._sum = stream, sha256()
        self.tables: dict[str, int] = {}

    def header(
        self,
        *,
        database: str,
        at: datetime,
        session_id: str | None,
        scopes: Mapping[str, str],
        unknown: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        version = WITH_UNKNOWN if unknown else VERSION
        said = {"format": FORMAT, "version": version, "revision": HEAD, "database": database}
        said |= {"exported_at": iso_ms(as_utc("clock", at)), "session_id": session_id, "scopes": dict(scopes)}
        self._line({**said, "unknown": list(unknown)} if unknown else said)

    def rows(self, columns: Columns, rows: Sequence[Row]) -> None:
        """Write one line for each row. All rows are of the one table that `columns` belong to."""
        table, names = str(columns[0].table.name), [str(column.name) for column in columns]
        for row in converted(rows, columns, [_written(column) for column in columns]):
            self._line({"table": table, "row": dict(zip(names, row, strict=True))})
        if rows:
            self.tables[table] = self.tables.get(table, 0) + len(rows)

    def unknown(self, table: str, values: Mapping[str, Any]) -> None:
        """Write what persist does not know of a row, or a row of a table that it does not know."""
        self._line({"table": table, "unknown": values})

    def end(self, highest: Mapping[str, int]) -> None:
        """Write the last line. `highest`: by table, the highest integer key that was ever assigned."""
        self._line({"end": {"tables": self.tables, "highest": dict(highest), "checksum": self._sum.hexdigest()}})

    def _line(self, value: object) -> None:
        text = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
        self._sum.update(text)
        self._stream.write(text)


class LineReader:
    """Reads the lines of an export and counts them. An InvalidValue names the line that is wrong."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._sum = stream, sha256()
        self.number = self.bytes = 0
        self._first_unknown: dict[str, Any] | None = None
        self.counts: dict[str, int] = {}
        self.highest: dict[str, int] = {}
        self.header = self._header()

    def wrong(self, reason: str) -> InvalidValue:
        """Return an InvalidValue that names the current line."""
        return InvalidValue(f"line {self.number}", reason)

    def row(self) -> tuple[str, dict[str, Any]] | None:
        """Return the next table name and row. None after the last row: without lines of `unknown` the end has been verified."""
        line = self._row_or_end()
        if line is None:
            return None
        if "unknown" in line:
            self._first_unknown = line
            return None
        table, row = line.get("table"), line.get("row")
        if not isinstance(table, str) or not isinstance(row, dict) or not row:
            raise self.wrong('expected {"table": …, "row": {…}}.')
        self.counts[table] = self.counts.get(table, 0) + 1
        return table, row

    def unknown(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what follows the rows, each with its table: what persist does not know. At its end the end has been verified."""
        line, self._first_unknown = self._first_unknown, None
        while line is not None:
            table, values = line.get("table"), line.get("unknown")
            if not isinstance(table, str) or not isinstance(values, dict) or not values:
                raise self.wrong('expected {"table": …, "unknown": {…}}.')
            yield table, values
            line = self._row_or_end()

    def _row_or_end(self) -> dict[str, Any] | None:
        """Return the next line; None for the last one, when counts and checksum have been verified."""
        before = self._sum.hexdigest()
        line = self._next()
        if line is None:
            raise self.wrong("the file ends before its last line; it is not whole.")
        if "end" not in line:
            return line
        self._end(line["end"], before)
        return None

    def _header(self) -> dict[str, Any]:
        header = self._next() or {}
        if header.get("format") != FORMAT:
            raise InvalidValue("line 1", "it is no export of persist.")
        if header.get("version") not in (VERSION, WITH_UNKNOWN):
            read = f"{VERSION} and {WITH_UNKNOWN}"
            raise self.wrong(f"version {shown(header.get('version'))} of the format is unknown; this persist reads {read}.")
        if header.get("revision") not in REVISIONS:
            raise self.wrong(f"it was exported at revision {shown(header.get('revision'))}, and this persist knows up to {HEAD}.")
        scopes = header.setdefault("scopes", {})
        if not isinstance(scopes, dict) or not all(isinstance(id, str) for id in scopes.values()):
            raise self.wrong("scopes: expected ids by scope.")
        if not isinstance(header.get("session_id"), str | None):
            raise self.wrong("session_id: expected an id or null.")
        return header

    def _end(self, end: Any, checksum: str) -> None:
        if not isinstance(end, dict) or end.get("tables") != self.counts:
            raise self.wrong("the rows are not as many as the last line says; the file is not whole.")
        if end.get("checksum") != checksum:
            raise self.wrong("the checksum does not fit; the file was changed.")
        if self._next() is not None:
            raise self.wrong("there is more after the last line.")
        highest = end.get("highest", {})
        if not isinstance(highest, dict) or any(type(value) is not int or abs(value) >= 2**63 for value in highest.values()):
            raise self.wrong("highest: expected a number for each table.")
        self.highest = highest

    def _next(self) -> dict[str, Any] | None:
        text = self._stream.readline()
        if not text:
            return None
        self.number += 1
        self.bytes += len(text)
        self._sum.update(text)
        try:
            line = orjson.loads(text)
        except orjson.JSONDecodeError:
            raise self.wrong("it is no JSON." if text.endswith(b"\n") else "it is cut off.") from None
        if not isinstance(line, dict):
            raise self.wrong("expected a JSON object.")
        return line


def _written(column: Column[Any]) -> Step | None:
    return _in_line if isinstance(column.type, LargeBinary | EpochReal | Float) else form_of(column).to_file


def value_of(written: Any) -> Any:
    """Decode a value of a line into its published form. Raises InvalidValue for an unknown object."""
    if not isinstance(written, dict):
        return written
    try:
        if written.keys() == {"base64"}:
            return base64.b64decode(written["base64"], validate=True)
        if written.keys() == {"float"}:
            return float(written["float"])
    except (binascii.Error, ValueError, TypeError):
        pass
    raise InvalidValue("", "expected a value, found an object.")


# What persist does not know, in the lines of an export: its declaration in the header, and lines of their own after all rows.
# A line of a table of persist begins with the key of its row. `persist.db.dialects.bulk.PlainColumn` says what a kind is.

_ROWS = 500
_KEY = "key"


def declaration(found: Sequence[Unknown]) -> list[dict[str, Any]]:
    """What the header says of it."""
    return [
        {
            "table": one.table,
            "rows": one.rows,
            "columns": [{"name": c.name, "kind": c.kind, "values": c.values, "declared": c.declared} for c in one.columns],
        }
        for one in found
    ]


def write_unknown(writer: LineWriter, one: Unknown, rows: Sequence[Row]) -> None:
    """Write a line for each row: its key, and the values."""
    names = [*(str(column.name) for column in unknown_key(one)), *(column.name for column in one.columns)]
    for row in rows:
        writer.unknown(one.table, dict(zip(names, map(_in_line, row), strict=True)))


def unknown_declared(lines: LineReader) -> list[Unknown]:
    """What the header declares. Raises InvalidValue if that is nothing which an export says."""
    said = lines.header.get("unknown")
    if not isinstance(said, list | None):
        raise lines.wrong("unknown: expected a list.")
    found = [_unknown_of(lines, one) for one in said or ()]
    if len({one.table for one in found}) < len(found):
        raise lines.wrong("unknown: it names a table twice.")
    return found


def _unknown_of(lines: LineReader, said: Any) -> Unknown:
    said = said if isinstance(said, dict) else {}
    name, rows, columns = said.get("table"), said.get("rows"), said.get("columns")
    if not isinstance(name, str) or not (name in _BY_NAME or name.lower().startswith(CUSTOM)):
        raise lines.wrong(f"unknown: there is no table {shown(name)}.")
    if not _is_count(rows) or not isinstance(columns, list) or not columns:
        raise lines.wrong(f"unknown: expected a number of rows, and columns, of {shown(name)}.")
    one = Unknown(name, _BY_NAME.get(name), tuple(_plain_column(lines, column) for column in columns), rows)
    names = {column.name for column in one.columns}
    if len(names) < len(columns) or names & {column.name for column in unknown_key(one)}:
        raise lines.wrong(f"unknown: {shown(name)} has a column twice.")
    return one


def _plain_column(lines: LineReader, said: Any) -> PlainColumn:
    said = said if isinstance(said, dict) else {}
    name, kind, values, type = (said.get(key) for key in ("name", "kind", "values", "declared"))
    if not isinstance(name, str) or kind not in KINDS or not _is_count(values) or not isinstance(type, str | None):
        raise lines.wrong("unknown: expected the name, kind, number of values and declared type of a column.")
    return PlainColumn(name, kind, values, type)


def unknown_rows(lines: LineReader, found: Sequence[Unknown]) -> Iterator[tuple[Unknown, Iterator[list[Row]]]]:
    """Table by table, what `write_unknown` wrote, in batches, with the keys as the exported database had them."""
    left = {one.table: one for one in found}
    for table, group in groupby(lines.unknown(), key=lambda line: line[0]):
        one = left.pop(table, None)
        if one is None:
            raise lines.wrong(f"the first line does not say that {shown(table)} has what persist does not know.")
        yield one, _batches_of_lines(lines, one, (values for _, values in group))


def _batches_of_lines(lines: LineReader, one: Unknown, found: Iterator[Mapping[str, Any]]) -> Iterator[list[Row]]:
    key = [str(column.name) for column in unknown_key(one)]
    names = {*key, *(column.name for column in one.columns)}
    batch: list[Row] = []
    for values in found:
        if values.keys() != names:
            raise lines.wrong(f"expected a value for each of {', '.join(map(shown, sorted(names)))}.")
        keys = [_value_of_line(lines, one, name, _KEY, values[name]) for name in key]
        row = [_value_of_line(lines, one, column.name, column.kind, values[column.name]) for column in one.columns]
        batch.append((*keys, *row))
        if len(batch) == _ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _value_of_line(lines: LineReader, one: Unknown, name: str, kind: str, written: Any) -> Any:
    try:
        value = value_of(written)
    except InvalidValue as error:
        raise lines.wrong(f"{one.table}.{name}: {error.reason}") from None
    if value is not None and not _is_of_kind(value, kind):
        raise lines.wrong(f"{one.table}.{name}: the value is none of those that the first line declares.")
    return value


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_of_kind(value: Any, kind: str) -> bool:
    if type(value) is int:
        return kind in ("integer", "any", _KEY) and -(2**63) <= value < 2**63
    if isinstance(value, str):
        return kind == "any" or (kind in ("text", _KEY) and "\0" not in value)
    return kind in ("any", "bytes") if isinstance(value, bytes) else isinstance(value, float) and kind in ("any", "real", "nan")


def _in_line(value: Any) -> Any:
    """A value as JSON has it, which has neither bytes nor infinity."""
    if isinstance(value, bytes | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    return {"float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value
