"""The SQL that makes roles of Postgres and grants their rights, also to untrusted subagents."""

from collections.abc import Sequence
from enum import StrEnum

from persist.db.dialects.postgres.tenant_server import SETTING, policy_of
from persist.db.values.escaping import body, literal, quoted


class RoleKind(StrEnum):
    """What a role is for.

    owner      makes and upgrades the tables, and switches the log of events
    app        reads and writes rows: what a program with a Store needs
    read-only  reads everything
    watcher    reads the log of events and nothing else
    subagent   reads and writes what its token allows: the values of one frame of a program, and an agent's memory
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
    """The statement that ends a script on Citus, which refuses such triggers in words of its own. `instead`: what to do there."""
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
        return [made, _joined(role), *there, _handed_over(role, schema)]
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
    """The statement that makes the role the owner of all in the schema, which upgrades need; sequences go with their tables."""
    theirs = f"pg_namespace.nspname = {literal(schema)} AND {literal(role)} <> pg_get_userbyid"
    tables = (
        "SELECT 'TABLE ' || pg_class.oid::regclass AS what FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        f" WHERE relkind IN ('r', 'p', 'v', 'm') AND {theirs}(relowner)"
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


def _joined(role: str) -> str:
    """The statement that lets who runs the script give things to the role: who may make roles is no member of those it makes."""
    join = (
        f"BEGIN IF CURRENT_USER <> {literal(role)} AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = CURRENT_USER)"
        f" THEN GRANT {quoted(role)} TO CURRENT_USER; END IF; EXCEPTION WHEN insufficient_privilege THEN NULL; END"
    )
    return f"DO {body(join)};"


def role_made(role: str) -> str:
    """The statement that makes a role unless it is there."""
    make = (
        f"BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {literal(role)})"
        f" THEN CREATE ROLE {quoted(role)} LOGIN; END IF; END"
    )
    return f"DO {body(make)};"


# Row security hides rows, not what ANALYZE has collected of them: comparisons of texts count as harmless, so that the planner
# estimates them by the values of all rows, and EXPLAIN tells everybody the estimate. By bisection that gives away whole values.

_CLEAR = "pg_catalog.pg_clear_attribute_stats(text,text,text,boolean)"
"""The function of Postgres 18 with which the owner of a table deletes what is known of a column."""
_TYPES = ("text", "jsonb", "name", "bytea")
_LEFT = "a superuser has to run this script, or what ANALYZE collected before stays, and EXPLAIN gives it away"


def unmeasured(schema: str, tables: Sequence[str]) -> str:
    """The statement that keeps ANALYZE from these tables' texts, JSON and indexed expressions, as far as the role may do that."""
    listed = ", ".join(literal(table) for table in tables)
    types = ", ".join(f"'{one}'::regtype" for one in _TYPES)
    measured = (
        "SELECT c.oid, c.relname, c.relkind, a.attname, a.attnum, a.attstattarget FROM pg_catalog.pg_class t"
        " JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace"
        " JOIN pg_catalog.pg_class c ON c.oid = t.oid"
        " OR c.oid IN (SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = t.oid)"
        " JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid"
        f" WHERE n.nspname = {literal(schema)} AND t.relname IN ({listed})"
        f" AND CASE WHEN c.oid = t.oid THEN a.atttypid IN ({types}) ELSE i.indkey[a.attnum - 1] = 0 END"
    )
    clear = f"to_regprocedure('{_CLEAR}') IS NOT NULL"
    forget = (
        "DECLARE one record; BEGIN"
        f" FOR one IN {measured} LOOP"
        " IF one.attstattarget IS DISTINCT FROM 0 THEN"
        " IF one.relkind = 'i' THEN"
        f" EXECUTE format('ALTER INDEX %I.%I ALTER COLUMN %s SET STATISTICS 0', {literal(schema)}, one.relname, one.attnum);"
        " ELSE EXECUTE"
        f" format('ALTER TABLE %I.%I ALTER COLUMN %I SET STATISTICS 0', {literal(schema)}, one.relname, one.attname);"
        " END IF; END IF;"
        f" IF {clear} THEN EXECUTE 'SELECT pg_catalog.pg_clear_attribute_stats($1, $2, $3, false)'"
        f" USING {literal(schema)}, one.relname::text, one.attname::text;"
        " ELSIF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN"
        " DELETE FROM pg_catalog.pg_statistic WHERE starelid = one.oid AND staattnum = one.attnum;"
        " END IF; END LOOP;"
        f" IF NOT ({clear}) AND NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)"
        f" THEN RAISE WARNING '{_LEFT}'; END IF; END"
    )
    return f"DO {body(forget)};"


