"""Bulk reads and writes of whole tables of a SQLite file."""

import os
import string
from collections.abc import Iterable
from itertools import chain
from typing import Any

from sqlalchemy import Table

from persist.db.dialects.bulk import Bulk, Columns, PlainColumn, Row
from persist.db.dialects.sqlite.row_guards import lift_row_guards
from persist.errors import Conflict, InvalidValue

_CACHE_KIB = 64 * 1024
_TYPES = {"integer": "INTEGER", "real": "REAL", "text": "TEXT", "bytes": "BLOB", "any": "BLOB"}
"""Types by what a column holds: one of type BLOB keeps every value as it is, but for NaN, which SQLite has not."""
_LOWER = {ord(letter): letter.lower() for letter in string.ascii_uppercase}


class SqliteBulk(Bulk):
    """Bulk access to a file, which stores the published form; values of other programs are read as by the column types."""

    one_file, mark, read_by, written_by = True, "?", "checked", "to_file"
    _cache_before: int | None = None

    def plain_columns(self, table: str) -> list[PlainColumn]:
        found = []
        for column in self.dialect.tables.columns(self.driver, table):
            name = self.name(column.name)
            facts = f"count(*), group_concat(DISTINCT typeof({name})), max(instr(CAST({name} AS BLOB), x'00') > 0)"
            query = f"SELECT {facts} FROM {self.table_name(table)} WHERE {name} IS NOT NULL"
            values, kinds, has_nul = self.driver.execute(query).fetchone()
            kind = {"blob": "bytes"}.get(kinds, kinds) if kinds in ("integer", "real", "text", "blob") else "any"
            if not values:
                kind = "text"
            found.append(PlainColumn(column.name, "any" if kind == "text" and has_nul else kind, values))
        return found

    def type_for(self, column: PlainColumn) -> str | None:
        return _TYPES.get(column.kind)

    def takes_name(self, name: str) -> bool:
        return "\0" not in name

    def folded(self, name: str) -> str:
        return name.translate(_LOWER)

    def may_hold(self, type: str, column: PlainColumn) -> bool:
        return column.kind != "nan"  # what a type makes of a value is seen when it is read back

    def plain_term(self, column: PlainColumn) -> str:
        return self.name(column.name)

    def plain_mark(self, column: PlainColumn) -> str:
        return self.mark

    def begin_loading(self, tables: Iterable[Table]) -> None:
        self.driver.execute("PRAGMA defer_foreign_keys=ON")  # until the transaction ends
        self.restore_guards = lift_row_guards(self.driver)
        # with the default cache of 2 MB, each row of a large table would wait for index pages
        (self._cache_before,) = self.driver.execute("PRAGMA cache_size").fetchone()
        self.driver.execute(f"PRAGMA cache_size={-_CACHE_KIB}")

    def leave(self) -> None:
        super().leave()
        if self._cache_before is not None:
            self.driver.execute(f"PRAGMA cache_size={self._cache_before}")

    def load(self, table: Table, columns: Columns, batches: Iterable[list[Row]], *, raw: bool = False) -> None:
        marks = ", ".join("?" * len(columns))
        rows = chain.from_iterable(self.stored(columns, batch, raw=raw) for batch in batches)
        try:
            self.driver.executemany(f"INSERT INTO {self.table_name(table.name)} ({self.listed(columns)}) VALUES ({marks})", rows)
        except Exception as error:
            ours = self.dialect.errors.classify(error)
            if isinstance(ours, Conflict) and (scope := table.info.get("key_scope")) and "UNIQUE" in str(error):
                raise Conflict(
                    f"{table.name}: several rows have the same id, each within its own {scope}; one file can hold only one"
                    f" {scope} of them. Nothing was written.",
                    constraint=ours.constraint,
                ) from error
            raise (ours or error) from error

    def end_loading(self) -> None:
        self.restore_guards()
        for child, rowid, parent, _ in self.driver.execute("PRAGMA foreign_key_check"):
            row = "a row" if rowid is None else f"row {rowid}"
            raise Conflict(f"{child}: {row} refers to a row of {parent} that is not there.", constraint="FOREIGN KEY")

    def highest(self, table: Table) -> int | None:
        if not table.kwargs.get("sqlite_autoincrement"):
            return None
        row = self.driver.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,)).fetchone()
        return None if row is None else int(row[0])

    def go_on_after(self, table: Table, highest: int) -> None:
        highest = max(highest, self.highest(table) or 0)
        self.driver.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table.name,))
        self.driver.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table.name, highest))

    def identity(self) -> tuple[Any, ...]:
        path = self.dialect.path
        return ("memory", id(self.driver)) if path is None else ("file", os.path.realpath(path))

    def lasting_identity(self) -> tuple[Any, ...]:
        return self.identity()

    def unread(self, error: Exception, table: str) -> Exception:
        if "Could not decode to UTF-8" in str(error):
            name = str(error).partition("column '")[2].rpartition("' with text")[0]
            return InvalidValue(f"{table}.{name}", "a row holds text that is not UTF-8.")
        return super().unread(error, table)
