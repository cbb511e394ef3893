"""Administrative operations on SQLite: checkpoints, VACUUM, online backups, and facts from pragmas and dbstat."""

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import MetaData, Table, cast, func, text
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import BigInteger, LargeBinary

from persist.db.dialects.database_files import network_of
from persist.db.dialects.findings import Problem, Severity
from persist.db.dialects.operations import Ask, Catalogs, DatabaseOperations, Facts, ForeignReference, Progress
from persist.db.dialects.sqlite import backup as sqlite_backup
from persist.db.dialects.sqlite.catalog import expected_catalog, read_catalog

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect

_REFUSING = """
    SELECT m.name, k.id, k."from", k."table", k."to" FROM sqlite_master m, pragma_foreign_key_list(m.name) k
    WHERE m.type = 'table' AND k.on_delete IN ('NO ACTION', 'RESTRICT') ORDER BY m.name, k.id, k.seq"""
_PRAGMAS = ("journal_mode", "synchronous", "foreign_keys", "wal_autocheckpoint", "busy_timeout", "page_size", "auto_vacuum")
_WORDS = {
    "synchronous": ("off", "normal", "full", "extra"),
    "foreign_keys": ("off", "on"),
    "auto_vacuum": ("none", "full", "incremental"),
}
_SECURE_DELETE = {0: "OFF", 1: "ON", 2: "FAST"}
_LARGE_WAL = 64 * 2**20
_MAX_DAMAGE = 20
_MAX_LINES = 10**9
_OF_VALUES = re.compile("^(CHECK constraint failed in|NULL value in|(NUMERIC|TEXT|non-numeric|non-INTEGER) value in) ")
"""Lines of the integrity check about values in rows, not about damage; persist's check of rows reports those with the row."""
_BYTES = "SELECT name, sum(pgsize) FROM dbstat WHERE aggregate = TRUE GROUP BY name"
_TREES = "SELECT name, tbl_name, type FROM sqlite_master WHERE type IN ('table', 'index')"


