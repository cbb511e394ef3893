"""Taking over a SQLite file that another program made: its backup, its facts, and the few changes that its tables need."""

import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from persist.db.dialects.sqlite.ddl_text import closing_bracket, plain, split_at_commas
from persist.db.dialects.sqlite.parsed_ddl import Catalog, Column, Index, catalog_of, quote
from persist.db.files.paths import file_uri, typed
from persist.db.files.private_files import create_private, sync_file
from persist.errors import NotPermitted, StoreCorrupt, UnmanagedDatabase

if TYPE_CHECKING:
    from persist.db.dialects.interface import Dialect

_UNIQUE = re.compile(r"(?is)^\s*(?:constraint\s+\S+\s+)?unique\s*(?=\()")
_NAMED = re.compile(r"(?is)^\s*create\s+table\s+(?:if\s+not\s+exists\s+)?(?:\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|[\w.]+)\s*")

Orphans = dict[tuple[str, str], int]
"""How many rows of a table (the first) have no parent in another (the second); -1: the two cannot be compared."""


class ForeignFile:
    """A file on one writing connection. Everything happens in the transaction that `begin` starts, and `commit` ends."""

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
        """Take the write lock. `enforcing`: foreign keys are kept as rows change, which a rebuild of a table does not survive."""
        self._driver.execute(f"PRAGMA foreign_keys={'ON' if enforcing else 'OFF'}")
        self._driver.execute(f"PRAGMA legacy_alter_table={'OFF' if enforcing else 'ON'}")
        self._dialect.begin(self.connection, write=True)
        self._driver.execute("PRAGMA defer_foreign_keys=ON")

    def commit(self) -> None:
        """Make everything durable at once."""
        self._dialect.end(self.connection, self._driver, commit=True)
        self._as_usual()

    def rollback(self) -> None:
        """The file is as it was."""
        self._dialect.end(self.connection, self._driver, commit=False)
        self._as_usual()

    def _as_usual(self) -> None:
        self._driver.execute("PRAGMA foreign_keys=ON")
        self._driver.execute("PRAGMA legacy_alter_table=OFF")

    # -- looking

    def catalog(self) -> Catalog:
        """What the file has."""
        return catalog_of(self._driver)

    def check(self, *, full: bool) -> None:
        """StoreCorrupt, unless the file is whole; `full` compares indexes with their tables too."""
        how = "integrity_check" if full else "quick_check"
        (said,) = self._driver.execute(f"PRAGMA {how}(1)").fetchone()
        if said != "ok":
            raise StoreCorrupt(str(self.path), str(said))

    def orphans(self) -> Orphans:
        """Rows whose parent is not there."""
        found: Orphans = {}
        for (table,) in self._driver.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            try:
                for _, _, parent, _ in self._driver.execute(f"PRAGMA foreign_key_check({quote(table)})"):
                    found[table, parent] = found.get((table, parent), 0) + 1
            except sqlite3.OperationalError:  # the parent has no such key: nothing can be said, before and after
                found[table, "?"] = -1
        return found

    def repeated(self, table: str, index: Index) -> bool:
        """Whether two rows would meet in a unique index."""
        terms = split_at_commas(index.body[1 : closing_bracket(index.body, 0)])
        where = index.body[closing_bracket(index.body, 0) + 1 :] or "WHERE 1"
        filled = " AND ".join(f"({term}) IS NOT NULL" for term in terms)
        statement = f"SELECT 1 FROM {quote(table)} {where} AND {filled} GROUP BY {', '.join(terms)} HAVING count(*) > 1 LIMIT 1"
        return self._driver.execute(statement).fetchone() is not None

    # -- changing

    def run(self, statement: str) -> None:
        """DDL of our own models."""
        self._driver.execute(statement)

    def add_column(self, table: str, column: Column, checks: Sequence[str]) -> None:
        """A column at the end of a table. One without a constant default may be NULL, whatever the model says."""
        words = [f"ALTER TABLE {quote(table)} ADD COLUMN {quote(column.name)} {column.type}"]
        if column.constant_default is not None:
            words.append(f"{'NOT NULL ' if column.not_null else ''}DEFAULT {column.constant_default}")
        words += [f"CHECK ({check})" for check in checks]
        if column.parent is not None and column.constant_default is None:
            words.append(f"REFERENCES {column.parent}")
        self._driver.execute(" ".join(words))

    def add_index(self, name: str, table: str, index: Index) -> None:
        """An index like that one, under this name."""
        unique = "UNIQUE " if index.unique else ""
        self._driver.execute(f"CREATE {unique}INDEX {quote(name)} ON {quote(table)} {index.body}")

    def set_aside(self, table: str, target: str, rowids: Sequence[int]) -> None:
        """Move rows into a table of the same columns, which is made if need be."""
        self._driver.execute(f"CREATE TABLE IF NOT EXISTS {quote(target)} AS SELECT * FROM {quote(table)} WHERE 0")
        ids = [(rowid,) for rowid in rowids]
        self._driver.executemany(f"INSERT INTO {quote(target)} SELECT * FROM {quote(table)} WHERE rowid = ?", ids)
        self._driver.executemany(f"DELETE FROM {quote(table)} WHERE rowid = ?", ids)

    def rebuild_without_unique(self, table: str, columns: Sequence[str]) -> None:
        """Make the table anew without the UNIQUE over these columns; rows, other columns, indexes and triggers stay."""
        ((sql,),) = self._driver.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchall()
        belonging = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type IN ('index', 'trigger') AND sql IS NOT NULL"
        again = [statement for (statement,) in self._driver.execute(belonging, (table,))]
        copy = f"{table}_without_unique"
        self._driver.execute(without_unique(sql, copy, columns))
        names = [name for _, name, *_, hidden in self._driver.execute(f"PRAGMA table_xinfo({quote(table)})") if not hidden]
        listed = ", ".join(map(quote, names))
        self._driver.execute(f"INSERT INTO {quote(copy)} ({listed}) SELECT {listed} FROM {quote(table)} ORDER BY rowid")
        self._driver.execute(f"DROP TABLE {quote(table)}")
        self._driver.execute(f"ALTER TABLE {quote(copy)} RENAME TO {quote(table)}")
        for statement in again:
            self._driver.execute(statement)
        wanted = {column.lower() for column in columns}
        if any(index.declared and set(index.terms) == wanted for index in self.catalog().tables[table.lower()].indexes):
            raise UnmanagedDatabase([table])

    # -- backups

    def back_up(self, at: datetime) -> Path:
        """A copy beside the file, complete or not there, readable by its owner only. Nothing is overwritten."""
        partial = self.path.with_name(f".{self.path.name}.before-adopt.partial")
        try:
            partial.unlink(missing_ok=True)  # of one that was killed; the write lock says that nobody else writes it
            create_private(partial)
            try:
                self.copy_to(partial)
                return _settle_name(partial, self.path, at)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise typed(error, partial) from error

    def copy_to(self, target: Path) -> None:
        """The file as it was when the transaction began, durable on disk."""
        uri = file_uri(self.path, "mode=ro")
        with closing(sqlite3.connect(uri, uri=True)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
        with open(target, "r+b") as written:  # Windows syncs only what may be written to
            sync_file(written.fileno())


def without_unique(sql: str, name: str, columns: Sequence[str]) -> str:
    """CREATE TABLE under another name and without the UNIQUE over these columns, everything else word for word."""
    head = _NAMED.match(sql)
    assert head is not None, sql
    end = closing_bracket(sql, head.end())
    wanted = {column.lower() for column in columns}
    kept = [part for part in split_at_commas(sql[head.end() + 1 : end]) if _unique_over(part) != wanted]
    return f"CREATE TABLE {quote(name)} ({','.join(kept)}{sql[end:]}"


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
