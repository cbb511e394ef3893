"""Guard triggers of the event log on SQLite: they call an SQL function that says whether the connection records events."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Table

from persist.db.changes.journal import DeltaTable, LogTables, delta_table_of
from persist.db.dialects.event_guards import CHANGES, ESCAPE_CHARACTER, MESSAGE, PREFIX, EventGuards

FUNCTION = "persist_keeps_event_log"


class SqliteEventGuards(EventGuards):
    """Creates three triggers per table: for INSERT, UPDATE and DELETE."""

    def create(self, connection: Connection, tables: Sequence[Table], log: LogTables) -> None:
        for statement in _triggers(tables, log):
            _driver(connection).execute(statement)

    def drop_functions(self, connection: Connection) -> None:
        query = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE ?"
        for (name,) in _driver(connection).execute(query, (PREFIX + "%",)).fetchall():
            _driver(connection).execute(f'DROP TRIGGER "{name}"')


def _driver(connection: Connection) -> sqlite3.Connection:
    driver: Any = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _triggers(tables: Iterable[Table], log: LogTables) -> Iterator[str]:
    for table in tables:
        pieces = delta_table_of(table)
        for change in CHANGES:
            if pieces is None or change != "INSERT":
                yield _trigger(table.name, f"BEFORE {change}", change.lower(), f"SELECT RAISE(ABORT, '{MESSAGE}');")
        if pieces is not None:
            escaped = " OR ".join(f"instr(NEW.{name}, char({ESCAPE_CHARACTER})) > 0" for name in pieces.texts)
            refuse = f"SELECT RAISE(ABORT, '{MESSAGE}') WHERE {escaped};"
            yield _trigger(table.name, "AFTER INSERT", "insert", refuse + _log_piece(pieces, log))


def _trigger(table: str, when: str, suffix: str, body: str) -> str:
    name = f'"{PREFIX}_{table}_{suffix}"'
    return f'CREATE TRIGGER IF NOT EXISTS {name} {when} ON "{table}" WHEN NOT {FUNCTION}() BEGIN {body} END'


def _log_piece(pieces: DeltaTable, log: LogTables) -> str:
    stream = f"(SELECT {pieces.stream} FROM {pieces.parent} WHERE {pieces.parent_key} = NEW.{pieces.link})"
    row = ", ".join(f"'{name}', NEW.{name}" for name in pieces.columns)
    change = f"json_object('table', '{pieces.table}', 'op', 'put', 'row', json_object({row}))"
    data = f"json_object('v', 1, 'changes', json_array({change}))"
    heads, head = log.heads.name, log.heads.c
    seq = f"SELECT {head.seq.name} FROM {heads} WHERE {head.stream_id.name} ="
    return (
        f"UPDATE {heads} SET {head.seq.name} = {head.seq.name} + 1 WHERE {head.stream_id.name} IN ('{log.all}', {stream}); "
        f"INSERT INTO {log.log.name} ({', '.join(log.columns)}) "
        f"VALUES (({seq} '{log.all}'), {stream}, ({seq} {stream}), '{pieces.type}', NEW.{pieces.at}, {data});"
    )
