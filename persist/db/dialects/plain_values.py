"""Values of columns that persist does not know, as a database keeps them: integers, numbers, text and bytes."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column

from persist.db.dialects.quoting import quoted
from persist.db.schema.column_types import Label

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect

Row = tuple[Any, ...]
_ROWS = 500


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """A column that persist does not know.

    `kind`: what all of its values are, "integer", "real", "text" or "bytes"; "nan" if they are reals of which some are no number,
    "any" if no one word says it. `values`: how many are not NULL. `declared`: its type, if it is one of a server.
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
    mark: str

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
        """Whether a column that is here already, of this type, takes values of `column` as they are."""

    @abstractmethod
    def plain_term(self, column: PlainColumn) -> str:
        """The SQL text that reads the column."""

    @abstractmethod
    def plain_mark(self, column: PlainColumn) -> str:
        """The placeholder of a value of the column."""

    def rows_of(self, table: str) -> int:
        """How many rows the table has."""
        return int(self._run(f"SELECT count(*) FROM {self.table_name(table)}").fetchone()[0])

    def create_plain(self, table: str, columns: Sequence[PlainColumn]) -> None:
        """Create a table with these columns."""
        listed = ", ".join(f"{self.name(column.name)} {self.type_for(column)}" for column in columns)
        self._run(f"CREATE TABLE {self.table_name(table)} ({listed})")

    def add_plain(self, table: str, columns: Sequence[PlainColumn]) -> None:
        """Add columns to a table."""
        for column in columns:
            self._run(f"ALTER TABLE {self.table_name(table)} ADD COLUMN {self.name(column.name)} {self.type_for(column)}")

    def clear_plain(self, table: str, columns: Sequence[PlainColumn], *, whole: bool) -> None:
        """Delete the rows of the table, or empty the columns."""
        if whole:
            self._run(f"DELETE FROM {self.table_name(table)}")
        elif columns:
            values = ", ".join(f"{self.name(column.name)} = NULL" for column in columns)
            self._run(f"UPDATE {self.table_name(table)} SET {values}")

    def read_plain(
        self, table: str, key: Sequence[Column[Any]], columns: Sequence[PlainColumn], *, at: Row | None = None
    ) -> Iterator[list[Row]]:
        """Iterate over the rows with values in these columns, in batches: the key, then the values.

        `at`: only the row of this key. InvalidValue names a column with text that is not UTF-8.
        """
        terms = [*(self.name(column.name) for column in key), *map(self.plain_term, columns)]
        some = " OR ".join(f"{self.name(column.name)} IS NOT NULL" for column in columns) if key else "1 = 1"
        where, arguments = (some, ()) if at is None else (self.key_is(key), _key_values(key, at))
        try:
            with closing(self.dialect.transactions.reading_cursor(self.driver)) as cursor:
                cursor.execute(f"SELECT {', '.join(terms)} FROM {self.table_name(table)} WHERE {where}", arguments)
                while found := cursor.fetchmany(_ROWS):
                    yield [tuple(row) for row in found]
        except Exception as error:
            raise self.unread(error, table) from error

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
        """The name of a table with its schema, as `name`."""
        return self.name(table) if self.dialect.schema is None else f"{self.name(self.dialect.schema)}.{self.name(table)}"

    def key_is(self, key: Sequence[Column[Any]]) -> str:
        """The condition for the row with a key, which has a value of its own for NULL."""
        terms = [(self.name(column.name), f"{absent(column)!r}" if column.nullable else None) for column in key]
        return " AND ".join(f"{name if none is None else f'COALESCE({name}, {none})'} = {self.mark}" for name, none in terms)

    def unread(self, error: Exception, table: str) -> Exception:
        """Translate a driver's error that occurred while rows of a table were read."""
        return self.dialect.errors.classify(error) or error

    def _run(self, sql: str) -> Any:
        return self.driver.execute(sql, ())

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each of these rows of arguments. Raises the typed error of a refused one."""
        try:
            with closing(self.driver.cursor()) as cursor:
                cursor.executemany(sql, rows)
        except Exception as error:
            raise (self.dialect.errors.classify(error) or error) from error
