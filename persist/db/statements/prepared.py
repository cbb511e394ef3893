"""Prepared statements: Core statements compiled once per dialect and schema, run directly on the driver connection."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    CursorResult,
    Delete,
    Dialect,
    Executable,
    Float,
    Select,
    bindparam,
    literal,
)
from sqlalchemy.types import NullType, TypeEngine

from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.schema.column_types import ascii_unchanged
from persist.db.unreadable.cells import RAISING, By, Cells, Decoder, OnUnreadable, Rereader, not_storable, rows_on
from persist.errors import InvalidValue

Deletion = tuple[Delete, Mapping[str, Any]]
_NOTE = "_persist_deletions"


def note_deletions(error: BaseException, statements: Iterable[tuple[Executable, Mapping[str, Any]]]) -> None:
    """Note at an error which of the statements that it may be about delete rows."""
    deletions = [(statement, values) for statement, values in statements if isinstance(statement, Delete)]
    if deletions:
        error.__dict__[_NOTE] = deletions


def noted_deletions(error: BaseException | None) -> list[Deletion]:
    """The note at the error, or at its cause."""
    for _ in range(5):
        if error is not None and (found := error.__dict__.get(_NOTE)):
            return found  # type: ignore[no-any-return]  # by note_deletions
        error = None if error is None else error.__cause__
    return []


# Running a compiled statement costs as much as a hand-written driver call; a cached Core execution costs four to six times that.
# Column types still encode and decode every value, so a prepared statement reads and writes exactly what Core would.

Row = tuple[Any, ...]


def param(name: str) -> BindParameter[Any]:
    """A named parameter, whose type SQLAlchemy takes from the column it is used with."""
    return bindparam(name)


LIMIT = bindparam("limit", type_=BigInteger())
"""The parameter for `.limit()`, which would give an untyped one no type."""


def among(column: ColumnElement[Any], words: Iterable[Any]) -> ColumnElement[bool]:
    """`column IN (…)` for words known at declaration. A prepared statement cannot expand a list at each execution."""
    return column.in_([literal(word, column.type) for word in words])


class Driver(Protocol):
    """The method that the connections of both drivers have in common."""

    def execute(self, sql: Any, parameters: Any = ..., /) -> Any: ...


class CompiledStatement:
    """One statement compiled for one dialect and schema: its SQL text, and the encoders and decoders of its values."""

    __slots__ = (
        "_cells",
        "_coded",
        "_constants",
        "_encoders",
        "_goes_on",
        "_kinds",
        "_pick",
        "_reader",
        "_row",
        "_spread",
        "_texts",
        "_valid_types",
        "names",
        "sql",
    )

    def __init__(self, statement: Executable, dialect: Dialect, schema: str | None, reader: Rereader) -> None:
        compiled = statement.compile(  # type: ignore[attr-defined]  # every Executable we use is a ClauseElement
            dialect=dialect, schema_translate_map={SCHEMA_TOKEN: schema}, render_schema_translate=True
        )
        self.sql = str(compiled)
        self.names = names = tuple(compiled.positiontup or ())
        """The names of the parameters, in the order of `args`."""
        untyped = [name for name in names if isinstance(compiled.binds[name].type, NullType)]
        assert not untyped, f"parameters without a type would reach the driver as they are: {untyped} in {self.sql}"
        binds = [compiled.binds[name] for name in names]
        encoders = [bind.type.dialect_impl(dialect).bind_processor(dialect) for bind in binds]
        by_name = dict(zip(names, zip(binds, encoders, strict=True), strict=True))
        given = [name for name, (bind, _) in by_name.items() if bind.required]
        self._pick = _picker(given)
        coded = [(place, *by_name[name]) for place, name in enumerate(given) if by_name[name][1] is not None]
        lengths = {place: ascii_unchanged(bind.type) for place, bind, _ in coded}
        self._texts = [(place, lengths[place], code) for place, _, code in coded if lengths[place]]
        self._encoders = [(place, code) for place, _, code in coded if not lengths[place]]
        # Values that the statement itself contains, such as the 'running' of a state filter.
        own = [name for name in by_name if name not in given]
        self._constants = [bind.value if code is None else code(bind.value) for bind, code in map(by_name.__getitem__, own)]
        distinct = [*given, *own]
        self._spread = None if distinct == list(names) else _picker([distinct.index(name) for name in names])
        columns = columns_of(statement)
        decoders: list[Decoder] = [decoder_of(column.type, dialect) for column in columns]
        self._coded = [(place, getattr(code, "of_values", code)) for place, code in enumerate(decoders) if code is not None]
        """The decoded columns, each with a decoder of one value."""
        self._cells = Cells(statement, columns, decoders, typed=reader.typed, dialect=dialect)
        self._kinds = self._cells.kinds()
        self._valid_types: set[tuple[type, ...]] = set()
        """The types of rows that were checked before and were valid."""
        self._reader, self._goes_on = reader, not (reader.typed or isinstance(statement, Select))
        row = f"({', '.join('?' * len(names))})"
        self._row = row if names and f" VALUES {row}" in self.sql else None
        """The SQL of the parameters of one row, in an `INSERT … VALUES` for SQLite."""

    def with_text(self, change: Callable[[str], str]) -> "CompiledStatement":
        made = object.__new__(CompiledStatement)
        for name in CompiledStatement.__slots__:
            setattr(made, name, getattr(self, name))
        made.sql = change(self.sql)
        return made

    def args(self, values: Mapping[str, Any]) -> Sequence[Any]:
        """The driver's positional arguments. Each value is encoded by its column type, once however often it is used."""
        row = [*self._pick(values), *self._constants]
        try:
            for place, length, code in self._texts:
                text = row[place]
                if text is not None and (type(text) is not str or len(text) > length or not text.isascii() or "\x00" in text):
                    row[place] = code(text)
            for place, code in self._encoders:
                if row[place] is not None:
                    row[place] = code(row[place])
        except InvalidValue as error:
            raise not_storable(error) from None
        return row if self._spread is None else self._spread(row)

    def run(self, driver: Driver, values: Mapping[str, Any]) -> int:
        count: int = driver.execute(self.sql, self.args(values)).rowcount
        return count

    def run_many(self, driver: Any, rows: Sequence[Mapping[str, Any]]) -> int:
        """Execute for every row; the number of rows changed. On SQLite one `INSERT … VALUES` saves waits for other threads."""
        given = [self.args(row) for row in rows]
        if self._row is None or len(given) < 2:
            count: int = driver.executemany(self.sql, given).rowcount
            return count
        count = 0
        for start in range(0, len(given), MAX_ROWS):
            chunk = given[start : start + MAX_ROWS]
            sql = self.sql.replace(self._row, ", ".join([self._row] * len(chunk)), 1)
            count += driver.execute(sql, [value for row in chunk for value in row]).rowcount
        return count

    def all(self, driver: Driver, values: Mapping[str, Any], by: By = RAISING) -> list[Row]:
        """Execute; every row, decoded. For unreadable rows (`by`), see `persist.db.unreadable.cells`."""
        return self.fetched(driver.execute(self.sql, self.args(values)), driver, values, by)

    def fetched(self, cursor: Any, driver: Driver, values: Mapping[str, Any], by: By = RAISING) -> list[Row]:
        """Every row of a cursor that has executed the statement with these values, decoded."""
        rows = None
        try:
            rows = rows_on(cursor, driver, self._reader) if self._goes_on else cursor.fetchall()
            if by[1] is not None and by[1].strict:
                raise _WrongKindError
            return self._decoded(rows)
        except Exception as error:
            return self._reread(driver, values, rows, error, by, cursor)

    def one(self, driver: Driver, values: Mapping[str, Any], by: By = RAISING) -> Row | None:
        """Execute; the first row, decoded, or None."""
        cursor, row = driver.execute(self.sql, self.args(values)), None
        try:
            row = cursor.fetchone()
            if row is None:
                return None
            if by[1] is not None and by[1].strict:
                raise _WrongKindError
            if self._kinds and (types := tuple(map(type, row))) not in self._valid_types:
                self._check_types(types)
            return self._row_decoded(row)
        except Exception as error:
            rows = self._reread(driver, values, None if row is None else [row], error, by, cursor)
            return rows[0] if rows else None

    def chunks(self, cursor: Any, values: Mapping[str, Any], rows: int, by: By = RAISING) -> Iterator[list[Row]]:
        """Execute on a cursor that fetches on demand; lists of at most `rows` rows, decoded."""
        cursor.execute(self.sql, self.args(values))
        reader = self._reader
        while True:
            fetched = None
            try:
                fetched = cursor.fetchmany(rows) if reader.typed else rows_on(cursor, cursor.connection, reader, rows)
                decoded = self._decoded(fetched)
            except Exception as error:
                if fetched is None and by[0] is not OnUnreadable.RAISE:
                    raise  # the driver refused a value: all rows are read again to find it, which gives none twice if it raises
                decoded = self._reread(cursor.connection, values, fetched, error, by)
            if not fetched:
                return
            yield decoded

    def _reread(
        self, driver: Any, values: Mapping[str, Any], rows: list[Row] | None, error: Exception, by: By, cursor: Any = None
    ) -> list[Row]:
        """Decode the rows cell by cell, after an error of the driver or of a decoder.

        `rows` is None if the driver failed to fetch them. A cursor of a pipeline then fetches them from the same answer
        (`reloaded`). Without one the query is executed again; `rows_on` fetches what a writing statement wrote. The other
        cursors are closed: the traceback of an error that somebody keeps would keep one open, and on SQLite the connection its
        snapshot of the file.
        """
        reload: Callable[[Any], list[Row]] | None = getattr(cursor, "reloaded", None)
        if cursor is not None and reload is None:
            cursor.close()
        if rows is None:
            if self._goes_on or not self._reader.refused(error):
                raise error
            with self._reader.lenient(driver):
                rows = driver.execute(self.sql, self.args(values)).fetchall() if reload is None else reload(driver)
        return self._cells.rows(rows, values, *by)

    def _decoded(self, rows: list[Row]) -> list[Row]:
        if not rows or not (self._coded or self._kinds):
            return rows
        if len(rows) == 1:
            if self._kinds and (types := tuple(map(type, rows[0]))) not in self._valid_types:
                self._check_types(types)
            return [self._row_decoded(rows[0])]
        # Decode column by column: one lookup of the decoder per column instead of one per cell.
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        for place, kind in self._kinds:
            if not kind.issuperset(map(type, columns[place])):
                raise _WrongKindError
        if not self._coded:
            return rows
        for place, code in self._coded:
            column = columns[place]
            columns[place] = (
                [None if value is None else code(value) for value in column] if None in column else [*map(code, column)]
            )
        return list(zip(*columns, strict=True))

    def _row_decoded(self, row: Row) -> Row:
        if not self._coded:
            return row
        cells = [*row]
        for place, code in self._coded:
            if cells[place] is not None:
                cells[place] = code(cells[place])
        return tuple(cells)

    def _check_types(self, types: tuple[type, ...]) -> None:
        for place, kind in self._kinds:
            if types[place] not in kind:
                raise _WrongKindError
        if len(self._valid_types) < _MAX_VALID_TYPES:
            self._valid_types.add(types)


