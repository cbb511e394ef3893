"""A SQLite file of another program that is being adopted: its backup, its catalog, and the changes to its tables."""

import logging
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from sqlalchemy import Connection, Engine, ForeignKeyConstraint, Pool, Table, event

from persist.db.dialects.sqlite.parsed_ddl import Catalog, Column, Index, catalog_of, closing_bracket, plain, split_at_commas
from persist.db.files import create_private, file_uri, sync_file, typed
from persist.db.values.escaping import quoted
from persist.errors import NotPermitted, StoreCorrupt, UnmanagedDatabase

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect


# A host's pragma stays as it is. Where it is off, temporary triggers of the connection do for the tables of persist what the
# pragma would: delete what depends on a deleted row, refuse to delete what another row needs, and refuse rows without their
# parent. They are no part of the file. They cannot wait for the end of a statement: nobody checks whether a row of the same table
# refers to a deleted one.

log = logging.getLogger("persist")

REFUSED = "FOREIGN KEY constraint failed"
"""What SQLite says itself where a foreign key is violated."""
_PREFIX = "persist_references"
_LAST = f"{_PREFIX}_kept"
_ENFORCED = "persist_references_enforced"
_REFUSE = f"SELECT RAISE(ABORT, '{REFUSED}') WHERE"
_WARNED: WeakSet[Pool] = WeakSet()
_UNCHECKED: set[int] = set()
"""The ids of those connections whose references are not kept now."""


class HostReferences:
    """Keeps the foreign keys of tables on the connections of hosts. `tables`: these tables, parents first."""

    def __init__(self) -> None:
        self.tables: Callable[[], Sequence[Table]] = list

    def keep(self, connection: Any, info: dict[Any, Any], driver: Any, pool: Pool | None = None) -> None:
        """See that a connection keeps foreign keys. A rollback may take triggers back, so these are looked for each time."""
        if _ENFORCED in info or id(driver) in _UNCHECKED or not (tables := tuple(self.tables())):
            return
        cursor = connection.cursor()
        try:
            cursor.execute(
                f"SELECT foreign_keys, (SELECT 1 FROM sqlite_temp_master WHERE name = '{_LAST}') FROM pragma_foreign_keys"
            )
            on, kept = cursor.fetchone()
            if on:
                info[_ENFORCED] = True
            elif not kept:
                if pool is not None:
                    warn(pool)
                for trigger in _triggers(tables).values():
                    cursor.execute(trigger)
        finally:
            cursor.close()


def leave_unchecked(driver: Any) -> Callable[[], None]:
    """Keep no references on a connection until the returned function is called; both outside of a transaction."""
    (on,) = driver.execute("PRAGMA foreign_keys").fetchone()
    if on:
        driver.execute("PRAGMA foreign_keys=OFF")
        return lambda: driver.execute("PRAGMA foreign_keys=ON")
    let_go(driver)
    _UNCHECKED.add(id(driver))
    return lambda: _UNCHECKED.discard(id(driver))


def let_go(driver: Any) -> None:
    """Drop the triggers of a connection; `keep` makes them again."""
    named = f"SELECT name FROM sqlite_temp_master WHERE type = 'trigger' AND name LIKE '{_PREFIX}%'"
    for (name,) in driver.execute(named).fetchall():
        driver.execute(f"DROP TRIGGER temp.{name}")


def warn(pool: Pool) -> None:
    """Warn, once for each engine, that its foreign keys are off."""
    if pool not in _WARNED:
        _WARNED.add(pool)
        log.warning(
            "foreign_keys is OFF on this engine: persist keeps the references of its own tables by triggers of each connection;"
            " call persist.prepare_engine(engine) before the engine connects, so that SQLite keeps all"
        )


def prepare(engine: Engine) -> None:
    """Switch foreign keys on for every connection that the engine opens from now on."""
    if not event.contains(engine, "connect", _switch_on):
        event.listen(engine, "connect", _switch_on)


