"""Checksums of tables: equal for two databases with equal rows, whatever their dialects and storage formats."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson
from sqlalchemy import Column

from persist.db.dialects.bulk import Columns, Row, converted
from persist.db.formats import Form, Step, form_of
from persist.db.schema.scope_columns import scope_of
from persist.errors import InvalidValue

_BYTES = 16
_MAX_TEXT = 4096
_MODULUS = 2 ** (8 * _BYTES)


class Checksum:
    """The sum of the hashes of a table's rows, which does not depend on their order, or on columns `of_this_database`.

    `own`: the scope ids for rows that are stored with an empty scope column, because they belong to the file itself.
    `raw`: the rows have the values stored in a file, which may be unreadable; otherwise rows are in the published form.
    """

    def __init__(self, columns: Columns, own: Mapping[str, str], *, raw: bool = False) -> None:
        self.rows = 0
        self.bytes = 0
        self._sum = 0
        self._columns = columns
        self._steps = [_step(column, own, raw) for column in columns]

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows to the sum. InvalidValue names the table, column and row of invalid JSON."""
        self.add_texts(self.texts(rows))

    def texts(self, rows: Sequence[Row]) -> list[bytes]:
        """Return what is hashed of each row: it is equal for two databases with the same row."""
        return [orjson.dumps(row) for row in converted(rows, self._columns, self._steps)]

    def add_texts(self, texts: Sequence[bytes]) -> None:
        total = self._sum
        for text in texts:
            self.bytes += len(text)
            total += int.from_bytes(blake2b(text, digest_size=_BYTES).digest())
        self._sum = total % _MODULUS
        self.rows += len(texts)

    def __str__(self) -> str:
        return f"{self._sum:0{2 * _BYTES}x}"


def _step(column: Column[Any], own: Mapping[str, str], raw: bool) -> Step | None:
    if column.info.get("of_this_database"):
        return lambda _: None
    form, scope = form_of(column), scope_of(column)
    if scope is not None and scope in own:
        mine = own[scope]
        return lambda stored: stored or mine
    logical = _lenient(form) if raw else form.logical
    if not raw and not form.large:
        return logical
    return lambda value: _short(value if logical is None else logical(value))


def _lenient(form: Form) -> Step:
    checked, logical = form.checked, form.logical

    def step(value: Any) -> Any:
        try:
            right = checked(value)
            return right if logical is None else logical(right)
        except InvalidValue:
            return value

    return step


def _short(value: Any) -> Any:
    """Replace bytes and long text by their hash: the JSON encoder would need eight times their size in memory."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else blake2b(value.encode("utf-8", "surrogatepass")).hexdigest()
    return blake2b(value).hexdigest() if isinstance(value, bytes) else value
