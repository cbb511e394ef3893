"""Administrative operations on SQLite: checkpoints, VACUUM, online backups, and facts from pragmas and dbstat."""

import logging
import re
import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, MetaData, Table, bindparam, cast, func, text
from sqlalchemy.types import BigInteger, LargeBinary

from persist.db import files
from persist.db.concurrency.writer_lock import Waiting
from persist.db.connections import commits_by_itself
from persist.db.dialects import interface
from persist.db.dialects.errors import refused_write
from persist.db.dialects.sqlite import connections, raw_writes
from persist.db.dialects.sqlite.catalog import expected_catalog, read_catalog
from persist.db.dialects.sqlite.connections import SqliteConnections
from persist.db.dialects.sqlite.foreign_files import REFUSED
from persist.db.dialects.sqlite.wakeups import SqliteEventLog
from persist.db.dialects.untrusted_files import network_of, refuse_if_open
from persist.db.schema.base import VERSION_TABLE
from persist.errors import InvalidValue, StoreCorrupt, StoreFull

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect
    from persist.settings import Settings


class SqliteTransactions(interface.Transactions):
    """The transactions of one store on a SQLite file, or on the single connection to `:memory:`."""

    joined_marks = (raw_writes.MARK_JOINED, raw_writes.UNMARK_JOINED)

    def __init__(self, connections: SqliteConnections, event_log: SqliteEventLog, settings: "Settings") -> None:
        self._connections, self._event_log = connections, event_log
        self._timeout = settings.busy_timeout_ms / 1000
        self._owned, self._in_memory = connections.owned, connections.path is None
        self._references = connections.references

    def begin(self, connection: Connection, *, write: bool, driver: Any = None, waiting: Waiting | None = None) -> Any:
        if not self._owned and not connection.in_transaction():
            connection.begin()
        driver = driver or connection.connection.driver_connection
        if self._in_memory:
            driver.execute(f"PRAGMA query_only={'OFF' if write else 'ON'}")
        if not self._owned:
            if self._event_log.kept:
                self._event_log.say_whether_kept(driver)
            if write:
                raw_writes.mark_lent(driver, connection.info)
                self._references.keep(driver, connection.info, driver, connection.engine.pool)
        if driver.in_transaction:
            if write:
                _lock(driver)
        elif not write:
            driver.execute("BEGIN")
        elif self._owned:
            connections.begin(driver, self._timeout, waiting)
        elif waiting is None or waiting.cancelled is None:  # a host's engine says how long it waits, and how
            driver.execute("BEGIN IMMEDIATE")
        else:
            connections.begin_patiently(driver, waiting)
        return driver

    def end(self, connection: Connection | None, driver: Any, *, commit: bool) -> None:
        lent = None if self._owned or connection is None else connection.connection.driver_connection
        try:
            super().end(connection, driver, commit=commit)
        except BaseException:
            theirs: Any = driver if lent is None else lent
            if theirs.in_transaction:  # a COMMIT that a deferred foreign key refuses leaves the transaction open
                theirs.rollback()
            raise
        finally:
            if lent is not None:
                raw_writes.unmark_lent(lent)

    def end_read(self, connection: Connection | None, driver: Any) -> None:
        self.end(connection, driver, commit=True)

    def ends_at_once(self, connection: Connection, driver: Any) -> bool:
        return driver is not None and self._connections.has_room_for_reader

    def join(self, connection: Connection) -> None:
        if commits_by_itself(connection):
            raise InvalidValue("connection", interface.AUTOCOMMIT)
        if not connection.in_transaction():
            connection.begin()  # the host's engine decides how to begin
        if self._event_log.kept:
            theirs: Any = connection.connection.dbapi_connection
            say = self._event_log.say_whether_kept
            getattr(theirs, "run_async", lambda say: say(theirs))(say)  # run_async exists on async drivers
        cursor = connection.connection.cursor()
        driver: Any = connection.connection.driver_connection
        self._references.keep(connection.connection, connection.info, driver, connection.engine.pool)
        try:
            if driver.in_transaction:
                _lock(cursor)
            else:  # outside of a transaction, the release of a savepoint would commit
                cursor.execute("BEGIN IMMEDIATE")
        finally:
            cursor.close()

    def keep_references(self, tables: Callable[[], Sequence[Table]]) -> None:
        self._references.tables = tables

    def begin_pinned(self, runner: Any) -> None:
        if not self._owned and self._event_log.kept:
            self._event_log.say_whether_kept(runner)
        if self._in_memory:
            runner.execute("PRAGMA query_only=OFF")
        if self._owned:
            connections.begin(runner, self._timeout)
        else:
            runner.execute("BEGIN IMMEDIATE")


