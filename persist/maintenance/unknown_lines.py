"""What persist does not know, in the lines of an export: its declaration in the header, and lines of their own after all rows.

"unknown": [{"table": "…", "rows": 0, "columns": [{"name": "…", "kind": "text", "values": 2, "declared": null}]}]
{"table": "…", "unknown": {"id": "…", "…": "…"}}

A line of a table of persist begins with the key of its row. `persist.db.dialects.plain_values.PlainColumn` says what a kind is.
"""

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from persist.db.dialects.bulk import Row
from persist.db.dialects.plain_values import KINDS, PlainColumn
from persist.errors import InvalidValue
from persist.maintenance.lines import LineReader, LineWriter, value_of
from persist.maintenance.transactions import TABLES
from persist.maintenance.unknown import CUSTOM, Unknown, unknown_key
from persist.quoting import shown

_BY_NAME = {table.name: table for table in TABLES}
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
    if isinstance(value, bytes | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    return {"float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value