# Row security asks a function what the session's token is for; the function alone reads the table of tokens, which has the
# hashes. The token travels in the options of the connection, as a setting of the session.

PERMIT = "persist_subagent_permit"
"""The function that returns the run, the frame and the agent of the session's token."""
LASTING = "persist_subagent_lasts"
"""The function that says of each row that is written whether the token is still good for it, whatever the transaction sees."""
_TABLES = ("bindings", "agents", "agent_segments")
_LASTING_ARGUMENTS = "(text, bigint, text)"
_WORDS = "'input', 'output', 'let', 'const'"
_NAME = literal(r"^\w[\w.-]*$")
_LABEL_BYTES = 600
_GOOD = (
    "s.token_hash = pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to("
    f"pg_catalog.current_setting('{SETTING}', true), 'UTF8')), 'hex')"
    " AND s.isolation = 'role' AND s.ended_at IS NULL AND s.expires_at > pg_catalog.clock_timestamp() AND r.status = 'running'"
)
_AT_WORK = "e.status IN ('pending', 'executing')"
_GIVES_UP = "PS001"
_CHANGED = "kind, value, source_statement, attachment_path, updated_at"


def subagent_grants(role: str, schema: str, *, made: str, max_text_bytes: int) -> list[str]:
    """The statements that make the role. The owner of the tables or a superuser runs them, after upgrades again.

    made            the statement that makes the role
    max_text_bytes  how long a text of the role may be
    """
    to, where = quoted(role), quoted(schema)
    name = {table: f"{where}.{quoted(table)}" for table in _TABLES}
    rights = (
        ("bindings", "run_id, name, execution_id, kind, value, source_statement, attachment_path, updated_at", _CHANGED),
        ("agents", None, "memory, updated_at"),
        ("agent_segments", "run_id, agent_name, segment_number, prompt, summary", None),
    )
    refused = [refuse_cluster('a subagent has a file there, by isolation="file"'), _refuse_tenants(schema)]
    statements = [*refused, made, _permit(where), _lasting(where), f"GRANT USAGE ON SCHEMA {where} TO {to};"]
    for function in (f"{where}.{PERMIT}()", f"{where}.{LASTING}{_LASTING_ARGUMENTS}"):
        statements += [f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC;", f"GRANT EXECUTE ON FUNCTION {function} TO {to};"]
    for table, inserted, updated in rights:
        statements.append(f"GRANT SELECT ON {name[table]} TO {to};")
        if inserted is not None:
            statements.append(f"GRANT INSERT ({inserted}) ON {name[table]} TO {to};")
        if updated is not None:
            statements.append(f"GRANT UPDATE ({updated}) ON {name[table]} TO {to};")
    for table in _TABLES:
        statements += [
            f"ALTER TABLE {name[table]} ENABLE ROW LEVEL SECURITY;",
            f"DROP POLICY IF EXISTS {OPEN_POLICY} ON {name[table]};",
            f"CREATE POLICY {OPEN_POLICY} ON {name[table]} USING (true);",
        ]
        seen, written = _rules(where, table, max_text_bytes)
        policy = quoted(policy_of(role))
        statements += [
            f"DROP POLICY IF EXISTS {policy} ON {name[table]};",
            f"CREATE POLICY {policy} ON {name[table]} AS RESTRICTIVE TO {to} USING ({seen}) WITH CHECK ({seen} AND {written});",
        ]
    once = quoted(f"{policy_of(role)}_once")
    statements += [
        f"DROP POLICY IF EXISTS {once} ON {name['bindings']};",
        f"CREATE POLICY {once} ON {name['bindings']} AS RESTRICTIVE FOR UPDATE TO {to}"
        " USING (kind IS NULL OR kind NOT IN ('const', 'input')) WITH CHECK (true);",
    ]
    return [*statements, unmeasured(schema, _TABLES), _silence(role)]


def _permit(where: str) -> str:
    permit = (
        "SELECT s.run_id, s.execution_id, s.agent_name"
        f" FROM {where}.program_subagents s JOIN {where}.run r ON r.id = s.run_id"
        f" LEFT JOIN {where}.execution e ON e.run_id = s.run_id AND e.id = s.execution_id"
        f" WHERE {_GOOD} AND (s.execution_id IS NULL OR {_AT_WORK})"
    )
    return (
        f"CREATE OR REPLACE FUNCTION {where}.{PERMIT}(OUT run_id text, OUT execution_id bigint, OUT agent_name text) RETURNS"
        f" SETOF record LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {body(permit)};"
    )


def _lasting(where: str) -> str:
    """The policies' other function reads with the snapshot of the statement, which in REPEATABLE READ is that of the transaction.

    A lock finds the rows as they are, or fails where the snapshot is older. A subtransaction that is rolled back gives it up at
    once: otherwise a subagent that leaves its transaction open would keep everybody from ending its token, its frame and its run.
    """
    look = (
        "DECLARE frame bigint; lasts boolean; BEGIN BEGIN"
        f" SELECT s.execution_id INTO frame FROM {where}.program_subagents s JOIN {where}.run r ON r.id = s.run_id"
        f" WHERE {_GOOD} AND s.run_id = of_run"
        " AND CASE WHEN of_agent IS NULL THEN s.execution_id IS NOT DISTINCT FROM of_frame ELSE s.agent_name = of_agent END"
        " FOR SHARE OF s, r; lasts := FOUND;"
        " IF lasts AND frame IS NOT NULL THEN"
        f" PERFORM 1 FROM {where}.execution e WHERE e.run_id = of_run AND e.id = frame AND {_AT_WORK} FOR SHARE;"
        " lasts := FOUND; END IF;"
        f" RAISE EXCEPTION SQLSTATE '{_GIVES_UP}';"
        f" EXCEPTION WHEN SQLSTATE '{_GIVES_UP}' THEN NULL; END; RETURN lasts; END"
    )
    return (
        f"CREATE OR REPLACE FUNCTION {where}.{LASTING}(of_run text, of_frame bigint, of_agent text) RETURNS boolean"
        f" LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {body(look)};"
    )


def _rules(where: str, table: str, max_text_bytes: int) -> tuple[str, str]:
    """Which rows a subagent sees and writes, and what else has to hold for a row that it writes."""

    def permit(column: str) -> str:
        return f"(SELECT permit.{column} FROM {where}.{PERMIT}() permit)"

    def short(*columns: str) -> str:
        return " AND ".join(f"coalesce(octet_length({column}), 0) <= {max_text_bytes}" for column in columns)

    now = "updated_at BETWEEN now() - interval '1 day' AND now() + interval '1 day'"
    run = f"run_id = {permit('run_id')}"

    def lasts(frame: str, agent: str) -> str:
        return f"{where}.{LASTING}(run_id, {frame}, {agent})"  # of columns, so that it runs anew for each row

    if table == "bindings":
        return (
            f"{run} AND execution_id IS NOT DISTINCT FROM {permit('execution_id')}",
            f"attachment_path IS NULL AND kind IN ({_WORDS}) AND name ~ {_NAME} AND octet_length(name) <= {_LABEL_BYTES}"
            f" AND {now} AND {short('value', 'source_statement')} AND {lasts('execution_id', 'NULL')}",
        )
    if table == "agents":
        return f"{run} AND name = {permit('agent_name')}", f"{now} AND {short('memory')} AND {lasts('NULL', 'name')}"
    numbers = "segment_number BETWEEN 1 AND 1000000000"
    return (
        f"{run} AND agent_name = {permit('agent_name')}",
        f"{numbers} AND {short('prompt', 'summary')} AND {lasts('NULL', 'agent_name')}",
    )


def _refuse_tenants(schema: str) -> str:
    refuse = (
        "BEGIN IF EXISTS (SELECT FROM pg_catalog.pg_policies"
        f" WHERE schemaname = {literal(schema)} AND policyname = '{TENANT_POLICY}')"
        " THEN RAISE EXCEPTION 'tenants share this schema: their rows and those of subagents are not kept apart by one rule';"
        " END IF; END"
    )
    return f"DO {body(refuse)};"


def _silence(role: str) -> str:
    """Other sessions of the role do not see what a session runs; only a superuser may arrange for that."""
    hide = (
        f"BEGIN ALTER ROLE {quoted(role)} SET track_activities = off; EXCEPTION WHEN insufficient_privilege THEN"
        " RAISE NOTICE 'sessions of this role see the statements of each other, unless a superuser runs this'; END"
    )
    return f"DO {body(hide)};"
