"""Hot statements: Core statements compiled once per dialect and schema, run on the driver connection itself.

A compiled statement costs what a hand-written driver call costs; a cached Core execution four to six times that.
Column types still encode and decode every value, so a hot statement reads and writes exactly what Core would.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import BigInteger, BindParameter, Executable, Float, bindparam, literal
from sqlalchemy import Dialect as SADialect
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import Select
from sqlalchemy.types import NullType, TypeEngine

from persist.db.base import SCHEMA_TOKEN
from persist.db.rereading import NOBODY, By, Rereader
from persist.db.spoilt import Cells, Decoder, Spoilt, kind_of

if TYPE_CHECKING:
    from persist.db.changes import Journal

Row = tuple[Any, ...]


def param(name: str) -> BindParameter[Any]:
    """A named parameter; its column gives it its type."""
    return bindparam(name)


LIMIT = bindparam("limit", type_=BigInteger())
"""The parameter of a page's size: `.limit()` gives a plain one no type."""


def among(column: ColumnElement[Any], words: Iterable[Any]) -> ColumnElement[bool]:
    """`column IN (…)` for words known now; a plain list would be expanded at execution, which a hot statement is not."""
    return column.in_([literal(word, column.type) for word in words])


class Driver(Protocol):
    """What both drivers' connections, and a cursor that is used again and again, have in common."""

    def execute(self, sql: Any, parameters: Any = ..., /) -> Any: ...


class Compiled:
    """One statement for one dialect and schema: its text, and how values go in and come out."""

    __slots__ = (
        "_again_gives_the_same",
        "_cells",
        "_constants",
        "_decoders",
        "_encoders",
        "_kinds",
        "_known",
        "_pick",
        "_reader",
        "names",
        "sql",
    )

    def __init__(self, statement: Executable, dialect: SADialect, schema: str | None, reader: Rereader) -> None:
        compiled = statement.compile(  # type: ignore[attr-defined]  # every Executable we use is a ClauseElement
            dialect=dialect, schema_translate_map={SCHEMA_TOKEN: schema}, render_schema_translate=True
        )
        self.sql = str(compiled)
        self.names = names = tuple(compiled.positiontup or ())
        """Of the parameters, in the order of `args`."""
        untyped = [name for name in names if isinstance(compiled.binds[name].type, NullType)]
        assert not untyped, f"parameters without a type would reach the driver as they are: {untyped} in {self.sql}"
        binds = [compiled.binds[name] for name in names]
        encoders = [bind.type.dialect_impl(dialect).bind_processor(dialect) for bind in binds]
        places = list(enumerate(zip(binds, encoders, strict=True)))
        self._pick = _picker([name for name, bind in zip(names, binds, strict=True) if bind.required])
        self._encoders = [(place, code) for place, (bind, code) in places if bind.required and code is not None]
        # what is written into the statement itself, such as the 'running' of a state filter
        self._constants = [
            (place, bind.value if code is None else code(bind.value)) for place, (bind, code) in places if not bind.required
        ]
        columns = statement.selected_columns if isinstance(statement, Select) else getattr(statement, "exported_columns", ())
        decoders: list[Decoder] = [decoder_of(column.type, dialect) for column in columns]
        self._decoders: list[Decoder] | None = decoders if any(decoders) else None
        kinds = [None if reader.typed else kind_of(column) for column in columns]
        self._kinds = [(place, kind) for place, kind in enumerate(kinds) if kind is not None]
        self._known: set[tuple[type, ...]] = set()
        """The types of rows that were looked at before, in each of which a column holds what it may hold."""
        self._cells = Cells(statement, list(columns), decoders, kinds)
        self._reader, self._again_gives_the_same = reader, isinstance(statement, Select)

    def args(self, values: Mapping[str, Any]) -> list[Any]:
        """The driver's positional arguments, each through its column type."""
        row = list(self._pick(values))
        for place, constant in self._constants:
            row.insert(place, constant)
        for place, code in self._encoders:
            row[place] = code(row[place])
        return row

    def run(self, driver: Driver, values: Mapping[str, Any]) -> int:
        """Execute; the number of rows changed."""
        count: int = driver.execute(self.sql, self.args(values)).rowcount
        return count

    def run_many(self, driver: Any, rows: Sequence[Mapping[str, Any]]) -> int:
        """Execute once per row, in one call; the number of rows changed in all."""
        cursor = driver.cursor()
        cursor.executemany(self.sql, [self.args(row) for row in rows])
        count: int = cursor.rowcount
        cursor.close()
        return count

    def all(self, driver: Driver, values: Mapping[str, Any], by: By = NOBODY) -> list[Row]:
        """Execute; every row, decoded. Of rows that cannot be read, see `persist.db.spoilt`."""
        cursor, rows = driver.execute(self.sql, self.args(values)), None
        try:
            rows = cursor.fetchall()
            return self._decoded(rows)
        except Exception as error:
            return self._again(driver, values, rows, error, by)

    def one(self, driver: Driver, values: Mapping[str, Any], by: By = NOBODY) -> Row | None:
        """Execute; the first row, decoded, or None."""
        cursor, row = driver.execute(self.sql, self.args(values)), None
        try:
            row = cursor.fetchone()
            if row is None:
                return None
            if self._kinds and (types := tuple(map(type, row))) not in self._known:
                self._look(types)
            return row if self._decoders is None else _decode(row, self._decoders)
        except Exception as error:
            found = self._again(driver, values, None if row is None else [row], error, by)
            return found[0] if found else None

    def chunks(self, cursor: Any, values: Mapping[str, Any], rows: int, by: By = NOBODY) -> Iterator[list[Row]]:
        """Execute on a cursor that reads on demand; so many rows at a time, decoded."""
        cursor.execute(self.sql, self.args(values))
        while found := cursor.fetchmany(rows):
            try:
                decoded = self._decoded(found)
            except Exception as error:
                decoded = self._again(cursor, values, found, error, by)
            yield decoded

    def _again(self, driver: Any, values: Mapping[str, Any], rows: list[Row] | None, error: Exception, by: By) -> list[Row]:
        """The rows cell by cell, after an error of the driver or of a decoder; asked for again where the driver has none."""
        if rows is None:
            if not self._reader.refused(error):
                raise error
            if not self._again_gives_the_same:
                raise self._cells.unknown() from error
            with self._reader.lenient(driver):
                rows = driver.execute(self.sql, self.args(values)).fetchall()
        return self._cells.rows(rows, values, *by)

    def _decoded(self, rows: list[Row]) -> list[Row]:
        decoders = self._decoders
        if not rows or (decoders is None and not self._kinds):
            return rows
        if len(rows) == 1:
            if self._kinds and (types := tuple(map(type, rows[0]))) not in self._known:
                self._look(types)
            return rows if decoders is None else [_decode(rows[0], decoders)]
        # Column by column: one call site per decoder instead of one test per cell.
        columns = list(zip(*rows, strict=True))
        for place, kind in self._kinds:
            if not kind.issuperset(map(type, columns[place])):
                raise _WrongKindError
        if decoders is None:
            return rows
        decoded = [
            column if code is None else [None if value is None else code(value) for value in column]
            for column, code in zip(columns, decoders, strict=True)
        ]
        return list(zip(*decoded, strict=True))

    def _look(self, types: tuple[type, ...]) -> None:
        for place, kind in self._kinds:
            if types[place] not in kind:
                raise _WrongKindError
        if len(self._known) < _KNOWN:
            self._known.add(types)


