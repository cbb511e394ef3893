"""The guard of a database whose log of events is on: no writer that does not keep the log can change a row.

A log that some writers skip is worse than none. While it is off there is no guard, and nothing to pay. Who keeps the log
says so: on Postgres by a setting of the transaction, on SQLite by a function of the connection, which a program that knows
nothing of the log does not have.

Pieces of growing text are too many for that: one that comes in a transaction that does not keep the log is logged by the
database itself, in the one statement that writes it.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Table

from persist.db.streams import Pieces, pieces_of
from persist.later import later

if TYPE_CHECKING:
    from persist.db.dialects import postgres_wakeups
else:
    postgres_wakeups = later("persist.db.dialects.postgres_wakeups")

FUNCTION = "persist_keeps_event_log"
SETTING = "persist.keeps_event_log"
MESSAGE = "the log of events is on, and this writer does not keep it"
SQLSTATE = "PE001"
PREFIX = "persist_event_guard"
_DOINGS = ("INSERT", "UPDATE", "DELETE")
_ESCAPED = 0xFDD0
"""The character that stored text escapes with: such a piece is not plain JSON, so its writer has to log it."""


def sqlite_guards(tables: Iterable[Table]) -> list[str]:
    """The statements that raise the guard."""
    made = []
    for table in tables:
        pieces = pieces_of(table)
        for doing in _DOINGS:
            if pieces is None or doing != "INSERT":
                made.append(_sqlite_trigger(table.name, f"BEFORE {doing}", doing.lower(), f"SELECT RAISE(ABORT, '{MESSAGE}');"))
        if pieces is not None:
            escaped = " OR ".join(f"instr(NEW.{name}, char({_ESCAPED})) > 0" for name in pieces.texts)
            refuse = f"SELECT RAISE(ABORT, '{MESSAGE}') WHERE {escaped};"
            made.append(_sqlite_trigger(table.name, "AFTER INSERT", "insert", refuse + _sqlite_piece(pieces)))
    return made


def _sqlite_trigger(table: str, when: str, what: str, body: str) -> str:
    name = f'"{PREFIX}_{table}_{what}"'
    return f'CREATE TRIGGER IF NOT EXISTS {name} {when} ON "{table}" WHEN NOT {FUNCTION}() BEGIN {body} END'


def _sqlite_piece(pieces: Pieces) -> str:
    stream = f"(SELECT {pieces.stream} FROM {pieces.parent} WHERE {pieces.parent_key} = NEW.{pieces.link})"
    row = ", ".join(f"'{name}', NEW.{name}" for name in pieces.columns)
    change = f"json_object('table', '{pieces.table}', 'op', 'put', 'row', json_object({row}))"
    data = f"json_object('v', 1, 'changes', json_array({change}))"
    seq = "SELECT seq FROM event_heads WHERE stream_id ="
    return (
        f"UPDATE event_heads SET seq = seq + 1 WHERE stream_id IN ('*', {stream}); "
        f"INSERT INTO event_log (position, stream_id, seq, type, at, data) "
        f"VALUES (({seq} '*'), {stream}, ({seq} {stream}), '{pieces.type}', NEW.{pieces.at}, {data});"
    )


def sqlite_lowered(connection: sqlite3.Connection) -> list[str]:
    """The statements that take it away."""
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE ?", (PREFIX + "%",))
    return [f'DROP TRIGGER "{name}"' for (name,) in found.fetchall()]


def postgres_guards(schema: str, tables: Sequence[Table]) -> list[str]:
    """The statements that raise the guard: once per statement, however many rows."""
    function = f'"{schema}".{PREFIX}()'
    unkept = f"current_setting('{SETTING}', true) IS DISTINCT FROM 'on'"
    refuse = f"RAISE EXCEPTION '{MESSAGE}' USING ERRCODE = '{SQLSTATE}';"
    made = [_postgres_function(function, f"BEGIN IF {unkept} THEN {refuse} END IF; RETURN NULL; END")]
    for table in tables:
        pieces = pieces_of(table)
        doings = " OR ".join(doing for doing in _DOINGS if pieces is None or doing != "INSERT")
        made.append(
            f'CREATE OR REPLACE TRIGGER "{PREFIX}" BEFORE {doings} ON "{schema}"."{table.name}" '
            f"FOR EACH STATEMENT EXECUTE FUNCTION {function}"
        )
        if pieces is not None:
            piece = f'"{schema}".{PREFIX}_piece()'
            made.append(_postgres_function(piece, _postgres_piece(schema, pieces, refuse)))
            made.append(
                f'CREATE OR REPLACE TRIGGER "{PREFIX}_piece" AFTER INSERT ON "{schema}"."{table.name}" '
                f"FOR EACH ROW WHEN ({unkept}) EXECUTE FUNCTION {piece}"
            )
    return made


def _postgres_function(name: str, body: str) -> str:
    return f"CREATE OR REPLACE FUNCTION {name} RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"


def _postgres_piece(schema: str, pieces: Pieces, refuse: str) -> str:
    heads, log = f'"{schema}".event_heads', f'"{schema}".event_log'
    escaped = " OR ".join(f"strpos(NEW.{name}, chr({_ESCAPED})) > 0" for name in pieces.texts)
    row = f"jsonb_build_object('table', '{pieces.table}', 'op', 'put', 'row', to_jsonb(NEW))"
    return (
        f"DECLARE place bigint; stream text; number bigint; BEGIN IF {escaped} THEN {refuse} END IF; "
        f"UPDATE {heads} SET seq = seq + 1 WHERE stream_id = '*' AND logging RETURNING seq INTO STRICT place; "
        f'SELECT {pieces.stream} INTO STRICT stream FROM "{schema}".{pieces.parent} '
        f"WHERE {pieces.parent_key} = NEW.{pieces.link}; "
        f"UPDATE {heads} SET seq = seq + 1 WHERE stream_id = stream RETURNING seq INTO STRICT number; "
        f"INSERT INTO {log} (position, stream_id, seq, type, at, data) VALUES (place, stream, number, '{pieces.type}', "
        f"NEW.{pieces.at}, jsonb_build_object('v', 1, 'changes', jsonb_build_array({row}))); "
        f"PERFORM pg_notify('{postgres_wakeups.channel(schema)}', number || ' ' || stream); RETURN NULL; END"
    )


def postgres_lowered(schema: str) -> list[str]:
    """The statements that take it away, with every trigger of its functions."""
    return [f'DROP FUNCTION IF EXISTS "{schema}".{PREFIX}{name}() CASCADE' for name in ("", "_piece")]
