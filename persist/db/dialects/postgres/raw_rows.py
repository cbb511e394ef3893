"""Raw rows of a Postgres table: values in the server's own text form, which its types parse without loss."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Boolean, Column, LargeBinary, Table, Text, cast, literal, literal_column
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import UserDefinedType

from persist.db.dialects.bulk import next_size
from persist.db.dialects.quoting import quoted
from persist.db.dialects.raw_rows import Cell, Cells, Columns, Place, RawRows
from persist.db.schema.column_types import Bool, FreeText, IsoMs, Json, Label, SqlSeconds
from persist.db.values.key_order import from_jsonb

_SAFE = (FreeText, Bool, Label, Boolean)
_FORMS = ("DateStyle = 'ISO'", "TimeZone = 'UTC'", "extra_float_digits = 1", "bytea_output = 'hex'")
_YEARS = "'0001-01-01 00:00:00+00' AND {0} < '10000-01-01 00:00:00+00'"


class _Tid(UserDefinedType[str]):
    """The type of `ctid`, the physical location of a row."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "tid"


class PostgresRawRows(RawRows):
    """Raw rows on Postgres, whose column types exclude most unreadable values."""

    word = "postgresql"

    def __init__(self, driver: Any, schema: str, reading_cursor: Callable[[Any], Any]) -> None:
        super().__init__(driver)
        self._schema, self._reading_cursor = schema, reading_cursor

    def __enter__(self) -> Self:
        for form in _FORMS:
            self._driver.execute(f"SET LOCAL {form}", prepare=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Do nothing: SET LOCAL ends with the transaction."""

    def may_spoil(self, column: Column[Any]) -> bool:
        return not isinstance(column.type, _SAFE)

    def scan(self, table: Table, key: Sequence[str], columns: Columns) -> Iterator[tuple[Any, ...]]:
        listed = ", ".join([*(f"CAST({quoted(name)} AS TEXT)" for name in key), *map(_looked_at, columns)])
        texts = [len(key) + place for place, column in enumerate(columns) if isinstance(column.type, Json)]
        large = [len(key) + place for place, column in enumerate(columns) if isinstance(column.type, Json | LargeBinary)]
        size = 8
        with closing(self._reading_cursor(self._driver)) as cursor:
            cursor.execute(f"SELECT {listed} FROM {self._named(table)}")
            while found := cursor.fetchmany(size):
                for row in found:
                    yield _unescaped(row, texts)
                size = next_size(found, large, size)

    def values(self, table: Table, place: Place, columns: Columns) -> tuple[Any, ...] | None:
        where, values = self._at(table, place)
        listed = ", ".join(map(_looked_at, columns))
        row = self._driver.execute(f"SELECT {listed} FROM {self._named(table)} WHERE {where}", values).fetchone()
        return (
            None if row is None else _unescaped(row, [at for at, column in enumerate(columns) if isinstance(column.type, Json)])
        )

    def cell(self, value: Any) -> Cell:
        return None if value is None else {"literal": value}

    def names(self, table: Table) -> list[str]:
        query = (
            "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = CAST(%s AS regclass) AND attnum > 0 "
            "AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
        )
        return [name for (name,) in self._driver.execute(query, [self._named(table)])]

    def find(self, table: Table, where: Cells) -> list[Place]:
        terms = [quoted(name) + (" IS NULL" if cell is None else " = %s") for name, cell in where.items()]
        values = [cell["literal"] for cell in where.values() if cell is not None]
        sql = f"SELECT CAST(ctid AS TEXT) FROM {self._named(table)} WHERE {' AND '.join(terms)} FOR UPDATE"
        return self._driver.execute(sql, values).fetchall()  # type: ignore[no-any-return]  # the driver's rows are tuples

    def cells(self, table: Table, place: Place) -> dict[str, Cell]:
        where, values = self._at(table, place)
        names = self.names(table)
        listed = ", ".join(f"CAST({quoted(name)} AS TEXT)" for name in names)
        row = self._driver.execute(f"SELECT {listed} FROM {self._named(table)} WHERE {where}", values).fetchone()
        return {name: self.cell(value) for name, value in zip(names, row, strict=True)}

    def at(self, table: Table, place: Place) -> ColumnElement[bool]:
        return literal_column("ctid") == cast(literal(place[0], Text()), _Tid())

    def leave_unchecked(self) -> Callable[[], None]:
        return lambda: None  # Postgres always checks foreign keys

    def insert(self, table: Table, cells: Cells) -> None:
        terms = [self._term(cell) for cell in cells.values()]
        names, marks = ", ".join(map(quoted, cells)), ", ".join(term for term, _ in terms)
        sql = f"INSERT INTO {self._named(table)} ({names}) OVERRIDING SYSTEM VALUE VALUES ({marks})"
        self._driver.execute(sql, [value for _, values in terms for value in values])

    def _named(self, table: Table) -> str:
        return f"{quoted(self._schema)}.{quoted(table.name)}"

    def _at(self, table: Table, place: Place) -> tuple[str, list[Any]]:
        return "ctid = %s", list(place)  # the ctid is stable: the transaction that found the row holds its lock

    def _term(self, cell: Cell) -> tuple[str, list[Any]]:
        return ("NULL", []) if cell is None else ("%s", [cell["literal"]])


def _looked_at(column: Column[Any]) -> str:
    name = quoted(column.name)
    if isinstance(column.type, IsoMs | SqlSeconds):  # the driver has no datetime for years outside 1 to 9999
        return f"CASE WHEN {name} >= {_YEARS.format(name)} THEN NULL ELSE CAST({name} AS TEXT) END"
    return f"CAST({name} AS TEXT)" if isinstance(column.type, Json) else name


def _unescaped(row: tuple[Any, ...], texts: Sequence[int]) -> tuple[Any, ...]:
    if not texts:
        return row
    values = list(row)
    for at in texts:
        if values[at] is not None:
            values[at] = from_jsonb(values[at])
    return tuple(values)
