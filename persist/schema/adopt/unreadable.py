"""Finds values that persist cannot read or would read as another value, by reading every row once."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from json import loads
from typing import Any

from sqlalchemy import Table, select, type_coerce
from sqlalchemy.types import NullType

from persist.db.dialects.interface import Dialect
from persist.db.operations.adopting import Takeover
from persist.db.schema.column_types import IsoMs, Json, SqlSeconds
from persist.db.schema.instants import Instant
from persist.db.unreadable.conditions import instant_reader, json_reader
from persist.db.values.json import INT_MAX, INT_MIN

UNREADABLE_JSON = "text that is no JSON"
DIGITS_LOST = "integers beyond 64 bits, which are read as floats"
DIGITS_LOST_BEFORE = "numbers so large that the file has kept them as floats"
UNREADABLE_INSTANT = "values that are no instants"
OTHER_FORMAT = "instants in another format than the rest, which do not sort among them"

_AS_TEXT = (IsoMs, SqlSeconds)
_MANY_DIGITS = re.compile(r"\d{19}")
_LARGE = 2.0**63

Reader = Callable[[Any], str | None]


def look_through(takeover: Takeover, dialect: Dialect, tables: Sequence[Table]) -> None:
    """Add a notice to the report for each kind of problem in each column."""
    for table in tables:
        readers = {column: _reader(column.type, dialect) for column in table.columns}
        columns = [(column, reader) for column, reader in readers.items() if reader is not None]
        if not columns:
            continue
        wrong: Counter[tuple[str, str]] = Counter()
        raw = select(*[type_coerce(column, NullType()) for column, _ in columns])
        for row in takeover.connection.execute(raw, execution_options={"yield_per": 500}):
            for (column, reader), value in zip(columns, row, strict=True):
                said = None if value is None else reader(value)
                if said is not None:
                    wrong[column.name, said] += 1
        for (name, message), count in sorted(wrong.items()):
            takeover.notice(f"{table.name}.{name}", message, count)


def _reader(type: Any, dialect: Dialect) -> Reader | None:
    if isinstance(type, Json):
        return _json
    if isinstance(type, Instant):
        words, readable = dialect.connections.writer.dialect, instant_reader(type)
        stored = type.storing(words) if isinstance(type, _AS_TEXT) else None
        read = type.reading(words)

        def instant(value: Any) -> str | None:
            if readable(value) is not None:
                return UNREADABLE_INSTANT
            return OTHER_FORMAT if stored is not None and stored(read(value)) != value else None

        return instant
    return None


def _json(value: Any) -> str | None:
    if isinstance(value, int):
        return None
    if isinstance(value, float):
        return DIGITS_LOST_BEFORE if math.isinf(value) or abs(value) >= _LARGE else None
    try:
        if json_reader(value) is None:
            return DIGITS_LOST if _MANY_DIGITS.search(value) and _beyond(value) else None
    except (TypeError, ValueError, RecursionError):  # bytes, or text that only the fast decoder accepts
        pass
    return UNREADABLE_JSON


def _beyond(text: str) -> bool:
    """Whether the text contains an integer that the fast decoder would convert to a float."""
    found = []

    def whole(digits: str) -> int:
        if len(digits) > 20 or not INT_MIN <= int(digits) <= INT_MAX:
            found.append(digits)
        return 0

    loads(text, parse_int=whole)
    return bool(found)
