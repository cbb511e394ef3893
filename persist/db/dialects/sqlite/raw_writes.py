"""The triggers that note raw writes on SQLite, and the mark of persist's connections, which they look for.

SQLite reads the text of every trigger when a connection is opened. So those of the tables only insert an unfinished note, with
the instant 0 and the old and the new row, and the triggers of the table of notes do what is the same for all.
"""

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
    REPLACE,
    SUFFIX,
    UPDATE,
    WRITER,
    LoggedWrites,
)
from persist.db.schema.row_guards import PREFIX

NOT_A_CONNECTION = f"substr(sqlite_source_id(), -{len(SUFFIX)}) <> '{SUFFIX}'"
"""The condition that the connection is not persist's. It calls what every build of SQLite has, so that a shell can run it."""
_IN_VERB = f"EXISTS (SELECT 1 FROM _meta WHERE key = '{WRITER}')"
UNMARKED = f"{NOT_A_CONNECTION} AND NOT {_IN_VERB}"
"""The condition that the writer is not persist."""
MARK_JOINED = f"INSERT OR REPLACE INTO _meta (key, value) VALUES ('{WRITER}', 'persist')"
UNMARK_JOINED = f"DELETE FROM _meta WHERE key = '{WRITER}'"
_FUNCTION = "sqlite_source_id"
_MARKED: set[int] = set()
"""The ids of those connections of hosts that a transaction of persist uses now."""
_KNOWN = "persist_mark"
_FORGET = f"DELETE FROM {LOGGED} WHERE at = 0"
_NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
_COLUMNS = f"{LOGGED} (run_id, at, table_name, operation, row_key_json, before_json)"
_TEXT = "replace(substr(o.value, 2, length(o.value) - 2), '''''', '''')"
_VALUE = (
    f"CASE WHEN o.value = 'NULL' THEN NULL WHEN o.value NOT GLOB '*[^0-9-]*' THEN CAST(o.value AS INTEGER)"
    f" WHEN substr(o.value, 1, 1) <> '''' THEN substr(o.value, 1, {MAX_CHARACTERS})"
    f" WHEN length({_TEXT}) <= {MAX_CHARACTERS} THEN {_TEXT}"
    f" ELSE substr({_TEXT}, 1, {MAX_CHARACTERS}) || ' ... (' || length({_TEXT}) || ' characters)' END"
)
"""A value from the SQL literal that `quote` made of it, which JSON can hold whatever it is."""
_BEFORE = (
    f"CASE WHEN before_json IS NOT NULL THEN (SELECT json_group_object(o.key, {_VALUE})"
    " FROM json_each(before_json, '$[0]') AS o WHERE CASE"
    " WHEN json_array_length(before_json) = 1 THEN o.value <> 'NULL'"
    " ELSE o.value IS NOT json_extract(before_json, '$[1].' || o.key) END) END"
)


def mark_connection(driver: sqlite3.Connection) -> None:
    """Mark a connection of persist's own for as long as it is open."""
    driver.execute("PRAGMA trusted_schema=ON")  # or triggers would call no function of a connection, where a build says so
    marked = _source_id(driver) + SUFFIX
    driver.create_function(_FUNCTION, 0, lambda: marked, deterministic=True)


def _source_id(driver: sqlite3.Connection) -> str:
    """What SQLite's own function says, without the mark."""
    (found,) = driver.execute(f"SELECT {_FUNCTION}()").fetchone()
    return str(found).removesuffix(SUFFIX)