def columns_of(statement: Any) -> list[ColumnElement[Any]]:
    """The columns that a SELECT or a RETURNING gives; none for another statement."""
    columns = statement.selected_columns if isinstance(statement, Select) else getattr(statement, "exported_columns", ())
    return list(columns)


class _WrongKindError(Exception):
    """A column holds a value that its type does not allow, which is possible on SQLite."""


_MAX_VALID_TYPES = 64

MAX_ROWS = 64
"""Most rows of one `INSERT … VALUES`: SQLite prepares a statement for each number of rows."""


def _picker(keys: Sequence[Any]) -> Callable[[Any], Sequence[Any]]:
    if len(keys) > 1:
        return itemgetter(*keys)
    if not keys:
        return lambda _: ()
    (key,) = keys
    return lambda values: (values[key],)  # an itemgetter of one key returns no tuple


def decoder_of(kind: TypeEngine[Any], dialect: Dialect) -> Decoder:
    """The function that decodes the driver's values for a column type; None if they need no decoding."""
    if isinstance(kind, Float):  # both drivers return floats; SQLAlchemy's processor would need to know the DBAPI type
        return None
    return kind.dialect_impl(dialect).result_processor(dialect, None)


class Statement:
    """A prepared statement, declared at module level from tables and parameters, and compiled when first used.

    silent      it changes only how something is stored, so it makes no event
    unreadable  what to do with unreadable rows, if not what the calling verb's kind implies
    """

    UNMADE = object()
    __slots__ = ("silent", "statement", "twin", "unreadable")

    def __init__(self, statement: Executable, *, silent: bool = False, unreadable: OnUnreadable | None = None) -> None:
        self.statement, self.silent, self.unreadable = statement, silent, unreadable
        self.twin: Any = Statement.UNMADE
        """The statement with a RETURNING of what it changes, once made; see persist.db.changes.journal."""


