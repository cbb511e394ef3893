"""The parsed catalog of a SQLite file: tables, columns, keys and indexes, in a form that can be compared."""

import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from persist.db.values.escaping import quoted

_QUOTED_TEXT = re.compile(r"('(?:[^']|'')*')")


def plain(text: str) -> str:
    """Normalise SQL for comparison: drop comments, identifier quotes and extra spaces, fold case; literals stay."""
    pieces = _QUOTED_TEXT.split(re.sub(r"--[^\n]*", " ", text))
    for index in range(0, len(pieces), 2):
        words = re.sub(r'["`\[\]]', "", pieces[index]).casefold()
        words = re.sub(r"\bif not exists\b|\bmain\.", "", words)
        pieces[index] = re.sub(r"\s*([(),=<>])\s*", r"\1", re.sub(r"\s+", " ", words))
    return re.sub(r"\s+asc$", "", "".join(pieces).strip())


def closing_bracket(text: str, start: int) -> int:
    """The position of the bracket that closes the one at `start`; quoted text and comments are skipped."""
    depth = 0
    for place, character in _outside_of_quotes(text, start):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return place
    return len(text)


def split_at_commas(text: str) -> list[str]:
    """Split SQL at commas outside of brackets, quotes and comments."""
    parts, depth, begun = [], 0, 0
    for place, character in _outside_of_quotes(text, 0):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[begun:place])
            begun = place + 1
    return [*parts, text[begun:]]


_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL)


def _outside_of_quotes(text: str, start: int) -> Iterable[tuple[int, str]]:
    place = start
    while place < len(text):
        skipped = _QUOTED.match(text, place)
        if skipped is None:
            yield place, text[place]
            place += 1
        else:
            place = skipped.end()


_LITERAL = re.compile(r"[+-]?[0-9.]+(?:e[+-]?\d+)?|'(?:[^']|'')*'|null|true|false", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `key` is its position in the primary key from 1, or 0. `parent` is the "table(column)" of its foreign key."""

    name: str
    type: str
    not_null: bool
    default: str | None
    key: int
    parent: str | None = None

    @property
    def whole(self) -> bool:
        """Whether the column has integer affinity, which converts text of digits to an integer."""
        return "INT" in self.type.upper()

    @property
    def constant_default(self) -> str | None:
        """The column's default if it is a literal, which ADD COLUMN accepts on a table with rows; else None."""
        return self.default if self.default is not None and _LITERAL.fullmatch(self.default) else None


@dataclass(frozen=True, slots=True)
class Index:
    """An index. `terms` are its columns and expressions in order, `where` its condition or '', both normalised."""

    name: str
    unique: bool
    declared: bool
    """Whether the index comes from a primary key or UNIQUE of the table instead of CREATE INDEX."""
    terms: tuple[str, ...]
    where: str
    body: str
    """The part of CREATE INDEX after the table's name."""

    def serves_as(self, other: "Index") -> bool:
        """Whether this index can replace `other`; the names, and the column order of a declared UNIQUE, may differ."""
        if (self.where, self.unique) != (other.where, other.unique):
            return False
        return self.terms == other.terms or (other.declared and set(self.terms) == set(other.terms))


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its columns by lower-case name, and its indexes."""

    name: str
    columns: dict[str, Column]
    indexes: tuple[Index, ...]

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(c.name.lower() for c in sorted(self.columns.values(), key=lambda c: c.key) if c.key)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The tables by lower-case name, and every name in use, including those of views and indexes."""

    tables: dict[str, Table]
    taken: frozenset[str]


def catalog_of(driver: sqlite3.Connection) -> Catalog:
    """Read the catalog of a database, without SQLite's internal tables."""
    names = driver.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'").fetchall()
    tables = {name.lower(): _table(driver, name) for kind, name in names if kind == "table"}
    return Catalog(tables, frozenset(name.lower() for _, name in names))


def catalog_of_statements(statements: Iterable[str]) -> Catalog:
    """The catalog of a new database that is created by these statements."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as driver:
        for statement in statements:
            driver.execute(statement)
        return catalog_of(driver)


def _table(driver: sqlite3.Connection, name: str) -> Table:
    parents = _parents(driver, name)
    columns = {}
    for _, column, type, not_null, default, key, _ in driver.execute(f"PRAGMA table_xinfo({quoted(name)})"):
        found = Column(column, type, bool(not_null), default, key, parents.get(column.lower()))
        columns[column.lower()] = found
    indexes = [_index(driver, row) for row in driver.execute(f"PRAGMA index_list({quoted(name)})").fetchall()]
    return Table(name, columns, tuple(indexes))


def _parents(driver: sqlite3.Connection, name: str) -> dict[str, str]:
    rows = driver.execute(f"PRAGMA foreign_key_list({quoted(name)})").fetchall()
    several = {row[0] for row in rows if row[1] > 0}
    return {
        column.lower(): f"{quoted(parent)}({quoted(target or column)})"
        + (f" ON DELETE {deleted}" if deleted != "NO ACTION" else "")
        for id, _, parent, column, target, _, deleted, _ in rows
        if id not in several
    }


def _index(driver: sqlite3.Connection, row: Any) -> Index:
    _, name, unique, origin, _ = row
    sql = driver.execute("SELECT max(sql) FROM sqlite_master WHERE type = 'index' AND name = ?", (name,)).fetchone()[0]
    if sql is None:  # the index of a primary key or a UNIQUE
        terms = [column for (column,) in driver.execute("SELECT name FROM pragma_index_info(?) ORDER BY seqno", (name,))]
        return Index(name, True, True, tuple(map(plain, terms)), "", "")
    body = sql[sql.index("(") :]
    end = closing_bracket(body, 0)
    where = re.sub(r"(?i)^\s*where\b", "", body[end + 1 :])
    terms = [plain(term) for term in split_at_commas(body[1:end])]
    return Index(name, bool(unique), origin != "c", tuple(terms), plain(where), body)
