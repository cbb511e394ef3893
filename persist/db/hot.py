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

if TYPE_CHECKING:
    from persist.db.changes import Journal

Row = tuple[Any, ...]
Decoder = Callable[[Any], Any] | None


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

    __slots__ = ("_constants", "_decoders", "_encoders", "_pick", "names", "sql")

    def __init__(self, statement: Executable, dialect: SADialect, schema: str | None) -> None:
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
        decoders: list[Decoder] = [_decoder(column.type, dialect) for column in columns]
        self._decoders: list[Decoder] | None = decoders if any(decoders) else None

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

    def all(self, driver: Driver, values: Mapping[str, Any]) -> list[Row]:
        """Execute; every row, decoded."""
        return self._decoded(driver.execute(self.sql, self.args(values)).fetchall())

    def chunks(self, cursor: Any, values: Mapping[str, Any], rows: int) -> Iterator[list[Row]]:
        """Execute on a cursor that reads on demand; so many rows at a time, decoded."""
        cursor.execute(self.sql, self.args(values))
        while found := cursor.fetchmany(rows):
            yield self._decoded(found)

    def _decoded(self, rows: list[Row]) -> list[Row]:
        decoders = self._decoders
        if decoders is None or not rows:
            return rows
        if len(rows) == 1:
            return [_decode(rows[0], decoders)]
        # Column by column: one call site per decoder instead of one test per cell.
        columns = [
            column if code is None else [None if value is None else code(value) for value in column]
            for column, code in zip(zip(*rows, strict=True), decoders, strict=True)
        ]
        return list(zip(*columns, strict=True))

    def one(self, driver: Driver, values: Mapping[str, Any]) -> Row | None:
        """Execute; the first row, decoded, or None."""
        row: Row | None = driver.execute(self.sql, self.args(values)).fetchone()
        return row if row is None or self._decoders is None else _decode(row, self._decoders)


def _picker(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Iterable[Any]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: [values[name] for name in names]  # an itemgetter of one name gives no tuple


def _decode(row: Row, decoders: Sequence[Decoder]) -> Row:
    return tuple([value if code is None or value is None else code(value) for value, code in zip(row, decoders, strict=True)])


def _decoder(kind: TypeEngine[Any], dialect: SADialect) -> Decoder:
    if isinstance(kind, Float):  # both drivers give floats; the processor would want to know the wire type
        return None
    return kind.dialect_impl(dialect).result_processor(dialect, None)


class Hot:
    """A statement to be compiled when first used: declared at module level, from the models' tables and bindparams.

    `silent`: it changes how something is stored and not what, so it is no event.
    """

    UNMADE = object()
    __slots__ = ("silent", "statement", "twin")

    def __init__(self, statement: Executable, *, silent: bool = False) -> None:
        self.statement, self.silent = statement, silent
        self.twin: Any = Hot.UNMADE
        """The same statement, returning what it changes; see persist.db.changes."""


class HotCache(dict[Hot, Compiled]):
    """The compiled statements of one store, each made when it is first asked for."""

    def __init__(self, dialect: SADialect, schema: str | None) -> None:
        super().__init__()
        self._dialect, self._schema = dialect, schema

    def __missing__(self, hot: Hot) -> Compiled:
        compiled = self[hot] = self.compile(hot.statement)
        return compiled

    def compile(self, statement: Executable) -> Compiled:
        """One that nobody else will ask for."""
        return Compiled(statement, self._dialect, self._schema)


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
        return self._hot[hot].all(self._driver, values)

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
