"""Bulk reads and writes of whole Postgres tables, with server-side cursors and COPY."""

import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table

from persist.db.dialects.bulk import Bulk, Columns, PlainColumn, Row
from persist.db.dialects.postgres.row_guards import lift_row_guards

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect

_KINDS = {
    **dict.fromkeys(("smallint", "integer", "bigint"), "integer"),
    **dict.fromkeys(("real", "double precision"), "real"),
    "bytea": "bytes",
}
"""The kind of values in a column by its type; other types are read as text."""
_TYPES = {"integer": "BIGINT", "real": "DOUBLE PRECISION", "nan": "DOUBLE PRECISION", "text": "TEXT", "bytes": "BYTEA"}


_FORMS = (
    "SELECT set_config('TimeZone', 'UTC', true),"  # local time may be in the year 10000, which datetime lacks
    " set_config('DateStyle', 'ISO', true), set_config('IntervalStyle', 'postgres', true),"
    " set_config('bytea_output', 'hex', true)"
)
"""The text of values of any type is the same whatever the role's settings are."""
_WITH_MODIFIER = re.compile(r"\([\w, -]*\)")
_HAS_TYPE = "SELECT EXISTS (SELECT FROM pg_catalog.pg_type WHERE typtype <> 'p' AND pg_catalog.format_type(oid, NULL) = %s)"
_LONGEST = 63
_SYSTEM = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})


class PostgresBulk(Bulk):
    """Loads rows as COPY text, which differs from the published form only in instants, flags and escapes."""

    one_file, mark, read_by, written_by = False, "%s", "from_server", "to_copy"

    def __init__(self, dialect: "Dialect", driver: Any) -> None:
        super().__init__(dialect, driver)
        self._has_type: dict[str, bool] = {}
        driver.execute(_FORMS)

    def plain_columns(self, table: str) -> list[PlainColumn]:
        columns = self.dialect.tables.columns(self.driver, table)
        if not columns:
            return []
        kinds = [_KINDS.get(column.type, "text") for column in columns]
        names = [self.name(column.name) for column in columns]
        counts = [f"count({name})" for name in names]
        odd = [f"bool_or({name} = 'NaN')" for name, kind in zip(names, kinds, strict=True) if kind == "real"]
        values = self._run(f"SELECT {', '.join([*counts, *odd])} FROM {self.table_name(table)}").fetchone()
        nan = iter(values[len(counts) :])
        kinds = ["nan" if kind == "real" and next(nan) else kind for kind in kinds]
        return [
            PlainColumn(one.name, kind, count, one.type)
            for one, kind, count in zip(columns, kinds, values[: len(counts)], strict=True)
        ]

    def type_for(self, column: PlainColumn) -> str | None:
        declared = column.declared
        if declared is not None and declared not in self._has_type:  # an export file may say anything
            found = self.driver.execute(_HAS_TYPE, (_WITH_MODIFIER.sub("", declared),)).fetchone()
            self._has_type[declared] = found[0]
        return declared if declared is not None and self._has_type[declared] else _TYPES.get(column.kind)

    def takes_name(self, name: str) -> bool:
        return 0 < len(name.encode()) <= _LONGEST and "\0" not in name and name not in _SYSTEM

    def folded(self, name: str) -> str:
        return name

    def may_hold(self, type: str, column: PlainColumn) -> bool:
        if type == self.type_for(column):
            return True
        kind = _KINDS.get(type, "text")
        text = type == "text" or type.startswith("character varying")
        return text if column.kind == "text" else kind == {"nan": "real"}.get(column.kind, column.kind)

    def plain_term(self, column: PlainColumn) -> str:
        return f"CAST({self.name(column.name)} AS TEXT)" if column.kind == "text" else self.name(column.name)

    def plain_mark(self, column: PlainColumn) -> str:
        return f"CAST({self.mark} AS {str(self.type_for(column)).replace('%', '%%')})"

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        # a pipeline that ends by an error logs what it still meets: the first error is raised after its end instead
        refused: Exception | None = None
        with self.dialect.errors.translated():
            try:
                with self.driver.pipeline(), closing(self.driver.cursor()) as cursor:
                    try:
                        cursor.executemany(sql, rows)
                    except Exception as error:
                        refused = error
            except Exception as error:
                raise (refused or error) from None
            if refused is not None:
                raise refused

    def begin_loading(self, tables: Iterable[Table]) -> None:
        names = ", ".join(self.table_name(table.name) for table in tables)
        self.driver.execute(f"LOCK TABLE {names} IN SHARE ROW EXCLUSIVE MODE")
        self.restore_guards = lift_row_guards(self.driver)

    def load(self, table: Table, columns: Columns, batches: Iterable[list[Row]], *, raw: bool = False) -> None:
        # foreign keys are checked at the end of the COPY, so rows of one table may come in any order
        text = f"COPY {self.table_name(table.name)} ({self.listed(columns)}) FROM STDIN"
        with self.dialect.errors.translated(), self.driver.cursor() as cursor, cursor.copy(text) as copy:
            write = copy.write_row
            for batch in batches:
                for row in self.stored(columns, batch, raw=raw):
                    write(row)

    def end_loading(self) -> None:
        """Put the row guards back; every COPY has checked its foreign keys."""
        self.restore_guards()

    def highest(self, table: Table) -> int | None:
        name = self._sequence(table)
        if name is None:
            return None
        value, given = self.driver.execute(f"SELECT last_value, is_called FROM {name}").fetchone()
        return int(value) if given else None

    def go_on_after(self, table: Table, highest: int) -> None:
        name = self._sequence(table)
        if name is not None:
            self.driver.execute("SELECT setval(%s, %s)", (name, max(highest, self.highest(table) or 0, 1)))

    def _sequence(self, table: Table) -> str | None:
        column = next((column for column in table.columns if column.identity is not None), None)
        if column is None:
            return None
        row = self.driver.execute("SELECT pg_get_serial_sequence(%s, %s)", (self.table_name(table.name), column.name)).fetchone()
        return None if row is None else row[0]

    def identity(self) -> tuple[Any, ...]:
        query = "SELECT pg_postmaster_start_time(), oid::bigint FROM pg_database WHERE datname = current_database()"
        return ("server", *self.driver.execute(query).fetchone(), self.dialect.schema)

    def lasting_identity(self) -> tuple[Any, ...]:
        database, oid = self.driver.execute(
            "SELECT datname::text, oid::bigint FROM pg_database WHERE datname = current_database()"
        ).fetchone()
        (may_ask,) = self.driver.execute("SELECT has_function_privilege('pg_control_system()', 'EXECUTE')").fetchone()
        system = None
        if may_ask:
            (system,) = self.driver.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
        return ("server", system, database, oid, self.dialect.schema)
