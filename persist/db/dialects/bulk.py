"""Bulk reads and writes of whole tables in one open transaction, in batches, in the published form of values."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from sqlalchemy import Column, Table

from persist.db.formats import Step, filled, form_of
from persist.db.schema.column_types import Label
from persist.db.statements.prepared import CompiledStatement
from persist.db.values.escaping import quoted
from persist.errors import InvalidValue, named

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect


# Values of columns that persist does not know, as a database keeps them: integers, numbers, text and bytes.

Row = tuple[Any, ...]
_ROWS = 500


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """A column that persist does not know.

    `kind`: the type of all its values, "integer", "real", "text" or "bytes"; "nan" for reals with NaN among them, "any" for
    values of several types. `values`: how many are not NULL. `declared`: the type of a server's column.
    """

    name: str
    kind: str
    values: int
    declared: str | None = None


KINDS = ("integer", "real", "nan", "text", "bytes", "any")


def absent(column: Column[Any]) -> str | int:
    """What stands, in the key of a row, for a column of the key that is NULL."""
    return "" if isinstance(column.type, Label) else -1


def _key_values(key: Sequence[Column[Any]], row: Row) -> Row:
    return tuple([absent(column) if value is None else value for column, value in zip(key, row, strict=False)])


class PlainValues(ABC):
    """Reads and writes such columns in one transaction. Names are quoted, and no text of the other database is executed."""

    dialect: "Dialect"
    driver: Any
    readers: "WeakSet[Generator[list[Row], None, None]]"
    """What still reads: it is closed before the transaction ends."""
    mark: str
    """The placeholder of a parameter in SQL text."""

    @abstractmethod
    def plain_columns(self, table: str) -> list[PlainColumn]:
        """Every column of a table, with what it holds."""

    @abstractmethod
    def type_for(self, column: PlainColumn) -> str | None:
        """The type of a column here that holds the values of `column`; None if none does."""

    @abstractmethod
    def takes_name(self, name: str) -> bool:
        """Whether a table or an added column can have this name here, unchanged."""

    @abstractmethod
    def folded(self, name: str) -> str:
        """What two names of columns or tables have in common if they are one here."""

    @abstractmethod
    def may_hold(self, type: str, column: PlainColumn) -> bool:
        """Whether an existing column of this type takes the values of `column` unchanged."""

    @abstractmethod
    def plain_term(self, column: PlainColumn) -> str:
        """The SQL text that reads the column."""

    @abstractmethod
    def plain_mark(self, column: PlainColumn) -> str:
        """The placeholder of a value of the column."""

    def rows_of(self, table: str) -> int:
        return int(self._run(f"SELECT count(*) FROM {self.table_name(table)}").fetchone()[0])

    def create_plain(self, table: str, columns: Sequence[PlainColumn]) -> None:
        listed = ", ".join(f"{self.name(column.name)} {self.type_for(column)}" for column in columns)
        self._run(f"CREATE TABLE {self.table_name(table)} ({listed})")

    def add_plain(self, table: str, columns: Sequence[PlainColumn]) -> None:
        for column in columns:
            self._run(f"ALTER TABLE {self.table_name(table)} ADD COLUMN {self.name(column.name)} {self.type_for(column)}")

    def clear_plain(self, table: str, columns: Sequence[PlainColumn] | None = None) -> None:
        """Delete the rows of the table, or empty the columns."""
        if columns is None:
            self._run(f"DELETE FROM {self.table_name(table)}")
        elif columns:
            values = ", ".join(f"{self.name(column.name)} = NULL" for column in columns)
            self._run(f"UPDATE {self.table_name(table)} SET {values} WHERE {self._has_any(columns)}")

    def read_plain(
        self, table: str, key: Sequence[Column[Any]], columns: Sequence[PlainColumn], *, at: Row | None = None
    ) -> Iterator[list[Row]]:
        """Iterate over the rows with values in these columns, or that of the key `at`: batches of the key and the values."""
        found = self._read_plain(table, key, columns, at)
        self.readers.add(found)
        return found

    def _read_plain(
        self, table: str, key: Sequence[Column[Any]], columns: Sequence[PlainColumn], at: Row | None
    ) -> Generator[list[Row], None, None]:
        terms = [*(self.name(column.name) for column in key), *map(self.plain_term, columns)]
        some = self._has_any(columns) if key else "1 = 1"
        where, arguments = (some, ()) if at is None else (self.key_is(key), _key_values(key, at))
        try:
            with closing(self.dialect.transactions.reading_cursor(self.driver)) as cursor:
                cursor.execute(f"SELECT {', '.join(terms)} FROM {self.table_name(table)} WHERE {where}", arguments)
                while found := cursor.fetchmany(_ROWS):
                    yield [tuple(row) for row in found]
        except Exception as error:
            raise self.unread(error, table) from error

    def _has_any(self, columns: Sequence[PlainColumn]) -> str:
        return " OR ".join(f"{self.name(column.name)} IS NOT NULL" for column in columns)

    def write_plain(self, table: str, key: Sequence[Column[Any]], columns: Sequence[PlainColumn], rows: Sequence[Row]) -> None:
        """Write rows of `read_plain`: into the rows with these keys, or as new rows where there is no key."""
        marks = [self.plain_mark(column) for column in columns]
        if key:
            values = ", ".join(f"{self.name(column.name)} = {mark}" for column, mark in zip(columns, marks, strict=True))
            count, where = len(key), self.key_is(key)
            arguments = [(*row[count:], *_key_values(key, row)) for row in rows]
            self.run_many(f"UPDATE {self.table_name(table)} SET {values} WHERE {where}", arguments)
        else:
            listed = ", ".join(self.name(column.name) for column in columns)
            self.run_many(f"INSERT INTO {self.table_name(table)} ({listed}) VALUES ({', '.join(marks)})", rows)

    def name(self, name: str) -> str:
        """The name quoted for SQL text that has placeholders."""
        return quoted(name).replace("%", "%%") if self.mark == "%s" else quoted(name)

    def table_name(self, table: str) -> str:
        return self.name(table) if self.dialect.schema is None else f"{self.name(self.dialect.schema)}.{self.name(table)}"

    def key_is(self, key: Sequence[Column[Any]]) -> str:
        """The condition for the row with a key, which has a value of its own for NULL."""
        terms = [(self.name(column.name), f"{absent(column)!r}" if column.nullable else None) for column in key]
        return " AND ".join(f"{name if none is None else f'COALESCE({name}, {none})'} = {self.mark}" for name, none in terms)

    def unread(self, error: Exception, table: str) -> Exception:
        return self.dialect.errors.classify(error) or error

    def _run(self, sql: str) -> Any:
        return self.driver.execute(sql, ())

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each row of arguments. Raises the typed error of a refused row."""
        with self.dialect.errors.translated(), closing(self.driver.cursor()) as cursor:
            cursor.executemany(sql, rows)


