"""What a SQLite file says about its tables: columns, keys and indexes, in words that can be compared."""

import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from persist.db.dialects.sqlite.ddl_text import closing_bracket, plain, split_at_commas

_LITERAL = re.compile(r"[+-]?[0-9.]+(?:e[+-]?\d+)?|'(?:[^']|'')*'|null|true|false", re.IGNORECASE)


def quote(name: str) -> str:
    """A name as it is written in a statement."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `key` is its place in the primary key, from 1; 0 outside. `parent` is "table(column)", if it refers to one."""

    name: str
    type: str
    not_null: bool
    default: str | None
    key: int
    parent: str | None = None

    @property
    def whole(self) -> bool:
        """Whether it turns text of digits into an integer, as a column of integers does."""
        return "INT" in self.type.upper()

    @property
    def constant_default(self) -> str | None:
        """The column's default, where ADD COLUMN accepts it on a table with rows."""
        return self.default if self.default is not None and _LITERAL.fullmatch(self.default) else None


@dataclass(frozen=True, slots=True)
class Index:
    """One index. `terms` are its columns and expressions in order, `where` its condition or '', both in plain words."""

    name: str
    unique: bool
    declared: bool
    """By the table itself, as a key or UNIQUE, and not by CREATE INDEX."""
    terms: tuple[str, ...]
    where: str
    body: str
    """What follows the table's name in CREATE INDEX."""

    def serves_as(self, other: "Index") -> bool:
        """Whether it is the other one under any name; the order of columns does not matter to uniqueness alone."""
        if (self.where, self.unique) != (other.where, other.unique):
            return False
        return self.terms == other.terms or (other.declared and set(self.terms) == set(other.terms))


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its columns by name in lower case."""

    name: str
    columns: dict[str, Column]
    indexes: tuple[Index, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key, in its order."""
        return tuple(c.name.lower() for c in sorted(self.columns.values(), key=lambda c: c.key) if c.key)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Tables by name in lower case, and every name that is taken, those of views and indexes too."""

    tables: dict[str, Table]
    taken: frozenset[str]


def catalog_of(driver: sqlite3.Connection) -> Catalog:
    """What the database has, its own tables left out."""
    names = driver.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'").fetchall()
    tables = {name.lower(): _table(driver, name) for kind, name in names if kind == "table"}
    return Catalog(tables, frozenset(name.lower() for _, name in names))


def catalog_of_statements(statements: Iterable[str]) -> Catalog:
    """What a new database made by these statements has."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as driver:
        for statement in statements:
            driver.execute(statement)
        return catalog_of(driver)


def _table(driver: sqlite3.Connection, name: str) -> Table:
    parents = _parents(driver, name)
    columns = {}
    for _, column, type, not_null, default, key, _ in driver.execute(f"PRAGMA table_xinfo({quote(name)})"):
        found = Column(column, type, bool(not_null), default, key, parents.get(column.lower()))
        columns[column.lower()] = found
    indexes = [_index(driver, row) for row in driver.execute(f"PRAGMA index_list({quote(name)})").fetchall()]
    return Table(name, columns, tuple(indexes))


def _parents(driver: sqlite3.Connection, name: str) -> dict[str, str]:
    """Foreign keys of one column, by that column."""
    rows = driver.execute(f"PRAGMA foreign_key_list({quote(name)})").fetchall()
    several = {row[0] for row in rows if row[1] > 0}
    return {
        column.lower(): f"{quote(parent)}({quote(target or column)})"
        + (f" ON DELETE {deleted}" if deleted != "NO ACTION" else "")
        for id, _, parent, column, target, _, deleted, _ in rows
        if id not in several
    }


def _index(driver: sqlite3.Connection, row: Any) -> Index:
    _, name, unique, origin, _ = row
    sql = driver.execute("SELECT max(sql) FROM sqlite_master WHERE type = 'index' AND name = ?", (name,)).fetchone()[0]
    if sql is None:  # of a key or a UNIQUE
        terms = [column for (column,) in driver.execute("SELECT name FROM pragma_index_info(?) ORDER BY seqno", (name,))]
        return Index(name, True, True, tuple(map(plain, terms)), "", "")
    body = sql[sql.index("(") :]
    end = closing_bracket(body, 0)
    where = re.sub(r"(?i)^\s*where\b", "", body[end + 1 :])
    terms = [plain(term) for term in split_at_commas(body[1:end])]
    return Index(name, bool(unique), origin != "c", tuple(terms), plain(where), body)
