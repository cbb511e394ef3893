"""Filling tables with many rows at once, by statements over sets; nobody else may have a file open."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Protocol

import psycopg

from benchmarks.floors import connect as connect_file

_LITE = ("PRAGMA journal_mode=OFF", "PRAGMA synchronous=OFF", "PRAGMA cache_size=-400000"), ("PRAGMA journal_mode=WAL",)
_WRITE_BACK = "DO $$ BEGIN IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN CHECKPOINT; END IF; END $$"
"""What a server would do by itself some time later."""

_LITE_INDEXES = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = '{}'"
_LITE_TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = '{}'"
_SERVER_INDEXES = """
SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = '{}'
AND indexname NOT IN (SELECT conname FROM pg_constraint)
"""


class Raw(Protocol):
    """A driver's connection in autocommit."""

    def execute(self, sql: Any, values: Any = ..., /) -> Any: ...
    def cursor(self) -> Any: ...
    def close(self) -> None: ...


def connect(url: str, schema: str | None = None) -> Raw:
    """A raw connection with the same durability as ours; a schema on Postgres, where every statement is prepared."""
    if url.startswith("sqlite"):
        return connect_file(url.removeprefix("sqlite:///"))
    return psycopg.connect(url, autocommit=True, prepare_threshold=0, options=f"-c search_path={schema or 'persist'}")


def is_file(raw: Raw) -> bool:
    """Whether it is a connection to SQLite."""
    return isinstance(raw, sqlite3.Connection)


def fill(url: str, schema: str | None, tables: Sequence[str], statements: Sequence[str]) -> None:
    """Run the statements, which fill the tables; their indexes are sorted once and not grown, and no trigger fires."""
    with closing(connect(url, schema)) as raw:
        lite = is_file(raw)
        before, after = _LITE if lite else (("SET maintenance_work_mem = '512MB'",), ())
        aside = [one for table in tables for one in (_aside_in_file(raw, table) if lite else _aside_on_server(raw, table))]
        tidy = () if lite else (*(f"VACUUM ANALYZE {table}" for table in tables), _WRITE_BACK)
        away, back = [one for one, _ in aside], [one for _, one in aside]
        for statement in (*before, "BEGIN", *away, *statements, *back, "COMMIT", *after, *tidy):
            raw.execute(statement)


def _aside_in_file(raw: Raw, table: str) -> list[tuple[str, str]]:
    """What puts indexes and triggers of a table aside, and back again."""
    indexes = [(f"DROP INDEX {name}", made) for name, made in raw.execute(_LITE_INDEXES.format(table)).fetchall()]
    return indexes + [(f"DROP TRIGGER {name}", made) for name, made in raw.execute(_LITE_TRIGGERS.format(table)).fetchall()]


def _aside_on_server(raw: Raw, table: str) -> list[tuple[str, str]]:
    indexes = [(f"DROP INDEX {name}", made) for name, made in raw.execute(_SERVER_INDEXES.format(table)).fetchall()]
    return [*indexes, (f"ALTER TABLE {table} DISABLE TRIGGER USER", f"ALTER TABLE {table} ENABLE TRIGGER USER")]


def counted(count: int, *, lite: bool, insert: str) -> str:
    """The head of a statement that inserts one row for every n from 0; `insert` is the table with its columns."""
    if lite:
        numbers = f"WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {count - 1})"
        return f"{numbers} INSERT INTO {insert}"
    return f"INSERT INTO {insert} WITH n AS (SELECT generate_series(0, {count - 1}) AS n)"


def id_of(prefix: str, number: str, *, lite: bool) -> str:
    """An id of the usual length that grows with the number."""
    return f"printf('{prefix}_%026d', {number})" if lite else f"'{prefix}_' || lpad({number}::text, 26, '0')"


def instant(second: str, *, lite: bool) -> str:
    """A second since 1970 as the tables keep instants."""
    return f"strftime('%Y-%m-%dT%H:%M:%S.000Z', {second}, 'unixepoch')" if lite else f"to_timestamp({second})"