Columns = Sequence[Column[Any]]

_FIRST, _MAX_ROWS = 8, 1024
_MAX_BYTES = 2**20


class Bulk(PlainValues):
    """Bulk reads and writes of one transaction, on one of persist's own driver connections."""

    one_file: bool
    """Whether the database is one file, which may belong to one run, instance or workspace."""
    read_by: str
    written_by: str
    """The steps of a column's Form that make the published form of the driver's values, and these of it."""

    def __init__(self, dialect: "Dialect", driver: Any) -> None:
        self.dialect, self.driver = dialect, driver
        self.restore_guards: Callable[[], None] = lambda: None
        self.filled: Counter[str] = Counter()
        """How many values were read where nothing is stored, and other databases have to hold something, by table.column."""
        self.readers = WeakSet()
        self._may_lack: dict[str, frozenset[str]] = {}

    # -- reading

    def batches(
        self,
        compiled: CompiledStatement,
        columns: Columns,
        values: Mapping[str, Any] | None = None,
        *,
        raw: bool = False,
        rows: int = _MAX_ROWS,
    ) -> Generator[list[Row], None, None]:
        """Execute a SELECT of these columns and yield batches of its rows, of about a megabyte. `raw`: values stay as stored."""
        found = self._batches(compiled, columns, values or {}, raw=raw, rows=rows)
        self.readers.add(found)
        return found

    def _batches(
        self, compiled: CompiledStatement, columns: Columns, values: Mapping[str, Any], *, raw: bool, rows: int
    ) -> Generator[list[Row], None, None]:
        table = columns[0].table
        if table.name not in self._may_lack:
            self._may_lack[table.name] = self.dialect.tables.may_lack(self.driver, table)
        lacking = self._may_lack[table.name]
        steps: list[Step | None] = [None if raw else getattr(form_of(column), self.read_by) for column in columns]
        large = [index for index, column in enumerate(columns) if form_of(column).large]
        size = min(_FIRST, rows)
        try:
            with closing(self.dialect.transactions.reading_cursor(self.driver)) as cursor:
                cursor.execute(compiled.sql, compiled.args(values))
                while found := cursor.fetchmany(size):
                    published = converted(found, columns, steps)
                    yield filled(published, tuple(columns), lacking, self.filled) if lacking else published
                    size = min(rows, next_size(found, large, size))
        except Exception as error:
            raise self.unread(error, str(table.name)) from error

    # -- writing

    @abstractmethod
    def begin_loading(self, tables: Iterable[Table]) -> None:
        """Lock out other writers of the tables until the transaction ends, defer foreign key checks, and lift row guards."""

    @abstractmethod
    def load(self, table: Table, columns: Columns, batches: Iterable[list[Row]], *, raw: bool = False) -> None:
        """Insert rows in the published form, or (`raw`) in the form in which this kind of database stores them."""

    @abstractmethod
    def end_loading(self) -> None:
        """Put the row guards back. Raise Conflict if a loaded row refers to a missing row."""

    def leave(self) -> None:
        """Close what still reads, and restore the connection's settings, before the transaction ends."""
        for reader in list(self.readers):  # after an error, which says what is wrong, nobody reads them to their end
            with suppress(Exception):
                reader.close()

    def stored(self, columns: Columns, rows: Sequence[Row], *, raw: bool) -> list[Row]:
        """Convert rows, in the published form or (`raw`) in that of this kind of database, to the values of parameters."""
        return converted(rows, columns, [None if raw else getattr(form_of(column), self.written_by) for column in columns])

    def change(self, table: Table, columns: Columns, rows: Sequence[Row], key: Columns, *, raw: bool = False) -> None:
        """Give the rows with these keys these values. Columns of the key stay as they are."""
        keyed = {column.name for column in key}
        places = [place for place, column in enumerate(columns) if column.name not in keyed]
        names = {column.name: place for place, column in enumerate(columns)}
        values = ", ".join(f"{self.name(columns[place].name)} = {self.mark}" for place in places)
        arguments = [
            [*(row[place] for place in places), *(key_value(column, row[names[column.name]]) for column in key)]
            for row in self.stored(columns, rows, raw=raw)
        ]
        self.run_many(f"UPDATE {self.table_name(table.name)} SET {values} WHERE {self.key_is(key)}", arguments)

    def delete(self, table: Table, key: Columns, keys: Sequence[Sequence[Any]]) -> None:
        arguments = [[key_value(column, value) for column, value in zip(key, row, strict=True)] for row in keys]
        self.run_many(f"DELETE FROM {self.table_name(table.name)} WHERE {self.key_is(key)}", arguments)

    def clear(self, table: Table) -> None:
        self.driver.execute(f"DELETE FROM {self.table_name(table.name)}")

    # -- integer keys

    @abstractmethod
    def highest(self, table: Table) -> int | None:
        """The highest integer key that the table ever generated; None if unknown."""

    @abstractmethod
    def go_on_after(self, table: Table, highest: int) -> None:
        """Make the table generate integer keys above `highest` from now on."""

    # -- names

    @abstractmethod
    def identity(self) -> tuple[Any, ...]:
        """A value that is equal for two connections to the same tables."""

    @abstractmethod
    def lasting_identity(self) -> tuple[Any, ...]:
        """As `identity`, but the same after a restart of the server as before."""

    def listed(self, columns: Columns) -> str:
        return ", ".join(self.name(column.name) for column in columns)


