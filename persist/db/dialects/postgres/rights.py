"""The privileges that a role needs to switch the event log on or off, checked before any table is locked."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, Table, select

from persist.db.statements.distribution import is_distributed
from persist.errors import NotPermitted
from persist.quoting import shown

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


def check_guard_rights(connection: Connection, schema: str, tables: Sequence[Table], functions: str, *, on: bool) -> None:
    """Raise NotPermitted with the lacking privileges unless the role may create (`on`) or drop the guard triggers.

    `functions` is the name prefix of the guard's functions.
    """
    found = connection.exec_driver_sql(_ROLE, (schema,)).one()
    # a cluster has no guard, and so no function of it that somebody owns: who may not switch the log on there may not end it
    unguarded = bool(connection.execute(select(is_distributed())).scalar())
    lacking = list(_lacking(connection, schema, tables, functions, found, on=on or unguarded))
    if lacking:
        word = "on" if on else "off"
        raise NotPermitted(
            f"The role {shown(found[0])} cannot switch the log of events {word}: it lacks {' and '.join(lacking)}."
            f" Run `persist events {word}` as the role that owns the tables, or grant it that."
        )


def _lacking(
    connection: Connection, schema: str, tables: Sequence[Table], functions: str, found: Sequence[object], *, on: bool
) -> Iterator[str]:
    _, namespace, creates, owns = found
    rows = connection.exec_driver_sql(_LACKING, (namespace, [table.name for table in tables])).all()
    if on and not creates:
        yield f"CREATE in the schema {shown(schema)}"
    if unlockable := [name for name, updates, _ in rows if not updates]:
        yield f"UPDATE on {_named(unlockable)}"  # LOCK TABLE needs it
    if on and (without := [name for name, _, triggers in rows if not triggers]):
        yield f"TRIGGER on {_named(without)}"
    strangers = [name for (name,) in connection.exec_driver_sql(_FUNCTIONS, (namespace, functions))]
    if strangers and (on or not owns):
        yield f"ownership of the function {', '.join(strangers)}"


def _named(tables: list[str]) -> str:
    more = f" and {len(tables) - _FEW} more" if len(tables) > _FEW else ""
    return f"{'tables' if tables[1:] else 'table'} {', '.join(tables[:_FEW])}{more}"
