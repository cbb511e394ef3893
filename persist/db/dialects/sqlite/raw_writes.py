"""The triggers that note raw writes on SQLite, and the mark of persist's connections, which they look for."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table

from persist.db.schema.raw_writes import (
    DELETE,
    INSERT,
    KEPT,
    LOGGED,
    MAX_CHARACTERS,
    MAX_NOTES,
    PENDING,
    REPLACE,
    SUFFIX,
    UPDATE,
    WRITER,
    LoggedWrites,
)
from persist.db.schema.row_guards import PREFIX

UNMARKED = f"substr(sqlite_source_id(), -{len(SUFFIX)}) <> '{SUFFIX}' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = '{WRITER}')"
"""The condition that the writer is not persist. It calls only what every build of SQLite has, so that a shell can run it."""
MARK_JOINED = f"INSERT OR REPLACE INTO _meta (key, value) VALUES ('{WRITER}', 'persist')"
UNMARK_JOINED = f"DELETE FROM _meta WHERE key = '{WRITER}'"
_FUNCTION = "sqlite_source_id"
_MARKED: set[int] = set()
"""The ids of those connections of hosts that a transaction of persist uses now."""
_KNOWN = "persist_mark"
_NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
_COLUMNS = f"{LOGGED} (run_id, at, table_name, operation, row_key_json, before_json)"
_VALUE = (
    f"CASE typeof(o) WHEN 'text' THEN CASE WHEN length(o) > {MAX_CHARACTERS} THEN substr(o, 1, {MAX_CHARACTERS}) ||"
    f" ' ... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN o"
    f" ELSE substr(quote(substr(o, 1, {MAX_CHARACTERS})), 1, {MAX_CHARACTERS}) END"
)


def mark_connection(driver: sqlite3.Connection) -> None:
    """Mark a connection of persist's own for as long as it is open."""
    marked = _source_id(driver) + SUFFIX
    driver.create_function(_FUNCTION, 0, lambda: marked, deterministic=True)


def _source_id(driver: sqlite3.Connection) -> str:
    """What SQLite's own function says, without the mark."""
    (found,) = driver.execute(f"SELECT {_FUNCTION}()").fetchone()
    return str(found).removesuffix(SUFFIX)


def mark_lent(driver: Any, info: dict[Any, Any]) -> None:
    """Mark a host's connection until `unmark_lent`. `info`: what SQLAlchemy keeps for the connection as long as it is open."""
    key = id(driver)
    if _KNOWN not in info:
        unmarked = _source_id(driver)
        driver.create_function(_FUNCTION, 0, lambda: unmarked + (SUFFIX if key in _MARKED else ""))
        info[_KNOWN] = True
    _MARKED.add(key)


def unmark_lent(driver: Any) -> None:
    """Take the mark back: the host writes next."""
    _MARKED.discard(id(driver))


def raw_write_ddl(table: Table) -> list[str]:
    """The statements that create the triggers of a table; none unless its model declares them."""
    if LOGGED not in table.info:
        return []
    rule: LoggedWrites | None = table.info[LOGGED]
    name = table.name
    if rule is None:
        refuse = f"BEGIN SELECT RAISE(ABORT, '{KEPT}'); END"
        condition = f"WHEN OLD.operation <> '{PENDING}' AND {UNMARKED}"
        return [_trigger(name, f"kept_{event.lower()}", f"BEFORE {event}", condition, refuse) for event in ("UPDATE", "DELETE")]
    columns = [column.name for column in table.columns]
    new, old = _scope(rule, "NEW"), _scope(rule, "OLD")
    forget = f"DELETE FROM {LOGGED} WHERE run_id = {{}} AND operation = '{PENDING}'"
    met = " OR ".join(f"({_same(rule, key)})" for key in rule.keys)
    changed = " OR ".join(f"OLD.{column} IS NOT NEW.{column}" for column in columns)
    return [
        _trigger(
            name,
            "meets",
            "BEFORE INSERT",
            f"WHEN {UNMARKED}",
            _block(
                forget.format(new),
                f"{_note(new, name, PENDING, _key(rule, 'was'), _before(columns, 'was', 'NEW'))} FROM {name} AS was"
                f" WHERE ({met}) AND {_room(new)}",
            ),
        ),
        _trigger(
            name,
            "inserted",
            "AFTER INSERT",
            f"WHEN {UNMARKED}",
            _block(
                f"{_note(new, name, INSERT, _key(rule, 'NEW'), 'NULL')} WHERE NOT EXISTS (SELECT 1 FROM {LOGGED}"
                f" WHERE run_id = {new} AND operation = '{PENDING}') AND {_room(new)}",
                f"UPDATE {LOGGED} SET operation = '{REPLACE}' WHERE run_id = {new} AND operation = '{PENDING}'",
            ),
        ),
        _trigger(
            name,
            "updated",
            "AFTER UPDATE",
            f"WHEN ({changed}) AND {UNMARKED}",
            _block(
                forget.format(old),
                f"{_note(old, name, UPDATE, _key(rule, 'OLD'), _before(columns, 'OLD', 'NEW'))} WHERE {_room(old)}",
            ),
        ),
        _trigger(
            name,
            "deleted",
            "AFTER DELETE",
            f"WHEN {UNMARKED}",
            _block(f"{_note(old, name, DELETE, _key(rule, 'OLD'), _before(columns, 'OLD', None))} WHERE {_room(old)}"),
        ),
    ]


def _trigger(table: str, suffix: str, event: str, condition: str, body: str) -> str:
    return f"CREATE TRIGGER {PREFIX}_log_{table}_{suffix} {event} ON {table} {condition} {body}"


def _block(*statements: str) -> str:
    return f"BEGIN {' '.join(f'{statement};' for statement in statements)} END"


def _note(scope: str, table: str, operation: str, key: str, before: str) -> str:
    return f"INSERT INTO {_COLUMNS} SELECT {scope}, {_NOW}, '{table}', '{operation}', {key}, {before}"


def _room(scope: str) -> str:
    """The condition that the run has less notes than it may have."""
    return f"(SELECT count(*) FROM {LOGGED} WHERE run_id = {scope}) < {MAX_NOTES}"


def _scope(rule: LoggedWrites, row: str) -> str:
    """The run of a row; '' in the run's own file, as its other rows have it."""
    column = f"{row}.{rule.scope}"
    if rule.scope != "id":
        return column
    return f"CASE WHEN {column} IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE {column} END"


def _key(rule: LoggedWrites, row: str) -> str:
    named = ", ".join(f"'{name}', {row}.{name}" for name in rule.keys[0])
    return f"json_object({named})"


def _same(rule: LoggedWrites, key: Sequence[str]) -> str:
    """The condition that an old row has the key of the new one."""
    return " AND ".join(
        f"coalesce(was.{name}, -1) = coalesce(NEW.{name}, -1)" if name == rule.frame else f"was.{name} = NEW.{name}"
        for name in key
    )


def _before(columns: Sequence[str], old: str, new: str | None) -> str:
    """The JSON object of the columns that are not as they were, with what they said; of all columns if the row is gone."""
    rows = [
        f"SELECT '{name}'{' AS n' if not at else ''}, {old}.{name}{' AS o' if not at else ''}"
        + ("" if new is None else f", {new}.{name}{' AS w' if not at else ''}")
        for at, name in enumerate(columns)
    ]
    where = "o IS NOT NULL" if new is None else "o IS NOT w"
    return f"(SELECT json_group_object(n, {_VALUE}) FROM ({' UNION ALL '.join(rows)}) WHERE {where})"