class StatementCache(dict[Statement, CompiledStatement]):
    """The compiled statements for one dialect and schema, each compiled when first looked up."""

    def __init__(self, dialect: Dialect, schema: str | None, reader: Rereader) -> None:
        super().__init__()
        self.dialect, self._schema, self.reader = dialect, schema, reader

    def __missing__(self, prepared: Statement) -> CompiledStatement:
        compiled = self[prepared] = self.compile(prepared.statement)
        return compiled

    def compile(self, statement: Executable) -> CompiledStatement:
        return CompiledStatement(statement, self.dialect, self._schema, self.reader)


# The process-wide cache of compiled statements: stores on the same kind of database and the same schema share it.

Kind = Callable[..., Dialect]


@lru_cache(maxsize=16)  # with more schemas than that, statements of the least recently used one are compiled again
def compiled_for(kind: Kind, schema: str | None, reader: Rereader) -> StatementCache:
    """The statements compiled for a dialect (SQLAlchemy's class) and a schema; `schema` is None on SQLite."""
    if schema is not None:
        return StatementCache(kind(paramstyle="format"), schema, reader)
    dialect = kind()
    dialect.default_schema_name = "main"
    return StatementCache(dialect, None, reader)


_PLACE = "persist_place_of_a_schema"
"""The schema name in statements that are compiled once for every schema."""
PLACE_OF_CHANNEL = "persist_place_of_a_channel"
"""The name of the channel for notifications of events in such statements."""


