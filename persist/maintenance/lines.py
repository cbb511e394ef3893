"""The JSON Lines format of an export (docs/moving.md), and what is carried along unknown to persist: columns, tables `x_…`.

Values are in the published form, in which a JSON column is text. Version 2 has columns or tables that persist does not know, so
that an older persist, which would lose them, refuses the export.
"""

import base64
import binascii
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from itertools import groupby
from typing import IO, Any

import orjson
from sqlalchemy import Column, Float, LargeBinary

from persist.db.dialects.bulk import KINDS, Columns, PlainColumn, Row, converted
from persist.db.formats import Step, form_of
from persist.db.schema.instants import EpochReal
from persist.db.values.clock import as_utc, iso_ms
from persist.errors import InvalidValue, shown
from persist.maintenance.unknown_columns import BY_NAME, CUSTOM, Unknown, unknown_key
from persist.schema.metadata import HEAD, REVISIONS

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
    if not isinstance(name, str) or not (name in BY_NAME or name.lower().startswith(CUSTOM)):
        raise lines.wrong(f"unknown: there is no table {shown(name)}.")
    if not _is_count(rows) or not isinstance(columns, list) or not columns:
        raise lines.wrong(f"unknown: expected a number of rows, and columns, of {shown(name)}.")
    one = Unknown(name, BY_NAME.get(name), tuple(_plain_column(lines, column) for column in columns), rows)
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
