"""Guard triggers of the event log on Postgres: they check a transaction setting that writers who record events set."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, Table, select
from sqlalchemy.exc import DBAPIError

from persist.db.changes.journal import DeltaTable, LogTables, delta_table_of
from persist.db.dialects.event_guards import CHANGES, ESCAPE_CHARACTER, MESSAGE, PREFIX, EventGuards
from persist.db.expressions.positions import lock_call
from persist.db.statements.schema_version import is_distributed
from persist.db.values.escaping import body
from persist.errors import NotPermitted, shown

# The privileges that a role needs to switch the event log on or off, checked before any table is locked.

_ROLE = """
    SELECT current_user, n.oid, has_schema_privilege(n.oid, 'CREATE'), pg_has_role(n.nspowner, 'USAGE')
    FROM pg_catalog.pg_namespace n WHERE n.nspname = %s"""
_LACKING = """
    SELECT c.relname, has_table_privilege(c.oid, 'UPDATE'), has_table_privilege(c.oid, 'TRIGGER')
    FROM pg_catalog.pg_class c WHERE c.relnamespace = %s AND c.relname = ANY(%s) ORDER BY c.relname"""
_FUNCTIONS = """
    SELECT p.proname FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = %s AND starts_with(p.proname, %s) AND NOT pg_has_role(p.proowner, 'USAGE') ORDER BY p.proname"""
_FEW = 3


def _lacking(connection: Connection, schema: str, tables: Sequence[Table], found: Sequence[object], *, on: bool) -> Iterator[str]:
    _, namespace, creates, owns = found
    rows = connection.exec_driver_sql(_LACKING, (namespace, [table.name for table in tables])).all()
    if on and not creates:
        yield f"CREATE in the schema {shown(schema)}"
    if unlockable := [name for name, updates, _ in rows if not updates]:
        yield f"UPDATE on {_named(unlockable)}"  # LOCK TABLE needs it
    if on and (without := [name for name, _, triggers in rows if not triggers]):
        yield f"TRIGGER on {_named(without)}"
    strangers = [name for (name,) in connection.exec_driver_sql(_FUNCTIONS, (namespace, PREFIX))]
    if strangers and (on or not owns):
        yield f"ownership of the function {', '.join(strangers)}"


def _named(tables: list[str]) -> str:
    more = f" and {len(tables) - _FEW} more" if len(tables) > _FEW else ""
    return f"{'tables' if tables[1:] else 'table'} {', '.join(tables[:_FEW])}{more}"


SETTING = "persist.keeps_event_log"
NUMBERS = "persist.numbers_events"
"""The setting of a transaction that takes its positions from the sequence; older releases count them."""
SQLSTATE = "PE001"
_REFUSED = "triggers are not supported"
"""What Citus says of a distributed table, as an internal error."""
_BRIEF_MS = 40
_SWITCHERS = 1885696628
_GUARDED = """
    SELECT count(*) FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE t.tgname = %s AND n.nspname = %s AND c.relname = ANY(%s)"""


class PostgresEventGuards(EventGuards):
    """Creates one statement-level trigger for each table, and a row-level trigger for inserted text deltas."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def create(self, connection: Connection, tables: Sequence[Table], log: LogTables) -> None:
        for statement in _triggers(self._schema, tables, log):
            connection.exec_driver_sql(statement)

    def number(self, connection: Connection, log: LogTables) -> bool:
        savepoint = connection.begin_nested()
        try:
            for statement in _numbering(self._schema, log):
                connection.exec_driver_sql(statement)
        except DBAPIError as error:
            if _REFUSED not in str(error.orig):
                raise
            savepoint.rollback()
            return False
        savepoint.commit()
        return True

    def drop(self, connection: Connection, tables: Sequence[Table]) -> None:
        for table in tables:
            for suffix in ("", "_piece"):
                connection.exec_driver_sql(f'DROP TRIGGER IF EXISTS "{PREFIX}{suffix}" ON "{self._schema}"."{table.name}"')

    def drop_functions(self, connection: Connection) -> None:
        for suffix in ("", "_piece", "_position"):  # CASCADE also drops every trigger of the function
            connection.exec_driver_sql(f'DROP FUNCTION IF EXISTS "{self._schema}".{PREFIX}{suffix}() CASCADE')

    def check_rights(self, connection: Connection, tables: Sequence[Table], *, on: bool) -> None:
        found = connection.exec_driver_sql(_ROLE, (self._schema,)).one()
        # a cluster has no guard, and so no function of it that somebody owns: who may not switch the log on there may not end it
        unguarded = bool(connection.execute(select(is_distributed())).scalar())
        lacking = list(_lacking(connection, self._schema, tables, found, on=on or unguarded))
        if lacking:
            word = "on" if on else "off"
            raise NotPermitted(
                f"The role {shown(found[0])} cannot switch the log of events {word}: it lacks {' and '.join(lacking)}."
                f" Run `persist events {word}` as the role that owns the tables, or grant it that."
            )

    def lock_tables(self, connection: Connection, tables: Sequence[Table]) -> None:
        named = ", ".join(f'"{self._schema}"."{table.name}"' for table in tables)
        connection.exec_driver_sql(f"LOCK TABLE {named} IN SHARE ROW EXCLUSIVE MODE")

    def be_brief(self, connection: Connection, *, at_once: bool) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{1 if at_once else _BRIEF_MS}ms'")
        # two who switch at once would meet in the catalog, which lets neither wait
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_SWITCHERS}, hashtext(%s))", (self._schema,))

    def missing(self, connection: Connection, tables: Sequence[Table]) -> int:
        names = [table.name for table in tables]
        return len(names) - int(connection.exec_driver_sql(_GUARDED, (PREFIX, self._schema, names)).scalar_one())


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


