"""Checks whether persist can decode what a column holds, given as a SQLite file stores it, read without a column type."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from sqlalchemy import Column, ColumnElement, Float, Integer, LargeBinary, false, func
from sqlalchemy.dialects.sqlite.base import SQLiteDialect

from persist.db.schema.base import Shape, any_value, word_of
from persist.db.schema.column_types import Bool, EnumText, FreeText, Json, Label, is_indexed
from persist.db.schema.instants import Instant
from persist.db.unreadable.cells import is_unreadable
from persist.db.unreadable.excerpts import Row, Shortened, left_out
from persist.db.values.escaping import utf8_size
from persist.db.values.frozen import Value, construct
from persist.db.values.json import decode
from persist.db.values.pages import PagedList


def without_unreadable_cells(value: Any, *, writes: bool) -> Any:
    """The verb's result without unreadable cells, which raise UnreadableRow in a reading verb, and else become None."""
    kind = type(value)
    if is_unreadable(value):
        if not writes:
            bool(value)  # raises UnreadableRow
        return None
    if issubclass(kind, Value):
        return construct(kind, {name: without_unreadable_cells(item, writes=writes) for name, item in value.__dict__.items()})
    if kind is dict:
        return {key: without_unreadable_cells(item, writes=writes) for key, item in value.items()}
    if kind is list:
        return [without_unreadable_cells(item, writes=writes) for item in value]
    if kind is PagedList:
        return PagedList((without_unreadable_cells(item, writes=writes) for item in value), value.cursor)
    if issubclass(kind, tuple):
        items = [without_unreadable_cells(item, writes=writes) for item in value]
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return replace(value, **{name: without_unreadable_cells(item, writes=writes) for name, item in named.items()})
    return value


Reader = Callable[[Any], str | None]
"""Takes a stored value that is not NULL; returns what is wrong with it, such as "no instant", or None if it can be decoded."""

log = logging.getLogger("persist")

NOT_UTF8 = "text that is not UTF-8"
_FILE = SQLiteDialect()


class BadText(bytes):
    """Stored text that is not UTF-8."""


def text_or_bad(stored: bytes) -> str | BadText:
    """Decode stored text, as the driver's text factory: BadText if it is not UTF-8."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return BadText(stored)


def reader_of(column: Column[Any], shape: Shape | None = None) -> Reader:
    """The check for a column: first the type, then the shape that its domain requires."""
    kind = column.type
    if isinstance(kind, EnumText) and shape is None:
        shape = word_of(kind.words)
    if isinstance(kind, Json) and kind.shape is not None and shape is None:
        shape = kind.misfit
    check_type = _label_reader(column, kind) if isinstance(kind, Label) else _type_reader(kind)
    if shape is None or shape is any_value:
        return check_type
    check_shape, decoded = shape, decode if isinstance(kind, Json) else lambda value: value
    return lambda value: check_type(value) or check_shape(decoded(value))


def _type_reader(kind: Any) -> Reader:
    if isinstance(kind, Instant):
        return instant_reader(kind)
    return next(reader for types, reader in _READERS if isinstance(kind, types))


def bindable(column: Column[Any], keys: Iterable[str]) -> Iterator[str]:
    """The stored keys that a statement can bind again; a sweep leaves the others out and logs them."""
    reader = reader_of(column)
    for key in keys:
        if (reason := reader(key)) is None:
            yield key
        else:
            log.warning("a row of %s is left out, %s: it is %s", column.table.name, column.name, reason)


def bindable_rows(rows: list[Row], labels: Mapping[int, Column[Any]]) -> list[Row]:
    """The rows without those that have a label which `bindable` leaves out. `labels`: the columns of labels by their place."""
    kept = rows
    for place, column in labels.items():
        good = set(bindable(column, {row[place] for row in kept}))
        kept = [row for row in kept if row[place] in good]
    return rows if len(kept) == len(rows) else Shortened(kept, left_out(rows) + len(rows) - len(kept))


def unbindable(label: ColumnElement[Any]) -> ColumnElement[bool]:
    """The condition of the labels that `bindable` leaves out on a server, whose texts have no NUL and are UTF-8."""
    kind = label.type
    return false() if not isinstance(kind, Label) else func.octet_length(label) > kind.maximum


def instant_reader(kind: Instant) -> Reader:
    """The check for one type of instants."""
    read = kind.reading(_FILE)

    def instant(value: Any) -> str | None:
        try:
            read(value)
            return None
        except Exception:  # any value may be stored; this only checks it
            return NOT_UTF8 if isinstance(value, BadText) else "no instant"

    return instant


def json_reader(value: Any) -> str | None:
    """The check for JSON. Numbers pass too: in another program's file, numeric affinity may have turned the text into one."""
    if isinstance(value, BadText):
        return NOT_UTF8
    try:
        decode(value)
        return None
    except (ValueError, TypeError):
        return "no JSON"


def _text(value: Any) -> str | None:
    if type(value) is str:
        return None
    return NOT_UTF8 if type(value) is BadText else "no text"


def _label_reader(column: Column[Any], kind: Label) -> Reader:
    """The check for labels, which statements bind again: no database accepts a NUL, and no index a longer one."""
    longest = kind.maximum if is_indexed(column) else None

    def label(value: Any) -> str | None:
        if reason := _text(value):
            return reason
        if "\x00" in value:
            return "text with a NUL"
        if longest is not None and 4 * len(value) > longest and (size := utf8_size(value)) > longest:
            return f"text of {size:,} bytes, of which an index takes {longest}"
        return None

    return label


def _amount(value: Any) -> str | None:
    return None if type(value) in (float, int) and value == value else "no number"


def _flag(value: Any) -> str | None:
    return None if type(value) in (int, bool) else "neither true nor false"


def _blob(value: Any) -> str | None:
    return None if type(value) is bytes else "no bytes"


_READERS: tuple[tuple[tuple[type, ...], Reader], ...] = (
    ((Json,), json_reader),
    ((FreeText, EnumText), _text),
    ((Bool,), _flag),
    ((Integer,), lambda value: None if type(value) is int else "no whole number"),
    ((Float,), _amount),
    ((LargeBinary,), _blob),
)