def _lock(driver: Any) -> None:
    """Take the write lock with an UPDATE of no row: the host's engine may have begun a deferred transaction."""
    try:
        driver.execute(f"UPDATE {VERSION_TABLE} SET version_num = version_num WHERE 0")
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):  # a transaction that creates the tables takes the lock itself
            raise


log = logging.getLogger("persist")

_LOADED = "persist: vector functions"
SQLITE_VEC = interface.VectorFunctions("sqlite-vec", "vec_distance_cosine", "vec_distance_l2")


def sqlite_vec_functions(connection: Connection) -> interface.VectorFunctions | None:
    """Load sqlite-vec into a connection at the first call, and return its functions; None if it cannot be loaded."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    if _LOADED not in connection.info:
        connection.info[_LOADED] = SQLITE_VEC if load_sqlite_vec(driver) else None
    functions: interface.VectorFunctions | None = connection.info[_LOADED]
    return functions


def load_sqlite_vec(driver: sqlite3.Connection) -> bool:
    """Load sqlite-vec if it is installed; return whether it was loaded. Extension loading is disabled again afterwards."""
    try:
        import sqlite_vec

        driver.enable_load_extension(True)
    except (ImportError, AttributeError, sqlite3.Error):  # many Python builds lack the method
        return False
    try:
        sqlite_vec.load(driver)
    except sqlite3.Error as error:  # such as a library for another CPU architecture
        log.debug("sqlite-vec cannot be loaded: %s", error)
        return False
    finally:
        driver.enable_load_extension(False)
    return True


# The source connection of a backup holds a read snapshot. Without a snapshot, the API would restart whenever another
# connection commits, and never finish under constant load. With a snapshot, the write-ahead log cannot be reset, and grows.

_PAGES_PER_STEP = 500


def check_target(source: Path | None, target: Path, *, overwrite: bool) -> None:
    """Refuse what `check_new_file` does, and an open target."""
    files.check_new_file(source, target, overwrite=overwrite, is_database=True)
    if target.exists():
        refuse_if_open(target)


def backup(source: Any, target: Path, *, progress: Callable[[int, int], object] | None, overwrite: bool) -> tuple[int, int]:
    """Copy the current snapshot of `source`; return (pages, bytes). The target appears complete, or not at all."""
    temporary = target.with_name(f".backup-{secrets.token_hex(8)}.part")
    with files.files(target):
        files.create_private(temporary)
        try:
            pages = _copy(source, temporary, target, progress)
            _check(temporary, target)
            with temporary.open("r+b") as file:  # Windows syncs only files opened for writing
                files.sync_file(file.fileno())
            size = temporary.stat().st_size
            check_target(None, target, overwrite=overwrite)  # checked again: another process may have created it
            for path in files.beside(target):
                path.unlink(missing_ok=True)  # the replaced file's log must not be applied to the copy
            files.replace(temporary, target)
        finally:
            for path in (temporary, *files.beside(temporary)):
                with suppress(OSError):
                    path.unlink(missing_ok=True)
        files.sync_folder(target.parent)
    return pages, size


def _copy(source: Any, temporary: Path, target: Path, progress: Callable[[int, int], object] | None) -> int:
    pages = 0

    def step(status: int, remaining: int, total: int) -> None:
        nonlocal pages
        pages = total
        if progress is not None:
            progress(total - remaining, total)

    ours = not source.in_transaction
    if ours:
        source.execute("BEGIN")
    try:
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # a snapshot begins with the first read
        with closing(sqlite3.connect(temporary, isolation_level=None)) as copy:
            copy.execute("PRAGMA synchronous=OFF")  # the complete copy is synced once
            try:
                source.backup(copy, pages=_PAGES_PER_STEP, progress=step)
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
                    raise StoreFull(str(target)) from error
                raise
    finally:
        if ours:
            source.execute("ROLLBACK")
    return pages


def _check(temporary: Path, target: Path) -> None:
    """Raise StoreCorrupt if the copy is damaged; `immutable` keeps SQLite from creating a log next to it."""
    with closing(sqlite3.connect(files.file_uri(temporary, "mode=ro&immutable=1"), uri=True)) as copy:
        line = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if line != "ok":
        raise StoreCorrupt(str(target), f"the copy is damaged, as the database is: {line.splitlines()[-1]}")


_HOSTS_KEYS = """
    SELECT m.name, k.id, k."table", k."from",
           coalesce(k."to", (SELECT p.name FROM pragma_table_info(k."table") p WHERE p.pk = k.seq + 1)),
           CASE WHEN k.on_delete = 'CASCADE' THEN 'cascades' WHEN k.on_delete IN ('NO ACTION', 'RESTRICT') THEN 'refuses'
             WHEN k.on_delete = 'SET DEFAULT' AND own.dflt_value IS NOT NULL THEN 'refuses' WHEN own."notnull" THEN 'empties' END,
           m.sql LIKE '%DEFERRABLE%INITIALLY%DEFERRED%'
    FROM sqlite_master m, pragma_foreign_key_list(m.name) k
    LEFT JOIN pragma_table_info(m.name) own ON own.name = k."from" COLLATE NOCASE
    WHERE m.type = 'table' AND lower(m.name) NOT IN :names ORDER BY m.name, k.id, k.seq"""
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


class SqliteOperations(interface.DatabaseOperations):
    """Administrative operations on a SQLite file or `:memory:`."""

    def __init__(self, dialect: "Dialect") -> None:
        self._dialect = dialect
        self._connections: Any = dialect.connections
        self._where = str(dialect.path or ":memory:")

    # -- reading

    def facts(self, ask: interface.Ask) -> interface.Facts:
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

    def settings(self, ask: interface.Ask) -> interface.Facts:
        found = {name: _pragma(ask, name) for name in _PRAGMAS}
        return {name: _WORDS[name][value] if name in _WORDS else value for name, value in found.items()}

    def table_facts(self, ask: interface.Ask) -> dict[str, interface.Facts]:
        sizes = self._tree_sizes(ask)
        totals: Counter[str] = Counter()
        for name, table, _ in ask(text(_TREES)):
            totals[table] += 0 if sizes is None else sizes.get(name, 0)
        return {table: {"bytes": None if sizes is None else total} for table, total in totals.items()}

    def index_facts(self, ask: interface.Ask) -> list[interface.Facts]:
        sizes = self._tree_sizes(ask)
        return [
            {"table": table, "name": name, "bytes": None if sizes is None else sizes.get(name, 0)}
            for name, table, kind in sorted(ask(text(_TREES)).fetchall())
            if kind == "index"
        ]

    def _tree_sizes(self, ask: interface.Ask) -> dict[str, int] | None:
        """The size of each table and index in bytes, in whole pages; None if SQLite was built without dbstat."""
        if not ask(text("SELECT count(*) FROM pragma_module_list WHERE name = 'dbstat'")).scalar():
            return None
        return {str(row[0]): row[1] for row in ask(text(_BYTES))}

    def stored_size(self, column: ColumnElement[Any]) -> ColumnElement[int]:
        if sqlite3.sqlite_version_info >= (3, 43):  # reads only the length, not the value's pages
            return func.octet_length(column, type_=BigInteger())
        return func.length(cast(column, LargeBinary()), type_=BigInteger())

    # -- problems

    def integrity(self, ask: interface.Ask, *, full: bool) -> Iterator[interface.Problem]:
        check = "integrity_check" if full else "quick_check"
        found = (line for (lines,) in ask(text(f"PRAGMA {check}({_MAX_LINES})")) for line in lines.splitlines())
        damage = (line for line in found if line != "ok" and not line.startswith("***") and not _OF_VALUES.search(line))
        for line in islice(damage, _MAX_DAMAGE):
            yield interface.Problem("corrupt", interface.Severity.ERROR, self._where, f"{line}; restore a backup.")

    def orphans(self, ask: interface.Ask, tables: Iterable[Table]) -> Iterator[tuple[Table, str, int]]:
        there = {name for name, table, kind in ask(text(_TREES)) if kind == "table"}
        for table in tables:
            if table.name not in there:
                continue
            rows = ask(
                text("SELECT parent, count(*) FROM pragma_foreign_key_check(:table) GROUP BY parent").bindparams(table=table.name)
            )
            for parent, count in rows:
                yield table, parent, count

    def foreign_references(self, ask: interface.Ask, tables: Sequence[Table]) -> list[interface.ForeignReference]:
        query = text(_HOSTS_KEYS).bindparams(bindparam("names", [table.name for table in tables], expanding=True))
        keys: dict[tuple[str, int, str, bool], list[Sequence[str | None]]] = {}
        for name, number, parent, *column, deferred in ask(query):
            keys.setdefault((name, number, parent, deferred), []).append(column)
        folded = {table.name: {column.name for column in table.columns} for table in tables}
        found = []
        for (name, _, parent, deferred), columns in keys.items():
            own, theirs, effects = zip(*columns, strict=True)
            effect = min(filter(None, effects), default=None)
            if None in theirs or effect is None:  # the table that it refers to is not there, or has no such key
                continue
            if parent.lower() in folded:
                parent, theirs = parent.lower(), tuple(map(str.lower, theirs))
                if not folded[parent].issuperset(theirs):
                    continue
            at = name if deferred else None
            found.append(interface.ForeignReference(None, name, own, None, parent, theirs, effect, at))
        return found

    def deferred_check(self, ask: interface.Ask, deferred: Sequence[str]) -> Callable[[], object]:
        def broken() -> int:
            found = text("SELECT count(*) FROM pragma_foreign_key_check(:table)")
            return sum(ask(found.bindparams(table=name)).scalar() for name in deferred) if _pragma(ask, "foreign_keys") else 0

        before = broken()

        def check() -> None:
            if broken() > before:
                raise refused_write(REFUSED, "SQLITE_CONSTRAINT_FOREIGNKEY")

        return check

    def surroundings(self, ask: interface.Ask, tables: Iterable[Table]) -> Iterator[interface.Problem]:
        path = self._dialect.path
        if not _pragma(ask, "foreign_keys"):
            message = (
                "foreign_keys is off on this engine: what persist deletes takes its rows with it, what others delete leaves them"
                " behind; persist.prepare_engine(engine) before the engine connects switches it on."
            )
            yield interface.Problem("foreign_keys_off", interface.Severity.WARNING, self._where, message)
        if path is None:
            return
        if _pragma(ask, "journal_mode") != "wal":
            message = "journal_mode is not WAL: readers and the writer block each other; opening a store for writing changes it."
            yield interface.Problem("not_wal", interface.Severity.WARNING, self._where, message)
        wal = _size(path, "-wal")
        if wal > _LARGE_WAL:
            message = (
                f"the write-ahead log has grown to {wal / 2**20:,.0f} MiB: a reader may be holding it; see persist checkpoint."
            )
            yield interface.Problem("wal_large", interface.Severity.WARNING, f"{path}-wal", message)
        network = network_of(path)
        if network is not None:
            message = f"it is on a network file system ({network}), where WAL can corrupt it; use a local disk."
            yield interface.Problem("network", interface.Severity.WARNING, self._where, message)

    def catalogs(self, ask: interface.Ask, metadata: MetaData) -> interface.Catalogs:
        return interface.Catalogs(expected_catalog(metadata), read_catalog(lambda sql: ask(text(sql)).fetchall()))

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

    def overwrite_deleted(self, ask: interface.Ask) -> Callable[[], object]:
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

    def backup(self, target: Path, *, progress: interface.Progress | None, overwrite: bool) -> tuple[int, int]:
        check_target(self._dialect.path, target, overwrite=overwrite)
        with self._dialect.connections.reader.connect() as connection:
            driver: Any = connection.connection.driver_connection
            return backup(driver, target, progress=progress, overwrite=overwrite)


def _pragma(ask: interface.Ask, name: str) -> Any:
    return ask(text(f"PRAGMA {name}")).scalar()


def _size(path: Path | None, suffix: str) -> int:
    try:
        return 0 if path is None else path.with_name(path.name + suffix).stat().st_size
    except OSError:
        return 0
