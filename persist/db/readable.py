"""Whether persist can build a value from what a column holds, which another program or a damaged disk may have written.

What is looked at is the value as a SQLite file keeps it, read without a column type. A server gives the same forms, see
`persist.db.dialects.raw_rows`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sqlalchemy import Column, Float, Integer, LargeBinary
from sqlalchemy.dialects.sqlite.base import SQLiteDialect

from persist.db.escape import utf8_size
from persist.db.json import decode
from persist.db.shapes import Shape, any_value, word_of
from persist.db.times import Instant
from persist.db.types import Body, Flag, Json, Label, Vocabulary, is_indexed

Reader = Callable[[Any], str | None]
"""Of a value that is not NULL: what it is not, such as "no instant"; None where it can be read."""

log = logging.getLogger("persist")

NOT_UTF8 = "text that is not UTF-8"
_FILE = SQLiteDialect()


class BadText(bytes):
    """Stored text that is not UTF-8."""


def text_or_bad(stored: bytes) -> str | BadText:
    """For drivers that ask how text is to be made of bytes."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return BadText(stored)


def reader_of(column: Column[Any], shape: Shape | None = None) -> Reader:
    """By the column's type, and then by the shape that its domain wants."""
    kind = column.type
    if isinstance(kind, Vocabulary) and shape is None:
        shape = word_of(kind.words)
    plain = _label_reader(column, kind) if isinstance(kind, Label) else _plain_reader(kind)
    if shape is None or shape is any_value:
        return plain
    wanted, read = shape, decode if isinstance(kind, Json) else _as_is
    return lambda value: plain(value) or wanted(read(value))


def _as_is(value: Any) -> Any:
    return value


def _plain_reader(kind: Any) -> Reader:
    if isinstance(kind, Instant):
        return instant_reader(kind)
    return next(reader for types, reader in _READERS if isinstance(kind, types))


def bindable(column: Column[Any], keys: Iterable[str]) -> Iterator[str]:
    """Those of the stored keys that a statement can name again; a sweep leaves the others out, and says so."""
    reader = reader_of(column)
    for key in keys:
        if (reason := reader(key)) is None:
            yield key
        else:
            log.warning("a row of %s is left out, %s: it is %s", column.table.name, column.name, reason)


def instant_reader(kind: Instant) -> Reader:
    """Of one type of instants."""
    fetch = kind.fetch

    def instant(value: Any) -> str | None:
        try:
            fetch(value, _FILE)
            return None
        except Exception:  # whatever a stored value may be, it is only looked at
            return NOT_UTF8 if isinstance(value, BadText) else "no instant"

    return instant


def json_reader(value: Any) -> str | None:
    """Of JSON; a number was made of the text by a column of another program's."""
    if isinstance(value, BadText):
        return NOT_UTF8
    try:
        decode(value)
        return None
    except (ValueError, TypeError, RecursionError):
        return "no JSON"


def _text(value: Any) -> str | None:
    if type(value) is str:
        return None
    return NOT_UTF8 if type(value) is BadText else "no text"


def _label_reader(column: Column[Any], kind: Label) -> Reader:
    """Labels are bound again as they were read: no database takes a NUL, and no index takes a longer one."""
    longest = kind.most if is_indexed(column) else None

    def label(value: Any) -> str | None:
        if reason := _text(value):
            return reason
        if "\x00" in value:
            return "text with a NUL"
        if longest is not None and 4 * len(value) > longest and (size := utf8_size(value)) > longest:
            return f"text of {size:,} bytes, of which an index takes {longest}"
        return None

    return label


def _whole(value: Any) -> str | None:
    return None if type(value) is int else "no whole number"


def _amount(value: Any) -> str | None:
    return None if type(value) in (float, int) and value == value else "no number"


def _flag(value: Any) -> str | None:
    return None if type(value) in (int, bool) else "neither true nor false"


def _blob(value: Any) -> str | None:
    return None if type(value) is bytes else "no bytes"


_READERS: tuple[tuple[tuple[type, ...], Reader], ...] = (
    ((Json,), json_reader),
    ((Body, Vocabulary), _text),
    ((Flag,), _flag),
    ((Integer,), _whole),
    ((Float,), _amount),
    ((LargeBinary,), _blob),
)
