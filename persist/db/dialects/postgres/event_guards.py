"""Guard triggers of the event log on Postgres: they check a transaction setting that writers who record events set."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, Table

from persist.db.changes.event_streams import DeltaTable, LogTables, delta_table_of
from persist.db.dialects.event_guards import CHANGES, ESCAPE_CHARACTER, MESSAGE, PREFIX, EventGuards
from persist.db.dialects.postgres.rights import check_guard_rights
from persist.db.dialects.postgres.wakeups import channel

SETTING = "persist.keeps_event_log"
SQLSTATE = "PE001"


class PostgresEventGuards(EventGuards):
    """Creates one statement-level trigger for each table, and a row-level trigger for inserted text deltas."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def create(self, connection: Connection, tables: Sequence[Table], log: LogTables) -> None:
        for statement in _triggers(self._schema, tables, log):
            connection.exec_driver_sql(statement)

    def drop(self, connection: Connection) -> None:
        for suffix in ("", "_piece"):  # CASCADE also drops every trigger of the function
            connection.exec_driver_sql(f'DROP FUNCTION IF EXISTS "{self._schema}".{PREFIX}{suffix}() CASCADE')

    def check_rights(self, connection: Connection, tables: Sequence[Table], *, on: bool) -> None:
        check_guard_rights(connection, self._schema, tables, PREFIX, on=on)

    def lock_tables(self, connection: Connection, tables: Sequence[Table]) -> None:
        named = ", ".join(f'"{self._schema}"."{table.name}"' for table in tables)
        connection.exec_driver_sql(f"LOCK TABLE {named} IN SHARE ROW EXCLUSIVE MODE")


def _triggers(schema: str, tables: Sequence[Table], log: LogTables) -> Iterator[str]:
    function = f'"{schema}".{PREFIX}()'
    unkept = f"current_setting('{SETTING}', true) IS DISTINCT FROM 'on'"
    refuse = f"RAISE EXCEPTION '{MESSAGE}' USING ERRCODE = '{SQLSTATE}';"
    yield _function(function, f"BEGIN IF {unkept} THEN {refuse} END IF; RETURN NULL; END")
    for table in tables:
        pieces = delta_table_of(table)
        changes = " OR ".join(change for change in CHANGES if pieces is None or change != "INSERT")
        yield (
            f'CREATE OR REPLACE TRIGGER "{PREFIX}" BEFORE {changes} ON "{schema}"."{table.name}" '
            f"FOR EACH STATEMENT EXECUTE FUNCTION {function}"
        )
        if pieces is not None:
            piece = f'"{schema}".{PREFIX}_piece()'
            yield _function(piece, _log_piece(schema, pieces, refuse, log))
            yield (
                f'CREATE OR REPLACE TRIGGER "{PREFIX}_piece" AFTER INSERT ON "{schema}"."{table.name}" '
                f"FOR EACH ROW WHEN ({unkept}) EXECUTE FUNCTION {piece}"
            )


def _function(name: str, body: str) -> str:
    return f"CREATE OR REPLACE FUNCTION {name} RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"


def _log_piece(schema: str, pieces: DeltaTable, refuse: str, log: LogTables) -> str:
    heads, head = f'"{schema}".{log.heads.name}', log.heads.c
    count = f"UPDATE {heads} SET {head.seq.name} = {head.seq.name} + 1 WHERE {head.stream_id.name} ="
    escaped = " OR ".join(f"strpos(NEW.{name}, chr({ESCAPE_CHARACTER})) > 0" for name in pieces.texts)
    row = f"jsonb_build_object('table', '{pieces.table}', 'op', 'put', 'row', to_jsonb(NEW))"
    return (
        f"DECLARE place bigint; stream text; number bigint; BEGIN IF {escaped} THEN {refuse} END IF; "
        f"{count} '{log.all}' AND {head.logging.name} RETURNING {head.seq.name} INTO STRICT place; "
        f'SELECT {pieces.stream} INTO STRICT stream FROM "{schema}".{pieces.parent} '
        f"WHERE {pieces.parent_key} = NEW.{pieces.link}; "
        f"{count} stream RETURNING {head.seq.name} INTO STRICT number; "
        f'INSERT INTO "{schema}".{log.log.name} ({", ".join(log.columns)}) '
        f"VALUES (place, stream, number, '{pieces.type}', "
        f"NEW.{pieces.at}, jsonb_build_object('v', 1, 'changes', jsonb_build_array({row}))); "
        f"PERFORM pg_notify('{channel(schema)}', number || ' ' || stream); RETURN NULL; END"
    )