def _function(name: str, code: str) -> str:
    return f"CREATE OR REPLACE FUNCTION {name} RETURNS trigger LANGUAGE plpgsql AS {body(code)}"


def _numbering(schema: str, log: LogTables) -> Iterator[str]:
    """The trigger that gives an older release's events their positions, from which its own count would not be free."""
    function, sequence = f'"{schema}".{PREFIX}_position()', _sequence(schema, log)
    older = f"current_setting('{NUMBERS}', true) IS DISTINCT FROM 'on'"
    logs = f"(current_setting('{SETTING}', true) = 'on' OR pg_trigger_depth() > 0)"
    position = log.log.c.position.name
    yield _function(function, f"BEGIN PERFORM {lock_call(sequence)}; NEW.{position} := nextval({sequence}); RETURN NEW; END")
    yield (
        f'CREATE OR REPLACE TRIGGER "{PREFIX}_position" BEFORE INSERT ON "{schema}".{log.log.name} '
        f"FOR EACH ROW WHEN ({older} AND {logs}) EXECUTE FUNCTION {function}"
    )


def _sequence(schema: str, log: LogTables) -> str:
    return f"""CAST('"{schema}".{log.positions}' AS regclass)"""


def _log_piece(schema: str, pieces: DeltaTable, refuse: str, log: LogTables) -> str:
    heads, head = f'"{schema}".{log.heads.name}', log.heads.c
    sequence = _sequence(schema, log)
    escaped = " OR ".join(f"strpos(NEW.{name}, chr({ESCAPE_CHARACTER})) > 0" for name in pieces.texts)
    row = f"jsonb_build_object('table', '{pieces.table}', 'op', 'put', 'row', to_jsonb(NEW))"
    return (
        f"DECLARE stream text; number bigint; BEGIN IF {escaped} THEN {refuse} END IF; "
        f'SELECT {pieces.stream} INTO STRICT stream FROM "{schema}".{pieces.parent} '
        f"WHERE {pieces.parent_key} = NEW.{pieces.link}; "
        f"UPDATE {heads} SET {head.seq.name} = {head.seq.name} + 1 WHERE {head.stream_id.name} = stream "
        f"RETURNING {head.seq.name} INTO STRICT number; "
        f"PERFORM set_config('{NUMBERS}', 'on', true), {lock_call(sequence)}; "
        f'INSERT INTO "{schema}".{log.log.name} ({", ".join(log.columns)}) '
        f"VALUES (nextval({sequence}), stream, number, '{pieces.type}', "
        f"NEW.{pieces.at}, jsonb_build_object('v', 1, 'changes', jsonb_build_array({row}))); RETURN NULL; END"
    )