class SqliteOperations(DatabaseOperations):
    """Administrative operations on a SQLite file or `:memory:`."""

    def __init__(self, dialect: "Dialect") -> None:
        self._dialect = dialect
        self._connections: Any = dialect.connections
        self._where = str(dialect.path or ":memory:")

    # -- reading

    def facts(self, ask: Ask) -> Facts:
        pages, size = _pragma(ask, "page_count"), _pragma(ask, "page_size")
        path = self._dialect.path
        return {
            "dialect": self._dialect.name,
            "version": sqlite3.sqlite_version,
            "path": None if path is None else str(path),
            "bytes": pages * size,
            "wal_bytes": _size(path, "-wal"),
            "page_size": size,
            "pages": pages,
            "free_pages": _pragma(ask, "freelist_count"),
        }

    def settings(self, ask: Ask) -> Facts:
        found = {name: _pragma(ask, name) for name in _PRAGMAS}
        return {name: _WORDS[name][value] if name in _WORDS else value for name, value in found.items()}

    def table_facts(self, ask: Ask) -> dict[str, Facts]:
        sizes = self._tree_sizes(ask)
        totals: Counter[str] = Counter()
        for name, table, _ in ask(text(_TREES)):
            totals[table] += 0 if sizes is None else sizes.get(name, 0)
        return {table: {"bytes": None if sizes is None else total} for table, total in totals.items()}

    def index_facts(self, ask: Ask) -> list[Facts]:
        sizes = self._tree_sizes(ask)
        return [
            {"table": table, "name": name, "bytes": None if sizes is None else sizes.get(name, 0)}
            for name, table, kind in sorted(ask(text(_TREES)).fetchall())
            if kind == "index"
        ]

    def _tree_sizes(self, ask: Ask) -> dict[str, int] | None:
        """The size of each table and index in bytes, in whole pages; None if SQLite was built without dbstat."""
        if not ask(text("SELECT count(*) FROM pragma_module_list WHERE name = 'dbstat'")).scalar():
            return None
        return {str(row[0]): row[1] for row in ask(text(_BYTES))}

    def stored_size(self, column: ColumnElement[Any]) -> ColumnElement[int]:
        if sqlite3.sqlite_version_info >= (3, 43):  # reads only the length, not the value's pages
            return func.octet_length(column, type_=BigInteger())
        return func.length(cast(column, LargeBinary()), type_=BigInteger())

    # -- problems

    def integrity(self, ask: Ask, *, full: bool) -> Iterator[Problem]:
        check = "integrity_check" if full else "quick_check"
        found = (line for (lines,) in ask(text(f"PRAGMA {check}({_MAX_LINES})")) for line in lines.splitlines())
        damage = (line for line in found if line != "ok" and not line.startswith("***") and not _OF_VALUES.search(line))
        for line in islice(damage, _MAX_DAMAGE):
            yield Problem("corrupt", Severity.ERROR, self._where, f"{line}; restore a backup.")

    def orphans(self, ask: Ask, tables: Iterable[Table]) -> Iterator[tuple[Table, str, int]]:
        there = {name for name, table, kind in ask(text(_TREES)) if kind == "table"}
        for table in tables:
            if table.name not in there:
                continue
            rows = ask(
                text("SELECT parent, count(*) FROM pragma_foreign_key_check(:table) GROUP BY parent").bindparams(table=table.name)
            )
            for parent, count in rows:
                yield table, parent, count

    def foreign_references(self, ask: Ask, tables: Sequence[Table]) -> list[ForeignReference]:
        ours = {table.name: table for table in tables}
        keys: dict[tuple[str, int], list[tuple[str, str, str | None]]] = {}
        for name, number, own, parent, theirs in ask(text(_REFUSING)):
            if name not in ours and parent in ours:
                keys.setdefault((name, number), []).append((own, parent, theirs))
        found = []
        for (name, _), columns in keys.items():
            parent = columns[0][1]
            primary = [column.name for column in ours[parent].primary_key]
            theirs = [to or primary[at] for at, (_, _, to) in enumerate(columns)]
            found.append(ForeignReference(None, name, tuple(own for own, _, _ in columns), parent, tuple(theirs)))
        return found

    def surroundings(self, ask: Ask, tables: Iterable[Table]) -> Iterator[Problem]:
        path = self._dialect.path
        if not _pragma(ask, "foreign_keys"):
            message = (
                "foreign_keys is off on this engine: what persist deletes takes its rows with it, what others delete leaves them"
                " behind; persist.prepare_engine(engine) before the engine connects switches it on."
            )
            yield Problem("foreign_keys_off", Severity.WARNING, self._where, message)
        if path is None:
            return
        if _pragma(ask, "journal_mode") != "wal":
            message = "journal_mode is not WAL: readers and the writer block each other; opening a store for writing changes it."
            yield Problem("not_wal", Severity.WARNING, self._where, message)
        wal = _size(path, "-wal")
        if wal > _LARGE_WAL:
            message = (
                f"the write-ahead log has grown to {wal / 2**20:,.0f} MiB: a reader may be holding it; see persist checkpoint."
            )
            yield Problem("wal_large", Severity.WARNING, f"{path}-wal", message)
        network = network_of(path)
        if network is not None:
            message = f"it is on a network file system ({network}), where WAL can corrupt it; use a local disk."
            yield Problem("network", Severity.WARNING, self._where, message)

    def catalogs(self, ask: Ask, metadata: MetaData) -> Catalogs:
        return Catalogs(expected_catalog(metadata), read_catalog(lambda sql: ask(text(sql)).fetchall()))

    # -- doing

    def checkpoint(self, mode: str) -> tuple[int, int, int]:
        with self._connections.waiting_inside() as driver:
            busy, log, moved = driver.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            return busy, log, moved

    def tidy(self) -> None:
        with self._connections.waiting_inside() as driver:
            if self._dialect.in_memory:
                driver.execute("PRAGMA query_only=OFF")
            driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            driver.execute("PRAGMA analysis_limit=400")  # newer SQLite versions set a limit themselves
            driver.execute("PRAGMA optimize")

    rewrites = True

    def overwrite_deleted(self, ask: Ask) -> Callable[[], object]:
        before = _pragma(ask, "secure_delete")
        ask(text("PRAGMA secure_delete=ON"))
        return lambda: ask(text(f"PRAGMA secure_delete={_SECURE_DELETE.get(before, 'ON')}"))

    def vacuum(self, tables: Sequence[Table]) -> None:
        with self._connections.waiting_inside() as driver:
            if self._dialect.in_memory:
                driver.execute("PRAGMA query_only=OFF")
            driver.execute("VACUUM")
            # VACUUM writes the whole file to the log; if a reader blocks this checkpoint, the next one truncates the log
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def backup(self, target: Path, *, progress: Progress | None, overwrite: bool) -> tuple[int, int]:
        sqlite_backup.check_target(self._dialect.path, target, overwrite=overwrite)
        with self._dialect.connections.reader.connect() as connection:
            driver: Any = connection.connection.driver_connection
            return sqlite_backup.backup(driver, target, progress=progress, overwrite=overwrite)


def _pragma(ask: Ask, name: str) -> Any:
    return ask(text(f"PRAGMA {name}")).scalar()


def _size(path: Path | None, suffix: str) -> int:
    try:
        return 0 if path is None else path.with_name(path.name + suffix).stat().st_size
    except OSError:
        return 0
