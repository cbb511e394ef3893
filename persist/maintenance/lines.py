"""The JSON Lines format of an export: a header, one line per row, and a last line with row counts and a checksum.

{"format": "persist-export", "version": 1, "revision": "…", "database": "…", "exported_at": "…", "session_id": null, "scopes": {}}
{"table": "…", "row": {"id": "…", "data_json": "{…}", "blob": {"base64": "…"}}}
{"end": {"tables": {"…": 1}, "highest": {}, "checksum": "sha256 of everything before"}}

Values are in the published form, in which a JSON column is text. An export with columns or tables that persist does not know is
of version 2, so that a persist which would not keep them refuses it: `persist.maintenance.unknown_lines` says how it has them.
"""

import base64
import binascii
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import IO, Any

import orjson
from sqlalchemy import Column, Float, LargeBinary

from persist.db.dialects.bulk import Columns, Row, converted
from persist.db.formats.published import Step, form_of
from persist.db.schema.column_types import EpochReal
from persist.db.values.clock import as_utc, iso_ms
from persist.errors import InvalidValue
from persist.quoting import shown
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
        """Write the header, which is the first line."""
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
    if isinstance(column.type, LargeBinary):
        return lambda value: {"base64": base64.b64encode(value).decode()}
    if isinstance(column.type, EpochReal | Float):  # JSON has no infinity
        return lambda value: value if math.isfinite(value) else {"float": repr(value)}
    return form_of(column).to_file


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
