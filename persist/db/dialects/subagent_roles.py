"""The SQL that makes a role of Postgres for subagents that are not trusted: it sees and writes what its token is for.

Row security asks a function what the session's token is for; the function alone reads the table of tokens, which has the hashes.
The token travels in the options of the connection, as a setting of the session.
"""

from hashlib import sha256

from persist.db.dialects.planner_statistics import unmeasured
from persist.db.dialects.quoting import body, literal, quoted
from persist.db.dialects.roles import OPEN_POLICY, TENANT_POLICY, refuse_cluster

SETTING = "persist.subagent_token"
"""The setting of a session that holds its token."""
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


def policy_of(role: str) -> str:
    """The name of the policy that keeps a role to its rows; roles of long names have one, too."""
    return f"rows_of_a_subagent_{sha256(role.encode()).hexdigest()[:16]}"


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
