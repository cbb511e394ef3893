"""The SQL that gives a role of Postgres its rights on the tables of persist."""

from collections.abc import Sequence
from enum import StrEnum

from persist.db.dialects.quoting import body, literal, quoted

OUTER_ROLE = "CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END"
"""The role of the writer, which is not the current one in a function of the owner's."""


class RoleKind(StrEnum):
    """What a role is for.

    owner      makes and upgrades the tables, and switches the log of events
    app        reads and writes rows: what a program with a Store needs
    read-only  reads everything
    watcher    reads the log of events and nothing else
    subagent   reads and writes what a token is for: the values of one frame of a program, and one agent's memory
    """

    OWNER = "owner"
    APP = "app"
    READ_ONLY = "read-only"
    WATCHER = "watcher"
    SUBAGENT = "subagent"


_RIGHTS = {RoleKind.APP: "SELECT, INSERT, UPDATE, DELETE", RoleKind.READ_ONLY: "SELECT"}
_SEQUENCES = {RoleKind.APP: "SELECT, USAGE, UPDATE", RoleKind.READ_ONLY: "SELECT"}
TENANT_COLUMN = "row_of_role"
"""The column with the role that wrote a row, which the server fills in and compares."""
OPEN_POLICY = "rows_of_programs"
"""The policy that leaves the rows of programs to all roles but subagents, once row security is on for these."""
TENANT_POLICY = "rows_of_one_role"


def refuse_cluster(instead: str) -> str:
    """The statement that ends a script on Citus, which refuses triggers and policies with queries in words of its own.

    instead   what there is to do there
    """
    refuse = (
        "BEGIN IF EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus') THEN RAISE EXCEPTION"
        f" 'Citus takes neither the triggers nor the policies of this role on the tables of a tenant: {instead}'; END IF; END"
    )
    return f"DO {body(refuse)};"


def grants(kind: RoleKind, role: str, *, owner: str, schema: str, versions: Sequence[str], log: Sequence[str]) -> list[str]:
    """The statements that make the role and give it its rights. The owner of the schema, or a superuser, may run them repeatedly.

    owner     the role that upgrades, whose later tables the rights include
    versions  the tables that say at which revision the database is
    log       the tables of the log of events
    """
    to, of, where = quoted(role), quoted(owner), quoted(schema)
    made = role_made(role)
    if kind is RoleKind.OWNER:
        there = [f"CREATE SCHEMA IF NOT EXISTS {where} AUTHORIZATION {to};", f"ALTER SCHEMA {where} OWNER TO {to};"]
        return [made, *there, _handed_over(role, schema)]
    if kind is RoleKind.WATCHER:
        tables = ", ".join(f"{where}.{quoted(table)}" for table in (*versions, *log))
        numbers = f"GRANT SELECT ON ALL SEQUENCES IN SCHEMA {where} TO {to};"  # how far positions are
        return [made, f"GRANT USAGE ON SCHEMA {where} TO {to};", f"GRANT SELECT ON {tables} TO {to};", numbers]
    rights, sequences, later = _RIGHTS[kind], _SEQUENCES[kind], f"ALTER DEFAULT PRIVILEGES FOR ROLE {of} IN SCHEMA {where} GRANT"
    return [
        made,
        f"GRANT USAGE ON SCHEMA {where} TO {to};",
        f"GRANT {rights} ON ALL TABLES IN SCHEMA {where} TO {to};",
        f"GRANT {sequences} ON ALL SEQUENCES IN SCHEMA {where} TO {to};",
        f"{later} {rights} ON TABLES TO {to};",
        f"{later} {sequences} ON SEQUENCES TO {to};",
    ]


def _handed_over(role: str, schema: str) -> str:
    """The statement that gives the role what is in the schema: another one may have made it, which then alone could upgrade it.

    A sequence goes with the table whose column it numbers.
    """
    theirs = f"pg_namespace.nspname = {literal(schema)} AND {literal(role)} <> pg_get_userbyid"
    tables = (
        "SELECT 'TABLE ' || pg_class.oid::regclass AS what FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        f" WHERE relkind IN ('r', 'p', 'v') AND {theirs}(relowner)"
    )
    sequences = (
        "SELECT 'SEQUENCE ' || pg_class.oid::regclass FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        f" WHERE relkind = 'S' AND {theirs}(relowner)"
        " AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype IN ('a', 'i'))"
    )
    functions = (
        "SELECT 'FUNCTION ' || pg_proc.oid::regprocedure FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace"
        f" WHERE prokind = 'f' AND {theirs}(proowner)"
    )
    give = (
        f"DECLARE what text; BEGIN FOR what IN {tables} UNION ALL {sequences} UNION ALL {functions}"
        f" LOOP EXECUTE 'ALTER ' || what || {literal(f' OWNER TO {quoted(role)}')}; END LOOP; END"
    )
    return f"DO {body(give)};"


def role_made(role: str) -> str:
    """The statement that makes a role unless it is there."""
    make = (
        f"BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {literal(role)})"
        f" THEN CREATE ROLE {quoted(role)} LOGIN; END IF; END"
    )
    return f"DO {body(make)};"