class _WrongKindError(Exception):
    """A column holds what its type does not allow, as SQLite lets any column do."""


_KNOWN = 64


def _picker(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Iterable[Any]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: [values[name] for name in names]  # an itemgetter of one name gives no tuple


def _decode(row: Row, decoders: Sequence[Decoder]) -> Row:
    return tuple([value if code is None or value is None else code(value) for value, code in zip(row, decoders, strict=True)])


def decoder_of(kind: TypeEngine[Any], dialect: SADialect) -> Decoder:
    """What makes a Python object of what the driver gives; None where that is one."""
    if isinstance(kind, Float):  # both drivers give floats; the processor would want to know the wire type
        return None
    return kind.dialect_impl(dialect).result_processor(dialect, None)


class Hot:
    """A statement to be compiled when first used: declared at module level, from the models' tables and bindparams.

    `silent`: it changes how something is stored and not what, so it is no event.
    `spoilt`: what becomes of a row that cannot be read, where it is not for the verb to say.
    """

    UNMADE = object()
    __slots__ = ("silent", "spoilt", "statement", "twin")

    def __init__(self, statement: Executable, *, silent: bool = False, spoilt: Spoilt | None = None) -> None:
        self.statement, self.silent, self.spoilt = statement, silent, spoilt
        self.twin: Any = Hot.UNMADE
        """The same statement, returning what it changes; see persist.db.changes."""


class HotCache(dict[Hot, Compiled]):
    """The compiled statements of one store, each made when it is first asked for."""

    def __init__(self, dialect: SADialect, schema: str | None, reader: Rereader) -> None:
        super().__init__()
        self._dialect, self._schema, self.reader = dialect, schema, reader

    def __missing__(self, hot: Hot) -> Compiled:
        compiled = self[hot] = self.compile(hot.statement)
        return compiled

    def compile(self, statement: Executable) -> Compiled:
        """One that nobody else will ask for."""
        return Compiled(statement, self._dialect, self._schema, self.reader)


class Statements(Protocol):
    """Whoever can run hot statements: a transaction, or a held driver connection."""

    journal: "Journal | None"

    def rows(self, hot: Hot, **values: Any) -> list[Row]: ...
    def row(self, hot: Hot, **values: Any) -> Row | None: ...
    def run(self, hot: Hot, **values: Any) -> int: ...
    def deed(self, name: str, stream: str | None = None) -> None: ...
    def wire(self, text: str) -> str: ...


class HotConnection:
    """Hot statements on a held driver connection, inside whatever transaction it is in."""

    __slots__ = ("_driver", "_hot", "journal", "wire")

    def __init__(self, hot: HotCache, runner: Driver, wire: Callable[[str], str]) -> None:
        self._hot, self._driver, self.wire = hot, runner, wire
        self.journal: Journal | None = None

    def deed(self, name: str, stream: str | None = None) -> None:
        """What follows is one event of that name."""
        if self.journal is not None:
            self.journal.open(name, stream)

    def rows(self, hot: Hot, **values: Any) -> list[Row]:
        """Every row, decoded."""
        return self._hot[hot].all(self._driver, values, (hot.spoilt, None))

    def row(self, hot: Hot, **values: Any) -> Row | None:
        """The first row, decoded, or None."""
        return self._hot[hot].one(self._driver, values)

    def run(self, hot: Hot, **values: Any) -> int:
        """Run it; the number of rows changed."""
        return self.write(hot, values)

    def write(self, hot: Hot, values: Mapping[str, Any]) -> int:
        """As `run`."""
        if self.journal is not None and (rows := self.journal.run(hot, values, self._all)) is not None:
            return len(rows)
        return self._hot[hot].run(self._driver, values)

    def _all(self, hot: Hot, values: Mapping[str, Any]) -> list[Row]:
        return self._hot[hot].all(self._driver, values)