def _switch_on(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


@lru_cache(maxsize=1)
def _triggers(tables: tuple[Table, ...]) -> dict[str, str]:
    made: dict[str, str] = {}

    def trigger(name: str, head: str, statements: list[str]) -> None:
        if statements:
            body = " ".join(f"{statement};" for statement in statements)
            made[name] = f"CREATE TEMP TRIGGER IF NOT EXISTS {name} {head} BEGIN {body} END"

    for table in tables:
        keys = _keys(table)
        columns = ", ".join(dict.fromkeys(name for key in keys for name in key.column_keys))
        missing = [f"{_REFUSE} {_lacks_parent(key)}" for key in keys]
        trigger(f"{_PREFIX}_of_{table.name}", f"AFTER INSERT ON main.{table.name}", missing)
        trigger(f"{_PREFIX}_in_{table.name}", f"AFTER UPDATE OF {columns} ON main.{table.name}", missing)
        trigger(f"{_PREFIX}_to_{table.name}", f"AFTER DELETE ON main.{table.name}", [*_deleted(table, tables)])
    name = [*made][-1]
    made[_LAST] = made.pop(name).replace(name, _LAST, 1)  # whether it is there says whether all are
    return made


def _deleted(parent: Table, tables: Sequence[Table]) -> Iterator[str]:
    keys = [key for table in reversed(tables) for key in _keys(table) if key.referred_table is parent is not table]
    for key in keys:
        if key.ondelete == "CASCADE":
            yield f"DELETE FROM {key.table.name} WHERE {_refers(key)}"
        elif key.ondelete == "SET NULL":
            emptied = ", ".join(f"{name} = NULL" for name in key.column_keys)
            yield f"UPDATE {key.table.name} SET {emptied} WHERE {_refers(key)}"
    for key in keys:
        if key.ondelete not in ("CASCADE", "SET NULL"):
            yield f"{_REFUSE} EXISTS (SELECT 1 FROM {key.table.name} WHERE {_refers(key)})"


def _keys(table: Table) -> list[ForeignKeyConstraint]:
    return [key for key in table.foreign_key_constraints if key.info.get("dialect", "sqlite") == "sqlite"]


def _refers(key: ForeignKeyConstraint) -> str:
    return " AND ".join(f"{element.parent.name} = OLD.{element.column.name}" for element in key.elements)


def _lacks_parent(key: ForeignKeyConstraint) -> str:
    given = " AND ".join(f"NEW.{name} IS NOT NULL" for name in key.column_keys)
    same = " AND ".join(f"is_parent.{element.column.name} = NEW.{element.parent.name}" for element in key.elements)
    return f"{given} AND NOT EXISTS (SELECT 1 FROM {key.referred_table.name} AS is_parent WHERE {same})"


_UNIQUE = re.compile(r"(?is)^\s*(?:constraint\s+\S+\s+)?unique\s*(?=\()")
_NAMED = re.compile(r"(?is)^\s*create\s+table\s+(?:if\s+not\s+exists\s+)?(?:\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|[\w.]+)\s*")

Orphans = dict[tuple[str, str], int]
"""The number of rows without a parent, by (table, parent table); -1 if the foreign key cannot be checked."""


class ForeignFile:
    """A file on one write connection. All changes happen in the transaction between `begin` and `commit`."""

    def __init__(self, dialect: "Dialect", connection: Connection) -> None:
        assert dialect.path is not None
        self.path = dialect.path
        self.connection = connection
        self._dialect = dialect
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        self._driver = driver

    # -- the transaction

    def begin(self, *, enforcing: bool) -> None:
        """Take the write lock. `enforcing`: foreign keys are enforced, which the rebuild of a table does not allow."""
        self._driver.execute(f"PRAGMA foreign_keys={'ON' if enforcing else 'OFF'}")
        self._driver.execute(f"PRAGMA legacy_alter_table={'OFF' if enforcing else 'ON'}")
        self._dialect.transactions.begin(self.connection, write=True)
        self._driver.execute("PRAGMA defer_foreign_keys=ON")

    def commit(self) -> None:
        self._dialect.transactions.end(self.connection, self._driver, commit=True)
        self._as_usual()

    def rollback(self) -> None:
        self._dialect.transactions.end(self.connection, self._driver, commit=False)
        self._as_usual()

    def _as_usual(self) -> None:
        self._driver.execute("PRAGMA foreign_keys=ON")
        self._driver.execute("PRAGMA legacy_alter_table=OFF")

    # -- reading

    def catalog(self) -> Catalog:
        return catalog_of(self._driver)

    def check(self, *, full: bool) -> None:
        """Raise StoreCorrupt if the file is damaged; `full` also compares indexes with their tables."""
        how = "integrity_check" if full else "quick_check"
        (said,) = self._driver.execute(f"PRAGMA {how}(1)").fetchone()
        if said != "ok":
            raise StoreCorrupt(str(self.path), str(said))

    def orphans(self) -> Orphans:
        found: Orphans = {}
        for (table,) in self._driver.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            try:
                for _, _, parent, _ in self._driver.execute(f"PRAGMA foreign_key_check({quoted(table)})"):
                    found[table, parent] = found.get((table, parent), 0) + 1
            except sqlite3.OperationalError:  # the parent has no such key, so the foreign key cannot be checked
                found[table, "?"] = -1
        return found

    def count(self, table: str, column: str | None = None) -> int:
        what = "*" if column is None else quoted(column)
        return int(self._driver.execute(f"SELECT count({what}) FROM {quoted(table)}").fetchone()[0])

    def repeated(self, table: str, index: Index) -> bool:
        """Whether the table holds duplicates that a unique index would refuse."""
        terms = split_at_commas(index.body[1 : closing_bracket(index.body, 0)])
        where = index.body[closing_bracket(index.body, 0) + 1 :] or "WHERE 1"
        filled = " AND ".join(f"({term}) IS NOT NULL" for term in terms)
        statement = f"SELECT 1 FROM {quoted(table)} {where} AND {filled} GROUP BY {', '.join(terms)} HAVING count(*) > 1 LIMIT 1"
        return self._driver.execute(statement).fetchone() is not None

    # -- changing

    def run(self, statement: str) -> None:
        self._driver.execute(statement)

    def add_column(self, table: str, column: Column, checks: Sequence[str]) -> None:
        """Add a column at the end of a table; without a constant default it is nullable, even if the model's column is not."""
        words = [f"ALTER TABLE {quoted(table)} ADD COLUMN {quoted(column.name)} {column.type}"]
        if column.constant_default is not None:
            words.append(f"{'NOT NULL ' if column.not_null else ''}DEFAULT {column.constant_default}")
        words += [f"CHECK ({check})" for check in checks]
        if column.parent is not None and column.constant_default is None:
            words.append(f"REFERENCES {column.parent}")
        self._driver.execute(" ".join(words))

    def add_index(self, name: str, table: str, index: Index) -> None:
        unique = "UNIQUE " if index.unique else ""
        self._driver.execute(f"CREATE {unique}INDEX {quoted(name)} ON {quoted(table)} {index.body}")

    def set_aside(self, table: str, target: str, rowids: Sequence[int]) -> None:
        """Move rows into a table with the same columns, which is created if it does not exist."""
        self._driver.execute(f"CREATE TABLE IF NOT EXISTS {quoted(target)} AS SELECT * FROM {quoted(table)} WHERE 0")
        ids = [(rowid,) for rowid in rowids]
        self._driver.executemany(f"INSERT INTO {quoted(target)} SELECT * FROM {quoted(table)} WHERE rowid = ?", ids)
        self._driver.executemany(f"DELETE FROM {quoted(table)} WHERE rowid = ?", ids)

    def rebuild_without_unique(self, table: str, columns: Sequence[str]) -> None:
        """Rebuild the table without the UNIQUE over these columns; rows, columns, other indexes and triggers stay."""
        ((sql,),) = self._driver.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchall()
        belonging = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type IN ('index', 'trigger') AND sql IS NOT NULL"
        again = [statement for (statement,) in self._driver.execute(belonging, (table,))]
        copy = f"{table}_without_unique"
        self._driver.execute(without_unique(sql, copy, columns))
        names = [name for _, name, *_, hidden in self._driver.execute(f"PRAGMA table_xinfo({quoted(table)})") if not hidden]
        listed = ", ".join(map(quoted, names))
        self._driver.execute(f"INSERT INTO {quoted(copy)} ({listed}) SELECT {listed} FROM {quoted(table)} ORDER BY rowid")
        self._driver.execute(f"DROP TABLE {quoted(table)}")
        self._driver.execute(f"ALTER TABLE {quoted(copy)} RENAME TO {quoted(table)}")
        for statement in again:
            self._driver.execute(statement)
        wanted = {column.lower() for column in columns}
        if any(index.declared and set(index.terms) == wanted for index in self.catalog().tables[table.lower()].indexes):
            raise UnmanagedDatabase([table])

    # -- backups

    def back_up(self, at: datetime) -> Path:
        """Create a complete copy next to the file, readable only by its owner. No existing file is overwritten."""
        partial = self.path.with_name(f".{self.path.name}.before-adopt.partial")
        try:
            partial.unlink(missing_ok=True)  # left by a killed process; the write lock excludes a running one
            create_private(partial)
            try:
                self.copy_to(partial)
                return _settle_name(partial, self.path, at)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise typed(error, partial) from error

    def copy_to(self, target: Path) -> None:
        """Copy the file as it was when the transaction began, and sync the copy to disk."""
        uri = file_uri(self.path, "mode=ro")
        with closing(sqlite3.connect(uri, uri=True)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
        with open(target, "r+b") as written:  # Windows syncs only files opened for writing
            sync_file(written.fileno())


def without_unique(sql: str, name: str, columns: Sequence[str]) -> str:
    """The CREATE TABLE statement with another name and without the UNIQUE over these columns, otherwise unchanged."""
    head = _NAMED.match(sql)
    assert head is not None, sql
    end = closing_bracket(sql, head.end())
    wanted = {column.lower() for column in columns}
    kept = [part for part in split_at_commas(sql[head.end() + 1 : end]) if _unique_over(part) != wanted]
    return f"CREATE TABLE {quoted(name)} ({','.join(kept)}{sql[end:]}"


def _unique_over(part: str) -> set[str]:
    said = re.sub(r"/\*.*?\*/|--[^\n]*", " ", part, flags=re.DOTALL)
    match = _UNIQUE.match(said)
    if match is None:
        return set()
    return {plain(column) for column in split_at_commas(said[match.end() + 1 : closing_bracket(said, match.end())])}


def _settle_name(partial: Path, path: Path, at: datetime) -> Path:
    stem = f"{path.name}.before-adopt-{at:%Y%m%dT%H%M%SZ}"
    for number in range(1, 1000):
        target = path.with_name(stem if number == 1 else f"{stem}-{number}")
        with suppress(FileExistsError):
            try:
                os.link(partial, target)  # unlike a rename, it never replaces a file
            except FileExistsError:
                raise
            except OSError:  # a file system without links
                if target.exists():
                    continue
                os.rename(partial, target)
            return target
    raise NotPermitted(f"{path}: there are a thousand backups of this second beside it.")
