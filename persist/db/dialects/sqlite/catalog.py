"""The catalog of a SQLite file, normalised: equal for CREATE and ALTER TABLE, and for other programs' DDL."""

import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, MetaData, StaticPool, Table, create_engine

from persist.db.dialects.interface import Catalog, Definition, StoredColumn, Tables
from persist.db.dialects.sqlite.foreign_files import HostReferences, let_go
from persist.db.dialects.sqlite.parsed_ddl import closing_bracket, plain
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.values.escaping import command_word, quoted


class SqliteTables(Tables):
    """The tables of the file `path`, or of `:memory:` if it is None."""

    def __init__(self, path: Path | None, references: HostReferences) -> None:
        self._path, self._references = path, references

    def names(self, connection: Connection) -> set[str]:
        rows = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {name for (name,) in rows if not name.startswith("sqlite_")}

    def columns(self, driver: Any, table: str, *, computed: bool = False) -> list[StoredColumn]:
        rows = driver.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
        found = [row for row in rows if row[6] in ((2, 3) if computed else (0,))]
        return [StoredColumn(row[1], row[2], bool(row[3]), str(row[4] or "NULL").upper() != "NULL") for row in found]

    def suspend_references(self, connection: Connection, tables: Sequence[Table]) -> Sequence[str]:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        let_go(connection.connection.driver_connection)
        return ()

    def restore_references(self, connection: Connection, suspended: Sequence[str]) -> None:
        self._references.keep(connection.connection, connection.info, connection.connection.driver_connection)

    def upgrade_command(self) -> str:
        """What upgrades the file; another process sees nothing of a database in memory."""
        if self._path is None:
            return "persist.upgrade(engine). It is a database in memory: to keep its rows, name a file, as in sqlite:///state.db"
        return super().upgrade_command()

    def arguments(self, schema_option: str) -> str:
        return command_word("sqlite:///:memory:" if self._path is None else f"sqlite:///{self._path}")


Run = Callable[[str], Sequence[Any]]
"""`run(sql)` executes a statement and returns its rows."""

_TABLES = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_'"
_COLUMNS = f'SELECT t.name, c.name, c.type, c."notnull", c.dflt_value, c.pk FROM ({_TABLES}) t, pragma_table_xinfo(t.name) c'
_REFERENCES = (
    'SELECT t.name, f.id, f."table", f."from", coalesce(f."to", \'\'), f.on_update, f.on_delete'
    f" FROM ({_TABLES}) t, pragma_foreign_key_list(t.name) f ORDER BY t.name, f.id, f.seq"
)
_INDEXES = (
    'SELECT t.name, i.name, i."unique", i.origin, m.sql'
    f" FROM ({_TABLES}) t, pragma_index_list(t.name) i LEFT JOIN sqlite_master m ON m.type = 'index' AND m.name = i.name"
)
_UNIQUE_COLUMNS = (
    f"SELECT i.name, c.name FROM ({_TABLES}) t, pragma_index_list(t.name) i, pragma_index_info(i.name) c"
    " WHERE i.origin = 'u' ORDER BY i.name, c.seqno"
)
_LITERAL = re.compile(r"('(?:[^']|'')*')")
_CHECK = re.compile(r"\bCHECK\s*\(", re.IGNORECASE)
_OPTIONS = ("AUTOINCREMENT", "WITHOUT ROWID", "STRICT")


def read_catalog(run: Run) -> dict[tuple[str, str, str], Definition]:
    """Read the catalog of a file, without changing it."""
    facts: dict[tuple[str, str, str], Definition] = {}
    for table, sql in run(_TABLES):
        # persist names every primary key constraint; other programs usually do not
        facts["table", table, ""] = Definition("", f"pk_{table}" if f"CONSTRAINT pk_{table} " in sql else "")
        for constraint in (*_checks(sql), *_options(sql)):
            facts["constraint", table, constraint] = Definition(constraint)
    for table, name, kind, not_null, default, key in run(_COLUMNS):
        rest = ("NOT NULL " if not_null else "") + (f"DEFAULT {default}" if default is not None else "")
        facts["column", table, name] = Definition(f"{kind.upper()}{f' key {key}' if key else ''}", rest.strip())
    for table, constraint in _references(run):
        facts["constraint", table, constraint] = Definition(constraint)
    unique: defaultdict[str, list[str]] = defaultdict(list)
    for index, column in run(_UNIQUE_COLUMNS):
        unique[index].append(str(column))
    for table, name, is_unique, origin, definition in run(_INDEXES):
        if origin == "c":
            facts["unique index" if is_unique else "index", table, name] = Definition(plain(definition or ""))
        elif origin == "u":
            constraint = f"UNIQUE ({', '.join(unique[name])})"
            facts["constraint", table, constraint] = Definition(constraint)
    return facts


def expected_catalog(metadata: MetaData) -> Catalog:
    """The catalog that the models define. It is the same for every file, so it is computed once for the tables that there are."""
    return _catalog_of(metadata, frozenset(metadata.tables))


@lru_cache(maxsize=2)
def _catalog_of(metadata: MetaData, _tables: frozenset[str]) -> Catalog:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as memory:
        engine = create_engine("sqlite://", creator=lambda: memory, poolclass=StaticPool)
        with engine.execution_options(schema_translate_map={SCHEMA_TOKEN: None}).begin() as connection:
            metadata.create_all(connection)
        return MappingProxyType(read_catalog(lambda sql: memory.execute(sql).fetchall()))


def _references(run: Run) -> Iterator[tuple[str, str]]:
    columns: defaultdict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)
    heads: dict[tuple[str, int], tuple[str, str]] = {}
    for table, id, parent, child, target, on_update, on_delete in run(_REFERENCES):
        columns[table, id].append((child, target))
        acts = [f" ON {what} {how}" for what, how in (("UPDATE", on_update), ("DELETE", on_delete)) if how != "NO ACTION"]
        heads[table, id] = (parent, "".join(acts))
    for (table, id), (parent, actions) in heads.items():
        own, theirs = (", ".join(names) for names in zip(*columns[table, id], strict=True))
        yield table, f"FOREIGN KEY ({own}) REFERENCES {parent} ({theirs}){actions}"


def _checks(sql: str) -> Iterator[str]:
    for match in _CHECK.finditer(sql):
        opening = match.end() - 1
        yield f"CHECK ({plain(sql[opening + 1 : closing_bracket(sql, opening)])})"


def _options(sql: str) -> Iterator[str]:
    outside = " ".join("".join(_LITERAL.split(sql)[::2]).upper().split())
    for option in _OPTIONS:
        if re.search(rf"\b{option}\b", outside):
            yield option