def mark_lent(driver: Any, info: dict[Any, Any]) -> None:
    """Mark a host's connection until `unmark_lent`. `info`: what SQLAlchemy keeps for the connection as long as it is open.

    It stays without a mark, and what persist writes is noted, where triggers may call no function of the connection.
    """
    key = id(driver)
    if _KNOWN not in info and driver.execute("PRAGMA trusted_schema").fetchone() != (0,):
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
    if rule is None:
        return _finishing()
    name, columns = table.name, [column.name for column in table.columns]
    met = " OR ".join(f"({_same(rule, key)})" for key in rule.keys)

    def trigger(suffix: str, event: str, *statements: str) -> str:
        return _trigger(name, suffix, f"{event} ON {name} WHEN {NOT_A_CONNECTION}", *statements)

    def note(row: str, operation: str, rows: str) -> str:
        key = ", ".join(f"'{column}', {row}.{column}" for column in rule.keys[0])
        scope = f"{row}.{rule.scope}"
        if rule.scope == "id":  # the row of the run itself; the others of its own file have the scope ''
            scope = f"CASE WHEN {scope} IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE {scope} END"
        return f"INSERT INTO {_COLUMNS} SELECT {scope}, 0, '{name}', '{operation}', json_object({key}), {rows}"

    old, new, was = (_row(columns, row) for row in ("OLD", "NEW", "was"))
    return [
        trigger(
            "meets", "BEFORE INSERT", _FORGET, f"{note('was', REPLACE, f'json_array({was})')} FROM {name} AS was WHERE {met}"
        ),
        trigger("inserted", "AFTER INSERT", note("NEW", INSERT, "NULL")),
        trigger("updated", "AFTER UPDATE", note("OLD", UPDATE, f"json_array({old}, {new})")),
        trigger("deleted", "AFTER DELETE", note("OLD", DELETE, f"json_array({old})")),
    ]


def _finishing() -> list[str]:
    """The triggers of the table of notes: they finish a note, or take it back, and refuse to change a finished one.

    A note of an INSERT that met a row is finished when the row was inserted. If the statement did something else, such as
    nothing, or an UPDATE, it is taken back with the next note.
    """
    unfinished = f"FROM {LOGGED} WHERE run_id = NEW.run_id AND at = 0 AND id"
    no_change = "json_extract(NEW.before_json, '$[0]') = json_extract(NEW.before_json, '$[1]')"
    full = f"(SELECT count(*) FROM {LOGGED} WHERE run_id = NEW.run_id) > {MAX_NOTES}"
    refuse = f"SELECT RAISE(ABORT, '{KEPT}')"
    return [
        _trigger(
            LOGGED,
            "finished",
            f"AFTER INSERT ON {LOGGED} WHEN NEW.at = 0 AND {NOT_A_CONNECTION}",
            f"DELETE {unfinished} < NEW.id AND NEW.operation NOT IN ('{INSERT}', '{REPLACE}')",
            f"DELETE {unfinished} <= NEW.id AND ({_IN_VERB} OR {no_change} OR {full})",
            f"DELETE {unfinished} = NEW.id AND NEW.operation = '{INSERT}' AND EXISTS (SELECT 1 {unfinished} < NEW.id)",
            f"UPDATE {LOGGED} SET at = {_NOW}, before_json = {_BEFORE}"
            f" WHERE run_id = NEW.run_id AND at = 0 AND id <= NEW.id AND NEW.operation <> '{REPLACE}'",
        ),
        _trigger(LOGGED, "kept_update", f"BEFORE UPDATE ON {LOGGED} WHEN OLD.at <> 0 AND {UNMARKED}", refuse),
        _trigger(LOGGED, "kept_delete", f"BEFORE DELETE ON {LOGGED} WHEN OLD.at <> 0 AND {UNMARKED}", refuse),
    ]


def _trigger(table: str, suffix: str, head: str, *statements: str) -> str:
    body = " ".join(f"{statement};" for statement in statements)
    return f"CREATE TRIGGER {PREFIX}_log_{table}_{suffix} {head} BEGIN {body} END"


def _same(rule: LoggedWrites, key: Sequence[str]) -> str:
    """The condition that an old row has the key of the new one."""
    return " AND ".join(
        f"coalesce(was.{name}, -1) = coalesce(NEW.{name}, -1)" if name == rule.frame else f"was.{name} = NEW.{name}"
        for name in key
    )


def _row(columns: Sequence[str], row: str) -> str:
    """A JSON object of SQL literals, one for each column."""
    named = ", ".join(f"'{name}', quote({row}.{name})" for name in columns)
    return f"json_object({named})"
