"""The triggers that note raw writes on Postgres. Their WHEN looks for the mark, so that persist's rows cost no function call."""

from sqlalchemy import Table

from persist.db.dialects.roles import OUTER_ROLE
from persist.db.schema.raw_writes import KEPT, LOGGED, MAX_CHARACTERS, MAX_NOTES, SETTING, LoggedWrites
from persist.db.schema.row_guards import PREFIX

UNMARKED = f"current_setting('{SETTING}', true) IS DISTINCT FROM 'on'"
"""The condition that the writer is not persist."""
MARK = f"set_config('{SETTING}', 'on', true)"
"""What marks a transaction, in the SELECT with which it begins."""
MARK_JOINED = f"SET LOCAL {SETTING} = 'on'"
UNMARK_JOINED = f"SET LOCAL {SETTING} = ''"
_NOTE = f"""
DECLARE was jsonb; is_now jsonb; row_key jsonb; said jsonb; notes bigint; scope text := '';
BEGIN
IF TG_OP IN ('UPDATE', 'DELETE') THEN was := to_jsonb(OLD); END IF;
IF TG_OP IN ('UPDATE', 'INSERT') THEN is_now := to_jsonb(NEW); END IF;
IF TG_OP = 'TRUNCATE' OR was IS DISTINCT FROM is_now THEN
IF TG_OP <> 'TRUNCATE' THEN
scope := coalesce(was, is_now) ->> TG_ARGV[0];
SELECT jsonb_object_agg(name, coalesce(was, is_now) -> name) INTO row_key
FROM unnest(string_to_array(TG_ARGV[1], ',')) AS name;
SELECT jsonb_object_agg(o.key, CASE WHEN length(o.value #>> '{{}}') > {MAX_CHARACTERS}
THEN to_jsonb(left(o.value #>> '{{}}', {MAX_CHARACTERS}) || ' ... (' || length(o.value #>> '{{}}') || ' characters)')
ELSE o.value END) INTO said FROM jsonb_each(was) AS o
WHERE CASE WHEN is_now IS NULL THEN o.value <> 'null' ELSE o.value IS DISTINCT FROM is_now -> o.key END;
END IF;
EXECUTE 'SELECT count(*) FROM (SELECT 1 FROM ' || quote_ident(TG_TABLE_SCHEMA) || '.{LOGGED} WHERE run_id = $1
LIMIT {MAX_NOTES}) AS noted' INTO notes USING scope;
IF notes < {MAX_NOTES} THEN
EXECUTE 'INSERT INTO ' || quote_ident(TG_TABLE_SCHEMA) || '.{LOGGED}
(run_id, at, table_name, operation, row_key_json, before_json, writer_json) VALUES ($1, $2, $3, $4, $5, $6, $7)'
USING scope, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), TG_TABLE_NAME, lower(TG_OP), row_key, said,
jsonb_build_object('role', {OUTER_ROLE}, 'application', current_setting('application_name'), 'pid', pg_backend_pid(),
'address', host(inet_client_addr()));
END IF;
END IF;
RETURN NEW;
END
"""
_REFUSE = f"BEGIN RAISE EXCEPTION USING ERRCODE = '23514', CONSTRAINT = '{LOGGED}', MESSAGE = '{KEPT}'; END"
_FUNCTION = "RETURNS trigger LANGUAGE plpgsql"
# The writer needs no right to write notes: the function runs as its owner, and looks for names where nobody shadows them.
_DEFINER = "SECURITY DEFINER SET search_path = pg_catalog, pg_temp"


def raw_write_ddl(table: Table, within: str) -> list[str]:
    """The statements that create the function and the triggers of a table; none unless its model declares them."""
    if LOGGED not in table.info:
        return []
    rule: LoggedWrites | None = table.info[LOGGED]
    name, function = f"{PREFIX}_log_{table.name}", f"{within}{PREFIX}_log_{table.name}"
    if rule is None:
        return [
            f"CREATE FUNCTION {function}() {_FUNCTION} AS $$ {_REFUSE} $$",
            f"CREATE TRIGGER {name} BEFORE UPDATE OR DELETE OR TRUNCATE ON {within}{table.name} FOR EACH STATEMENT"
            f" WHEN ({UNMARKED}) EXECUTE FUNCTION {function}()",
        ]
    call = f"EXECUTE FUNCTION {function}('{rule.scope}', '{','.join(rule.keys[0])}')"
    return [
        f"CREATE FUNCTION {function}() {_FUNCTION} {_DEFINER} AS $$ {' '.join(_NOTE.split())} $$",
        f"CREATE TRIGGER {name}_rows AFTER INSERT OR UPDATE OR DELETE ON {within}{table.name} FOR EACH ROW"
        f" WHEN ({UNMARKED}) {call}",
        f"CREATE TRIGGER {name}_table BEFORE TRUNCATE ON {within}{table.name} FOR EACH STATEMENT WHEN ({UNMARKED}) {call}",
    ]
