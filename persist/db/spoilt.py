"""Rows that hold what no program of ours wrote there: another program, a shell or a damaged disk did.

What becomes of such a row depends on who asks. The lists of a verb that reads leave it out and say so in the log. Where one row
is asked for, and in a verb that writes, an `Unreadable` stands in the place of the cell: a verb that does not touch it ends or
replaces the row, and whatever touches it, or would give it back as what was asked for, raises `UnreadableRow`. What would be
written back to where it came from stays as it is. Outside of verbs, where whole tables are copied, such a row raises. A
statement may say otherwise, see `Spoilt`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NoReturn

from sqlalchemy import BindParameter, Boolean, Column, Executable, Float, Integer, LargeBinary, String, Table, Update, update
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import BinaryExpression, ColumnElement
from sqlalchemy.sql.visitors import iterate
from sqlalchemy.types import TypeDecorator, TypeEngine

from persist.db.times import Instant
from persist.errors import InvalidValue, UnreadableRow

log = logging.getLogger("persist")

_Row = tuple[Any, ...]
Decoder = Callable[[Any], Any] | None
_NAMED = 20
"""So many rows of one statement are named in the log, at most."""


class Spoilt(Enum):
    """What a statement makes of a row that it cannot read, whoever asks."""

    LEAVE_OUT = "leave out"
    """A sweep of a verb that writes: what it finds stands each for itself, and the row stays as it is."""
    RAISE = "raise"
    """The rows are one value together, or are written elsewhere: without one of them the rest would be wrong."""


class NotText(bytes):
    """What a driver gives, when asked to, in the place of text that is not UTF-8."""


class NotLoaded(str):
    """What a driver gives, when asked to, in the place of a value that Python has no object for."""

    __slots__ = ()


class Unreadable:
    """A cell that cannot be read, for a verb that may not need it. Whatever asks it anything raises `UnreadableRow`."""

    __slots__ = ("_error",)

    def __init__(self, error: UnreadableRow) -> None:
        object.__setattr__(self, "_error", error)

    def _refuse(self, *_: Any) -> NoReturn:
        error = error_of(self)
        raise UnreadableRow(error.table, error.key, error.column, error.reason)

    __class__ = property(_refuse)  # what isinstance() asks: it would say no, and data be taken for none

    def __repr__(self) -> str:
        return "<unreadable>"


_ASKED = (
    "getattr setattr call hash eq ne lt le gt ge bool len iter contains getitem str format int float index"
    " add radd sub rsub mul rmul truediv or ror copy deepcopy reduce reduce_ex"
)
for _name in _ASKED.split():
    setattr(Unreadable, f"__{_name}__", Unreadable._refuse)


def kept_as_it_is(statement: Executable, values: Mapping[str, Any]) -> tuple[Update, dict[str, Any]] | None:
    """An UPDATE without the cells that would be given what cannot be read in them, and its values; None where there are none."""
    spoilt = {name for name, value in values.items() if type(value) is Unreadable}
    if not spoilt or not isinstance(statement, Update) or not isinstance(statement.table, Table):
        return None
    kept: dict[Any, Any] = {}
    given = dict(values)
    for column, value in (statement._values or {}).items():
        name = value.key if isinstance(value, BindParameter) else None
        if name in spoilt and _is_from(values[name], statement.table.name, str(getattr(column, "name", column))):
            spoilt.discard(name)
            del given[name]
        else:
            kept[column] = value
    if spoilt or not kept:
        return None
    changed = update(statement.table).values(kept)
    return (changed if statement.whereclause is None else changed.where(statement.whereclause)), given


def _is_from(cell: Unreadable, table: str, column: str) -> bool:
    error = error_of(cell)
    return (error.table, error.column) == (table, column)


def error_of(cell: Unreadable) -> UnreadableRow:
    """What whoever touches the cell is told."""
    error: UnreadableRow = object.__getattribute__(cell, "_error")
    return error


def is_unreadable(value: object) -> bool:
    """Whether it stands for a cell that could not be read."""
    return type(value) is Unreadable


class Cells:
    """The rows of one statement, read cell by cell after reading them all at once has failed."""

    __slots__ = ("_columns", "_decoders", "_kinds", "_statement")

    def __init__(
        self,
        statement: Executable,
        columns: Sequence[ColumnElement[Any]],
        decoders: Sequence[Decoder],
        kinds: Sequence[frozenset[type] | None],
    ) -> None:
        self._statement, self._columns, self._decoders, self._kinds = statement, columns, decoders, kinds

    def rows(
        self, rows: Iterable[Sequence[Any]], values: Mapping[str, Any], spoilt: Spoilt | None, carried: list[Unreadable] | None
    ) -> list[_Row]:
        """Those that can be read, and the others as `spoilt` or, where it is None, `carried` says."""
        found: list[_Row] = []
        refused: list[UnreadableRow] = []
        for row in rows:
            cells, errors = self._row(row, values)
            if not errors:
                found.append(cells)
                continue
            refused.append(errors[0])
            if spoilt is Spoilt.RAISE or (spoilt is None and carried is None):
                raise errors[0]
            if carried is not None:
                carried += [cell for cell in cells if type(cell) is Unreadable]
            if spoilt is None:
                found.append(cells)
        self._report(refused, left_out=spoilt is Spoilt.LEAVE_OUT)
        return found

    def unknown(self) -> UnreadableRow:
        """Of a statement that wrote, and that is not run once more to find out which row and column it is."""
        column = next((origin for one in self._columns if (origin := _origin(one)) is not None), None)
        return UnreadableRow("the result" if column is None else column.table.name, None, "a column", "the value cannot be read")

    def _row(self, row: Sequence[Any], values: Mapping[str, Any]) -> tuple[_Row, list[UnreadableRow]]:
        cells, errors = [], []
        for place, value in enumerate(row):
            try:
                cells.append(self._cell(place, value))
            except Exception as error:  # whatever a decoder makes of what it was never meant to get
                errors.append(self._error(place, row, values, error))
                cells.append(Unreadable(errors[-1]))
        return tuple(cells), errors

    def _cell(self, place: int, value: Any) -> Any:
        kind, code = self._kinds[place], self._decoders[place]
        if type(value) is NotText:
            raise InvalidValue("", "the text is not UTF-8")
        if type(value) is NotLoaded:
            raise InvalidValue("", "the value is out of range")
        if value is None:
            return None
        if kind is not None and type(value) not in kind:
            wanted = " or ".join(sorted(_WORDS.get(one, one.__name__) for one in kind if one is not _NONE))
            raise InvalidValue("", f"{_WORDS.get(type(value), type(value).__name__)} is stored where {wanted} belongs")
        return value if code is None else code(value)

    def _error(self, place: int, row: Sequence[Any], values: Mapping[str, Any], error: Exception) -> UnreadableRow:
        column = _origin(self._columns[place])
        if column is None:
            column = _computed_from(self._columns[place])
        if column is None:
            return UnreadableRow("the result", None, str(getattr(self._columns[place], "name", place)), reason_of(error, None))
        return UnreadableRow(column.table.name, self._key(column.table, row, values), column.name, reason_of(error, column))

    def _key(self, table: Table, row: Sequence[Any], values: Mapping[str, Any]) -> list[Any] | None:
        """The key of the row, from what was selected, or from what it was searched by."""
        selected = {id(_origin(column)): row[place] for place, column in enumerate(self._columns)}
        searched = _searched(self._statement, values)
        key = []
        for column in table.primary_key.columns:
            if id(column) in selected:
                key.append(selected[id(column)])
            elif column in searched:
                key.append(searched[column])
        return key or None

    def _report(self, refused: Sequence[UnreadableRow], *, left_out: bool) -> None:
        what = "left out" if left_out else "read without what is broken"
        for error in refused[:_NAMED]:
            log.warning(
                "an unreadable row was %s: %s key %r, column %s: %s", what, error.table, error.key, error.column, error.reason
            )
        if len(refused) > _NAMED:
            log.warning("%d more unreadable rows were %s", len(refused) - _NAMED, what)


def kind_of(column: ColumnElement[Any]) -> frozenset[type] | None:
    """What a driver gives for a column of a table that holds what it may hold, NULL included; None where its decoder knows."""
    origin = _origin(column)
    kind = column.type if origin is None else origin.type
    if isinstance(kind, Instant):
        return None
    if origin is None and isinstance(kind, Integer):
        return _COUNTED
    stored = kind.impl_instance if isinstance(kind, TypeDecorator) else kind
    return next((types for of, types in _KINDS if isinstance(stored, of)), None)


_NONE = type(None)
_KINDS: list[tuple[type[TypeEngine[Any]], frozenset[type]]] = [
    (Integer, frozenset({int, _NONE})),
    (Boolean, frozenset({int, _NONE})),
    (Float, frozenset({float, int, _NONE})),
    (String, frozenset({str, _NONE})),
    (LargeBinary, frozenset({bytes, _NONE})),
]
_COUNTED: frozenset[type] = frozenset({int, float, _NONE})
"""A sum of whole numbers and of what is none is a float."""
_WORDS: dict[type, str] = {str: "text", int: "an integer", float: "a number", bytes: "a blob"}


def reason_of(error: Exception, column: Column[Any] | None) -> str:
    """Why a cell cannot be read, without what it holds."""
    if isinstance(error, InvalidValue) and not error.path:
        return error.reason.rstrip(".")
    kind = "value" if column is None else type(column.type).__name__
    return f"the {_NOUNS.get(kind, 'value')} cannot be read"


_NOUNS = {"Json": "JSON", "Body": "text", "Label": "text", "Vector": "vector"} | dict.fromkeys(
    ("EpochMs", "EpochS", "EpochReal", "IsoMs", "SqlSeconds"), "instant"
)


def _origin(column: ColumnElement[Any]) -> Column[Any] | None:
    """The column of a table that it is read from, unless it is computed."""
    base = next(iter(column.base_columns), None)
    return base if isinstance(base, Column) and isinstance(base.table, Table) else None


def _computed_from(column: ColumnElement[Any]) -> Column[Any] | None:
    """The first column of a table that something computed is made of."""
    parts = (part for part in iterate(column) if isinstance(part, Column) and isinstance(part.table, Table))
    return next(parts, None)


def _searched(statement: Executable, values: Mapping[str, Any]) -> dict[Column[Any], Any]:
    """The columns that the statement compares with what it was given."""
    found = {}
    for part in iterate(getattr(statement, "whereclause", None)) if getattr(statement, "whereclause", None) is not None else ():
        if isinstance(part, BinaryExpression) and part.operator is operators.eq and isinstance(part.right, BindParameter):
            column = _origin(part.left)
            if column is not None and part.right.key in values:
                found[column] = values[part.right.key]
    return found
