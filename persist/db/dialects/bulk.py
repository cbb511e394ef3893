"""Bulk reads and writes of whole tables in one open transaction, in batches, in the published form of values."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from sqlalchemy import Column, Table

from persist.db.dialects.plain_values import PlainValues, absent
from persist.db.formats.missing_values import filled
from persist.db.formats.published import Step, form_of
from persist.db.statements.prepared import CompiledStatement
from persist.errors import InvalidValue
from persist.quoting import named

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect

Row = tuple[Any, ...]
Columns = Sequence[Column[Any]]

_FIRST, _MAX_ROWS = 8, 1024
_MAX_BYTES = 2**20


def _nothing() -> None:
    pass


class Bulk(PlainValues):
    """Bulk reads and writes of one transaction, on one of persist's own driver connections."""

    one_file: bool
    """Whether the database is one file, which may belong to one run, instance or workspace."""
    mark: str
    """The placeholder of a parameter in SQL text."""

    def __init__(self, dialect: "Dialect", driver: Any) -> None:
        self.dialect, self.driver = dialect, driver
        self.restore_guards: Callable[[], None] = _nothing
        self.filled: Counter[str] = Counter()
        """How many values were read where nothing is stored, and other databases have to hold something, by table.column."""
        self._readers: WeakSet[Generator[list[Row], None, None]] = WeakSet()
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
        """Execute a SELECT of these columns and yield its rows in batches of up to `rows` rows or about a megabyte.

        InvalidValue names the table, column and row of a value without a published form. `raw`: values stay as stored. What other
        databases must hold, and this one does not, has a value: see `persist.db.formats.missing_values`.
        """
        found = self._batches(compiled, columns, values or {}, raw=raw, rows=rows)
        self._readers.add(found)
        return found

    def _batches(
        self, compiled: CompiledStatement, columns: Columns, values: Mapping[str, Any], *, raw: bool, rows: int
    ) -> Generator[list[Row], None, None]:
        table = columns[0].table
        if table.name not in self._may_lack:
            self._may_lack[table.name] = self.dialect.tables.may_lack(self.driver, table)
        lacking = self._may_lack[table.name]
        steps: list[Step | None] = [None if raw else self.reading_step(column) for column in columns]
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

    @abstractmethod
    def reading_step(self, column: Column[Any]) -> Step | None:
        """Return the function that converts the driver's values of a column to the published form; None where none is needed."""

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
        for reader in list(self._readers):  # after an error, which says what is wrong, nobody reads them to their end
            with suppress(Exception):
                reader.close()

    @abstractmethod
    def stored(self, columns: Columns, rows: Sequence[Row], *, raw: bool) -> list[Row]:
        """Convert rows, in the published form or (`raw`) in that of this kind of database, to the values of parameters."""

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
        """Delete the rows with these keys."""
        arguments = [[key_value(column, value) for column, value in zip(key, row, strict=True)] for row in keys]
        self.run_many(f"DELETE FROM {self.table_name(table.name)} WHERE {self.key_is(key)}", arguments)

    def clear(self, table: Table) -> None:
        """Delete every row of the table."""
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
        """The quoted names of the columns, separated by commas, for SQL text."""
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
    keyed = [f"{column.name} {named(value)}" for column, value in zip(columns, row, strict=True) if column.name in keys]
    return ", ".join(keyed)


def next_size(found: Sequence[Row], large: Sequence[int], size: int) -> int:
    """The size of the next batch, from the bytes in this one: rows can have a hundred bytes or a hundred megabytes."""
    weight = sum(len(value) for row in found for index in large if isinstance(value := row[index], str | bytes))
    if weight > _MAX_BYTES:
        return max(1, size * _MAX_BYTES // (2 * weight))
    return min(_MAX_ROWS, size * 2) if weight * 2 <= _MAX_BYTES else size
