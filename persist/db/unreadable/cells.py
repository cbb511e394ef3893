"""Unreadable rows: rows with values that persist cannot decode, written by another program, a shell or a damaged disk.

What happens to such a row depends on the caller:

- Lists of a verb that reads leave the row out and log a warning. One with a limit goes on to the next readable row.
- Where one row is read, and in a verb that writes, an `Unreadable` replaces the cell. The verb succeeds, and may end or replace
  the row, unless it uses the cell or would return it: that raises `UnreadableRow`. An UPDATE that would write the cell back to
  its own column leaves that column alone.
- Outside of verbs, where whole tables are copied, reading such a row raises `UnreadableRow`.
- A cell that holds nothing, though it must hold something, is read as None, see `persist.db.unreadable.missing`.

A statement may decide otherwise, see `OnUnreadable`.
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

from persist.db.schema.instants import Instant
from persist.db.sqlalchemy_private import updated_values
from persist.db.unreadable.missing import HOLDS_NOTHING, STORED, Carried, required
from persist.db.unreadable.shortened import Shortened
from persist.errors import InvalidValue, UnreadableRow

log = logging.getLogger("persist")

_Row = tuple[Any, ...]
Decoder = Callable[[Any], Any] | None
_MAX_LOGGED = 20
"""The maximum number of unreadable rows that one statement logs by name."""


class OnUnreadable(Enum):
    """What a statement does with an unreadable row, whichever verb runs it."""

    LEAVE_OUT = "leave out"
    """Skip the row, which stays as it is: for sweeps of writing verbs, whose rows are independent of each other."""
    RAISE = "raise"
    """Raise UnreadableRow: for rows that form one value together, or are copied elsewhere, so that none may be missing."""


class NotText(bytes):
    """Replaces text that is not UTF-8 where the driver was asked to be lenient (see `Rereader.lenient`)."""


class NotLoaded(str):
    """Replaces a value that no Python object can hold where the driver was asked to be lenient (see `Rereader.lenient`)."""

    __slots__ = ()


class Unreadable:
    """Replaces a cell that cannot be read, for a verb that may not need it. Every use of it raises `UnreadableRow`."""

    __slots__ = ("_error",)

    def __init__(self, error: UnreadableRow) -> None:
        object.__setattr__(self, "_error", error)

    def _refuse(self, *_: Any) -> NoReturn:
        error = error_of(self)
        raise UnreadableRow(error.table, error.key, error.column, error.reason)

    __class__ = property(_refuse)  # isinstance() reads it: False would make callers treat the cell as missing data

    def __repr__(self) -> str:
        return "<unreadable>"


_SPECIAL_METHODS = (
    "getattr setattr call hash eq ne lt le gt ge bool len iter contains getitem str format int float index"
    " add radd sub rsub mul rmul truediv or ror copy deepcopy reduce reduce_ex"
)
for _name in _SPECIAL_METHODS.split():
    setattr(Unreadable, f"__{_name}__", Unreadable._refuse)


def without_unreadable(statement: Executable, values: Mapping[str, Any]) -> tuple[Update, dict[str, Any]] | None:
    """The UPDATE, and its values, without columns to which their own unreadable cell would be written back.

    None if there is no such column, if another use of an unreadable cell remains, or if no column would be left.
    """
    unreadable = {name for name, value in values.items() if type(value) is Unreadable}
    if not unreadable or not isinstance(statement, Update) or not isinstance(statement.table, Table):
        return None
    remaining_columns: dict[Any, Any] = {}
    remaining_values = dict(values)
    for column, value in updated_values(statement).items():
        name = value.key if isinstance(value, BindParameter) else None
        if name in unreadable and _is_from(values[name], statement.table.name, str(getattr(column, "name", column))):
            unreadable.discard(name)
            del remaining_values[name]
        else:
            remaining_columns[column] = value
    if unreadable or not remaining_columns:
        return None
    changed = update(statement.table).values(remaining_columns)
    return (changed if statement.whereclause is None else changed.where(statement.whereclause)), remaining_values


def _is_from(cell: Unreadable, table: str, column: str) -> bool:
    error = error_of(cell)
    return (error.table, error.column) == (table, column)


def error_of(cell: Unreadable) -> UnreadableRow:
    """The error that using the cell raises."""
    error: UnreadableRow = object.__getattribute__(cell, "_error")
    return error


def is_unreadable(value: object) -> bool:
    """Whether the value stands for a cell that could not be read."""
    return type(value) is Unreadable


def need(*values: object) -> None:
    """Raise `UnreadableRow` if one of the values stands for a cell that could not be read, which SQL has used all the same."""
    for value in values:
        if is_unreadable(value):
            bool(value)


class Cells:
    """Decodes the rows of one statement cell by cell, after decoding all rows at once has failed."""

    __slots__ = ("_columns", "_decoders", "_kinds", "_required", "_statement")

    def __init__(
        self,
        statement: Executable,
        columns: Sequence[ColumnElement[Any]],
        decoders: Sequence[Decoder],
        *,
        typed: bool,
    ) -> None:
        """`typed`: whether the database guarantees that a column holds only values of its type, and no NULL where none may be."""
        self._statement, self._columns, self._decoders = statement, columns, decoders
        self._kinds = [None if typed else kind_of(column) for column in columns]
        self._required = frozenset() if typed else required(statement, columns)

    def kinds(self) -> list[tuple[int, frozenset[type]]]:
        """The places of the columns to check, each with the types that the driver returns for what is right there."""
        wanted = []
        for place, kind in enumerate(self._kinds):
            if place in self._required:
                wanted.append((place, (STORED if kind is None else kind) - {_NONE}))
            elif kind is not None:
                wanted.append((place, kind))
        return wanted

    def rows(
        self,
        rows: Iterable[Sequence[Any]],
        values: Mapping[str, Any],
        unreadable: OnUnreadable | None,
        carried: Carried | None,
    ) -> list[_Row]:
        """The decoded rows. Unreadable ones are treated as `unreadable` says.

        If that is None, they are returned with `Unreadable` cells, which are also appended to `carried`; if that is None too,
        UnreadableRow is raised.
        """
        found: list[_Row] = []
        refused: list[UnreadableRow] = []
        for row in rows:
            cells, errors = self._row(row, values, carried)
            if not errors:
                found.append(cells)
                continue
            refused.append(errors[0])
            if unreadable is OnUnreadable.RAISE or (unreadable is None and carried is None):
                raise errors[0]
            if carried is not None:
                carried += [cell for cell in cells if type(cell) is Unreadable]
            if unreadable is None:
                found.append(cells)
        leaves_out = unreadable is OnUnreadable.LEAVE_OUT
        self._report(refused, left_out=leaves_out)
        return Shortened(found, len(refused)) if leaves_out else found

    def _row(self, row: Sequence[Any], values: Mapping[str, Any], carried: Carried | None) -> tuple[_Row, list[UnreadableRow]]:
        cells, errors = [], []
        for place, value in enumerate(row):
            try:
                if value is None and place in self._required and carried is not None:
                    self._miss(place, row, values, carried)
                cells.append(self._cell(place, value))
            except Exception as error:  # decoders may raise anything for values they were not made for
                errors.append(self._error(place, row, values, error))
                cells.append(Unreadable(errors[-1]))
        return tuple(cells), errors

    def _miss(self, place: int, row: Sequence[Any], values: Mapping[str, Any], carried: Carried) -> None:
        nothing = InvalidValue("", HOLDS_NOTHING)
        if carried.refuses:
            raise nothing
        if carried.missing is None:
            carried.missing = self._error(place, row, values, nothing)

    def _cell(self, place: int, value: Any) -> Any:
        kind, code = self._kinds[place], self._decoders[place]
        if type(value) is NotText:
            raise InvalidValue("", "the text is not UTF-8")
        if type(value) is NotLoaded:
            raise InvalidValue("", "the value is out of range")
        if value is None:
            return None
        if kind is not None and type(value) not in kind:
            wanted = " or ".join(sorted(_WORDS.get(type_, type_.__name__) for type_ in kind if type_ is not _NONE))
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
        """The primary key of the row, as far as its columns were selected or compared with in the WHERE clause."""
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
        for error in refused[:_MAX_LOGGED]:
            log.warning(
                "an unreadable row was %s: %s key %r, column %s: %s", what, error.table, error.key, error.column, error.reason
            )
        if len(refused) > _MAX_LOGGED:
            log.warning("%d more unreadable rows were %s", len(refused) - _MAX_LOGGED, what)


def kind_of(column: ColumnElement[Any]) -> frozenset[type] | None:
    """The Python types, None included, that the driver returns for valid values of a column; None if the decoder checks them."""
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
"""The types of a computed integer: on SQLite a sum over values that are not all integers is a float."""
_WORDS: dict[type, str] = {str: "text", int: "an integer", float: "a number", bytes: "a blob"}


def reason_of(error: Exception, column: Column[Any] | None) -> str:
    """Why a cell cannot be read; the text does not contain the stored value."""
    if isinstance(error, InvalidValue) and not error.path:
        return error.reason.rstrip(".")
    kind = "value" if column is None else type(column.type).__name__
    return f"the {_NOUNS.get(kind, 'value')} cannot be read"


_NOUNS = {"Json": "JSON", "FreeText": "text", "Label": "text", "Vector": "vector"} | dict.fromkeys(
    ("EpochMs", "EpochS", "EpochReal", "IsoMs", "SqlSeconds"), "instant"
)


def _origin(column: ColumnElement[Any]) -> Column[Any] | None:
    """The table's column that a selected column is read from; None for a computed one."""
    base = next(iter(column.base_columns), None)
    return base if isinstance(base, Column) and isinstance(base.table, Table) else None


def _computed_from(column: ColumnElement[Any]) -> Column[Any] | None:
    """The first table column in a computed expression; None if there is none."""
    parts = (part for part in iterate(column) if isinstance(part, Column) and isinstance(part.table, Table))
    return next(parts, None)


def _searched(statement: Executable, values: Mapping[str, Any]) -> dict[Column[Any], Any]:
    """The columns that the WHERE clause compares (=) with parameters, and the values of these parameters."""
    found = {}
    for part in iterate(getattr(statement, "whereclause", None)) if getattr(statement, "whereclause", None) is not None else ():
        if isinstance(part, BinaryExpression) and part.operator is operators.eq and isinstance(part.right, BindParameter):
            column = _origin(part.left)
            if column is not None and part.right.key in values:
                found[column] = values[part.right.key]
    return found