class StatementsOfSchema(StatementCache):
    """The statements of one schema: shared texts with its name. `channel`: where its readers of events are notified."""

    def __init__(self, kind: Kind, schema: str, reader: Rereader, channel: str) -> None:
        dialect = _template(kind, reader).dialect
        super().__init__(dialect, schema, reader)
        name = str(dialect.identifier_preparer.quote_schema(schema))  # in quotes where it is a word of SQL
        self._kind, self._names = kind, (name, channel)

    def __getitem__(self, prepared: Statement) -> CompiledStatement:
        return _in_schema(self._kind, self.reader, prepared, self._names)


@lru_cache(maxsize=4096)  # each takes 1.5 KB, and making another from its template takes microseconds
def _in_schema(kind: Kind, reader: Rereader, prepared: Statement, names: tuple[str, str]) -> CompiledStatement:
    schema, channel = names
    shared = _template(kind, reader)[prepared]
    return shared.with_text(lambda sql: sql.replace(_PLACE, schema).replace(PLACE_OF_CHANNEL, channel))


@lru_cache(maxsize=4)
def _template(kind: Kind, reader: Rereader) -> StatementCache:
    return StatementCache(kind(paramstyle="format"), _PLACE, reader)


Kinds = list[tuple[int, frozenset[type]]]
_kinds: WeakKeyDictionary[Any, Kinds] = WeakKeyDictionary()
"""Positions and allowed types of a statement's columns, by the compiled statement, which Core caches by the statement's form."""


def fetched(
    connection: Connection,
    execute: Callable[[Any, Any], CursorResult[Any]],
    reader: Rereader,
    statement: Any,
    values: Mapping[str, Any],
    by: By,
) -> list[Row]:
    """Execute; every row, decoded. For unreadable rows (`by`), see `persist.db.unreadable.cells`."""
    result = execute(statement, values)
    if reader.typed or isinstance(statement, Select):
        kinds = [] if reader.typed else _kinds_of(result, statement)
        try:
            rows = [tuple(row) for row in result]
            columns = list(zip(*rows, strict=True))
            is_strict = by[1] is not None and by[1].strict
            if not rows or (not is_strict and all(kind.issuperset(map(type, columns[place])) for place, kind in kinds)):
                return rows
        except Exception:
            result.close()  # an error that somebody keeps would keep it open, and on SQLite its snapshot of the file
            if not isinstance(statement, Select):
                raise
        with reader.lenient(connection.connection.driver_connection):
            result = execute(statement, values)
            assert result.cursor is not None
            raw = result.cursor.fetchall()
    else:
        raw = rows_on(result.cursor, connection.connection.driver_connection, reader)
    result.close()
    return _cells_of(statement, connection.dialect, typed=reader.typed).rows(raw, values, *by)


def _kinds_of(result: CursorResult[Any], statement: Any) -> Kinds:
    compiled: Any = getattr(result.context, "compiled", None)
    kinds = None if compiled is None else _kinds.get(compiled)
    if kinds is None:
        kinds = _cells_of(statement, None, typed=False).kinds()
        if compiled is not None:
            _kinds[compiled] = kinds
    return kinds


def _cells_of(statement: Any, dialect: Dialect | None, *, typed: bool) -> Cells:
    columns = columns_of(statement)
    decoders = [] if dialect is None else [decoder_of(column.type, dialect) for column in columns]
    return Cells(statement, columns, decoders, typed=typed, dialect=dialect)
