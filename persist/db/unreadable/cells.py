"""Unreadable rows: rows with values that persist cannot decode, written by another program, a shell or a damaged disk.

Lists leave such a row out. Where one row is read, and in a verb that writes, an `Unreadable` replaces the cell: the verb succeeds
unless it uses or returns it. Outside of verbs reading raises `UnreadableRow`. A statement may decide otherwise: `OnUnreadable`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from itertools import islice
from typing import Any, NoReturn, Protocol

from sqlalchemy import (
    BindParameter,
    Boolean,
    Column,
    ColumnElement,
    Delete,
    Dialect,
    Executable,
    Float,
    Insert,
    Integer,
    Join,
    LargeBinary,
    Select,
    String,
    Table,
    Update,
    update,
)
from sqlalchemy.exc import StatementError
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import BinaryExpression, Cast, Label, TypeCoerce
from sqlalchemy.sql.selectable import Alias, FromClause
from sqlalchemy.sql.visitors import iterate
from sqlalchemy.types import TypeDecorator, TypeEngine

from persist.db.schema.instants import Instant
from persist.db.sqlalchemy_private import updated_values
from persist.db.unreadable.excerpts import Shortened
from persist.errors import InvalidValue, UnreadableRow

# Cells that hold nothing are read as None, and what persist would not store, is read as it is. A verb that fails
# on either is run again, and finds the cell unreadable. One that has written already raises `UnreadableRow` at once for a None.

HOLDS_NOTHING = "it holds nothing, and must hold a value"
"""The reason of an `UnreadableRow` with such a cell, which `UnreadableRow` recognises: the doctor never sets such a row aside."""
STORED: frozenset[type] = frozenset({int, float, str, bytes})
"""The types of everything that SQLite stores, but for NULL."""


class Carried(list[Any]):
    """The placeholders for unreadable cells that the running verb read."""

    missing: UnreadableRow | None = None
    """What the first cell that must hold something and holds nothing would raise; the verb got None for it."""
    strict = False
    """Whether a cell that holds nothing, or what its column would not be given, is unreadable: the verb failed on one before."""


def required(statement: Any, columns: Sequence[ColumnElement[Any]]) -> frozenset[int]:
    """The places of result columns from a table's column that must hold something, not of a table on an outer join's far side."""
    places = {place: found for place, column in enumerate(columns) if (found := _plain(column)) is not None}
    if isinstance(statement, Insert | Update | Delete):
        return frozenset(places)
    if not isinstance(statement, Select):
        return frozenset()
    waiting: list[Any] = [statement]
    parts = {id(statement): waiting[0]}
    while waiting:  # each part once: SQLAlchemy's `iterate` comes to one by every way there is, 100,000 times in a claim
        new = {id(part): part for part in waiting.pop().get_children() if id(part) not in parts}
        parts |= new
        waiting += new.values()
    joins = [part for part in parts.values() if isinstance(part, Join) and (part.full or part.isouter)]
    optional = {table for join in joins for table in _tables(join if join.full else join.right)}
    return frozenset(place for place, column in places.items() if column.table not in optional)


def _plain(column: ColumnElement[Any]) -> Column[Any] | None:
    found: Any = column
    while isinstance(found, Label | Cast | TypeCoerce):
        found = found.element if isinstance(found, Label) else found.clause
    if not isinstance(found, Column) or found.nullable:
        return None
    of = found.table.element if isinstance(found.table, Alias) else found.table
    return found if isinstance(of, Table) else None


def _tables(source: FromClause) -> Iterator[FromClause]:
    if isinstance(source, Join):
        yield from _tables(source.left)
        yield from _tables(source.right)
    else:
        yield source


log = logging.getLogger("persist")

_Row = tuple[Any, ...]
Decoder = Callable[[Any], Any] | None
_MAX_LOGGED = 20
"""The maximum number of unreadable rows that one statement logs by name."""
_MAX_REMEMBERED = 10_000
"""The number of rows that one statement of a store does not log again."""


class OnUnreadable(Enum):
    """What a statement does with an unreadable row, whichever verb runs it."""

    LEAVE_OUT = "leave out"
    """Skip the row, which stays as it is: for sweeps by writing verbs over independent rows."""
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
    """The UPDATE, and its values, without columns that would get their own unreadable cell back; None if none is."""
    unreadable = {name for name, value in values.items() if type(value) is Unreadable}
    if not unreadable or not isinstance(statement, Update) or not isinstance(statement.table, Table):
        return None
    remaining_columns: dict[Any, Any] = {}
    remaining_values = dict(values)
    for column, value in updated_values(statement).items():
        name = value.key if isinstance(value, BindParameter) else ""
        error = error_of(values[name]) if name in unreadable else None
        if error is not None and (error.table, error.column) == (statement.table.name, str(getattr(column, "name", column))):
            unreadable.discard(name)
            del remaining_values[name]
        else:
            remaining_columns[column] = value
    if unreadable or not remaining_columns:
        return None
    changed = update(statement.table).values(remaining_columns)
    return (changed if statement.whereclause is None else changed.where(statement.whereclause)), remaining_values


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

    __slots__ = ("_columns", "_decoders", "_dialect", "_kinds", "_reported", "_required", "_statement")

    def __init__(
        self,
        statement: Executable,
        columns: Sequence[ColumnElement[Any]],
        decoders: Sequence[Decoder],
        *,
        typed: bool,
        dialect: Dialect | None = None,
    ) -> None:
        """`typed`: whether the database guarantees that a column holds only values of its type, and no NULL where none may be."""
        self._statement, self._columns, self._decoders, self._dialect = statement, columns, decoders, dialect
        self._kinds = [None if typed else kind_of(column) for column in columns]
        self._required = frozenset() if typed else required(statement, columns)
        self._reported: set[tuple[str, ...]] = set()

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
        self, rows: Iterable[Sequence[Any]], values: Mapping[str, Any], unreadable: OnUnreadable | None, carried: Carried | None
    ) -> list[_Row]:
        """The decoded rows. Unreadable ones are left out or raise as `unreadable` says; if None, they are `carried`, or raise."""
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
                if carried is not None and carried.strict:
                    self._check_storable(place, cells[-1])
            except Exception as error:  # decoders may raise anything for values they were not made for
                errors.append(self._error(place, row, values, error))
                cells[place:] = [Unreadable(errors[-1])]
        return tuple(cells), errors

    def _miss(self, place: int, row: Sequence[Any], values: Mapping[str, Any], carried: Carried) -> None:
        nothing = InvalidValue("", HOLDS_NOTHING)
        if carried.strict:
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

    def _check_storable(self, place: int, value: Any) -> None:
        """Refuse what the column would not be given: a number that JSON lacks, a NUL in a name, the greatest number there is."""
        column = _origin(self._columns[place])
        if value is None or column is None:
            return
        if isinstance(value, int) and value >= GREATEST:
            raise InvalidValue("", "nothing can be added to the number")
        dialect = self._dialect
        code = None if dialect is None else column.type.dialect_impl(dialect).bind_processor(dialect)
        try:
            if code is not None:
                code(value)
        except InvalidValue as error:
            raise InvalidValue("", f"the value would not be stored: {error.reason.rstrip('.')}") from None

    def _error(self, place: int, row: Sequence[Any], values: Mapping[str, Any], error: Exception) -> UnreadableRow:
        column = _origin(self._columns[place])
        if column is None:
            parts = iterate(self._columns[place])  # the first column in a computed expression
            column = next((part for part in parts if isinstance(part, Column) and isinstance(part.table, Table)), None)
        if column is None:
            return UnreadableRow("the result", None, str(getattr(self._columns[place], "name", place)), reason_of(error, None))
        return UnreadableRow(column.table.name, self._key(column.table, row, values), column.name, reason_of(error, column))

    def _key(self, table: Table, row: Sequence[Any], values: Mapping[str, Any]) -> list[Any] | None:
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
        told = {(error.table, repr(error.key), error.column, error.reason): None for error in refused}
        new = [row for row in told if row not in self._reported]  # a worker that polls meets them again every second
        if len(self._reported) + len(new) > _MAX_REMEMBERED:
            self._reported.clear()
        self._reported.update(new)
        for row in new[:_MAX_LOGGED]:
            log.warning("an unreadable row was %s: %s key %s, column %s: %s", what, *row)
        if len(new) > _MAX_LOGGED:
            log.warning("%d more unreadable rows were %s", len(new) - _MAX_LOGGED, what)


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
GREATEST = 2**63 - 1
"""The greatest whole number that both databases hold."""
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
    base = next(iter(column.base_columns), None)
    return base if isinstance(base, Column) and isinstance(base.table, Table) else None


def _searched(statement: Executable, values: Mapping[str, Any]) -> dict[Column[Any], Any]:
    found = {}
    where = getattr(statement, "whereclause", None)
    for part in () if where is None else iterate(where):
        if isinstance(part, BinaryExpression) and part.operator is operators.eq and isinstance(part.right, BindParameter):
            column = _origin(part.left)
            if column is not None and part.right.key in values:
                found[column] = values[part.right.key]
    return found


# What a column type would not store, though another program has stored it: a verb that read it and failed is run again.

_NOT_STORABLE = "_persist_not_storable"


def not_storable(error: InvalidValue) -> InvalidValue:
    """The error, noted as that of a value that a column type would not have stored."""
    error.__dict__[_NOT_STORABLE] = True
    return error


def is_not_storable(error: BaseException) -> bool:
    """Whether a column type has refused a value of a statement, which the verb was given or has read."""
    refused = error.orig if isinstance(error, StatementError) else error  # Core wraps what a column type raises
    return isinstance(refused, InvalidValue) and (refused is not error or _NOT_STORABLE in error.__dict__)


def number_after(column: str, value: int) -> int:
    """The number after one that was read from the column. Raises InvalidValue after the greatest one that can be stored."""
    if value >= GREATEST:
        raise not_storable(InvalidValue(column, "no number follows the one that is stored."))
    return value + 1


# How unreadable rows are read again: what the caller wants done with them, and what the dialect must do for its driver.

By = tuple[OnUnreadable | None, Carried | None]
"""`unreadable` and `carried` of `Cells.rows`: whether unreadable rows are left out or raise, and the list of their cells."""
RAISING: By = (None, None)
"""Unreadable rows raise UnreadableRow."""


class Rereader(Protocol):
    """A dialect's handling of stored values that its driver cannot return."""

    def __hash__(self) -> int: ...

    typed: bool
    """Whether the database guarantees that a column holds only values of its type (Postgres)."""

    def refused(self, error: BaseException) -> bool:
        """Whether the error means that the driver could not convert a stored value to a Python object."""

    def lenient(self, driver: Any) -> AbstractContextManager[None]:
        """A context in which the driver connection returns a stand-in (NotText, NotLoaded) for such a value."""


def rows_on(cursor: Any, driver: Any, reader: Rereader, most: int | None = None) -> list[Any]:
    """The next rows of SQLite's cursor, for a statement that runs once: a row that it refuses is left to a lenient driver."""
    rows: list[Any] = []
    try:
        for row in islice(cursor, most):
            rows.append(row)  # what a list comprehension has found is lost with its error
    except Exception as error:
        if not reader.refused(error):
            raise
        with reader.lenient(driver):
            rows += islice(cursor, None if most is None else most - len(rows))
    return rows