def key_value(column: Column[Any], value: Any) -> Any:
    """The value of a column in the key of a row."""
    return absent(column) if value is None else value


def converted(rows: Sequence[Row], columns: Columns, steps: Sequence[Step | None]) -> list[Row]:
    """Convert each value with the step of its column; InvalidValue names the table, column and row."""
    if not rows or not any(steps):
        return list(rows)
    try:
        # column by column: one call site per step instead of one test per cell
        changed = [
            found if step is None else [None if value is None else step(value) for value in found]
            for found, step in zip(zip(*rows, strict=True), steps, strict=True)
        ]
    except InvalidValue:
        raise _blamed(rows, columns, steps) from None
    return list(zip(*changed, strict=True))


def _blamed(rows: Sequence[Row], columns: Columns, steps: Sequence[Step | None]) -> InvalidValue:
    for row in rows:
        for value, column, step in zip(row, columns, steps, strict=True):
            try:
                _ = value if step is None or value is None else step(value)
            except InvalidValue as error:
                where = f"{error.path}: " if error.path else ""
                return InvalidValue(
                    f"{column.table.name}.{column.name}", f"in the row {_key(row, columns)}: {where}{error.reason}"
                )
    raise AssertionError("unreachable: a step that refused a value refuses it again")


def _key(row: Row, columns: Columns) -> str:
    keys = {column.name for column in columns[0].table.primary_key.columns} or {column.name for column in columns[:3]}
    return ", ".join(f"{column.name} {named(value)}" for column, value in zip(columns, row, strict=True) if column.name in keys)


def next_size(found: Sequence[Row], large: Sequence[int], size: int) -> int:
    """The size of the next batch, from the bytes in this one: rows can have a hundred bytes or a hundred megabytes."""
    weight = sum(len(value) for row in found for index in large if isinstance(value := row[index], str | bytes))
    if weight > _MAX_BYTES:
        return max(1, size * _MAX_BYTES // (2 * weight))
    return min(_MAX_ROWS, size * 2) if weight * 2 <= _MAX_BYTES else size
