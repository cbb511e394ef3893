"""The triggers that note raw writes on Postgres. Their WHEN looks for the mark, so that persist's rows cost no function call."""

from sqlalchemy import Table

from persist.db.dialects.roles import OUTER_ROLE
from persist.db.schema.raw_writes import (
    INSERT,
    KEPT,
    LOGGED,
    MAX_CHARACTERS,
    MAX_EMPTIED,
    MAX_NOTES,
    SETTING,
    TRUNCATE,
    LoggedWrites,
)
from persist.db.schema.row_guards import PREFIX

UNMARKED = f"current_setting('{SETTING}', true) IS DISTINCT FROM 'on'"
"""The condition that the writer is not persist."""
MARK = f"set_config('{SETTING}', 'on', true)"
"""What marks a transaction, in the SELECT with which it begins."""
MARK_JOINED = f"SET LOCAL {SETTING} = 'on'"
UNMARK_JOINED = f"SET LOCAL {SETTING} = ''"
_NOTE = f"""
DECLARE home text; was jsonb; is_now jsonb; said jsonb; this jsonb; notes bigint; room bigint := {MAX_NOTES}; moved boolean;
BEGIN
SELECT quote_ident(n.nspname) INTO home FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
JOIN pg_class c ON c.oid = t.tgrelid AND c.relnamespace = p.pronamespace AND p.proname = '{PREFIX}_log_' || c.relname
JOIN pg_namespace n ON n.oid = p.pronamespace WHERE t.tgrelid = TG_RELID AND t.tgname = TG_NAME;
IF home IS NULL THEN
RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = '{LOGGED}: this function notes what is written to the tables of its schema';
END IF;
IF TG_OP IN ('UPDATE', 'DELETE') THEN was := to_jsonb(OLD); END IF;
IF TG_OP IN ('UPDATE', 'INSERT') THEN is_now := to_jsonb(NEW); END IF;
IF TG_OP = 'TRUNCATE' THEN room := {MAX_EMPTIED}; ELSIF was IS NOT DISTINCT FROM is_now THEN RETURN NEW; END IF;
SELECT jsonb_object_agg(o.key, CASE WHEN length(o.value #>> '{{}}') > {MAX_CHARACTERS}
THEN to_jsonb(left(o.value #>> '{{}}', {MAX_CHARACTERS}) || ' ... (' || length(o.value #>> '{{}}') || ' characters)')
ELSE o.value END) INTO said FROM jsonb_each(was) AS o
WHERE CASE WHEN is_now IS NULL THEN o.value <> 'null' ELSE o.value IS DISTINCT FROM is_now -> o.key END;
FOREACH this IN ARRAY CASE WHEN TG_OP = 'TRUNCATE' THEN ARRAY['{{}}'::jsonb]
WHEN was ->> TG_ARGV[0] IS DISTINCT FROM is_now ->> TG_ARGV[0] THEN array_remove(ARRAY[was, is_now], NULL)
ELSE ARRAY[was] END LOOP
moved := TG_OP = 'UPDATE' AND this IS DISTINCT FROM was;
EXECUTE 'SELECT count(*) FROM (SELECT 1 FROM ' || home || '.{LOGGED} WHERE run_id = $1
AND (operation = ''{TRUNCATE}'') = $2 LIMIT $3) AS noted' INTO notes
USING coalesce(this ->> TG_ARGV[0], ''), TG_OP = 'TRUNCATE', room;
IF notes < room THEN
EXECUTE 'INSERT INTO ' || home || '.{LOGGED}
(run_id, at, table_name, operation, row_key_json, before_json, writer_json) VALUES ($1, $2, $3, $4, $5, $6, $7)'
USING coalesce(this ->> TG_ARGV[0], ''), CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), TG_TABLE_NAME,
CASE WHEN moved THEN '{INSERT}' ELSE lower(TG_OP) END, (SELECT jsonb_object_agg(name, this -> name)
FROM unnest(string_to_array(TG_ARGV[1], ',')) AS name WHERE TG_OP <> 'TRUNCATE'), CASE WHEN NOT moved THEN said END,
jsonb_build_object('role', {OUTER_ROLE}, 'application', current_setting('application_name'), 'pid', pg_backend_pid(),
'address', host(inet_client_addr()));
END IF;
END LOOP;
RETURN NEW;
END
"""
"""Notes go to the schema of the function itself, whatever a trigger says: who attaches it to a table of his own is refused."""
_REFUSE = f"BEGIN RAISE EXCEPTION USING ERRCODE = '23514', CONSTRAINT = '{LOGGED}', MESSAGE = '{KEPT}'; END"
_BY_HAND = "pg_trigger_depth() = 0"
_FUNCTION = "RETURNS trigger LANGUAGE plpgsql"
# The writer needs no right to write notes: the function runs as its owner, and looks for names where nobody shadows them.
_DEFINER = "SECURITY DEFINER SET search_path = pg_catalog, pg_temp"


def raw_write_ddl(table: Table, within: str) -> list[str]:
    """The statements that create the function and the triggers of a table; none unless its model declares them."""
    if LOGGED not in table.info:
        return []
    rule: LoggedWrites | None = table.info[LOGGED]
    name, function = f"{PREFIX}_log_{table.name}", f"{within}{PREFIX}_log_{table.name}"
    kept = f"{name} BEFORE UPDATE OR DELETE OR TRUNCATE ON {within}{table.name} FOR EACH STATEMENT WHEN ({UNMARKED})"
    if rule is None:
        made = f"{name}_made BEFORE INSERT ON {within}{table.name} FOR EACH STATEMENT WHEN ({UNMARKED} AND {_BY_HAND})"
        return [
            f"CREATE FUNCTION {function}() {_FUNCTION} AS $$ {_REFUSE} $$",
            f"CREATE TRIGGER {kept} EXECUTE FUNCTION {function}()",
            f"CREATE TRIGGER {made} EXECUTE FUNCTION {function}()",
        ]
    call = f"EXECUTE FUNCTION {function}('{rule.scope}', '{','.join(rule.keys[0])}')"
    return [
        f"CREATE FUNCTION {function}() {_FUNCTION} {_DEFINER} AS $$ {' '.join(_NOTE.split())} $$",
        f"REVOKE ALL ON FUNCTION {function}() FROM PUBLIC",
        f"CREATE TRIGGER {name}_rows AFTER INSERT OR UPDATE OR DELETE ON {within}{table.name} FOR EACH ROW"
        f" WHEN ({UNMARKED}) {call}",
        f"CREATE TRIGGER {name}_table BEFORE TRUNCATE ON {within}{table.name} FOR EACH STATEMENT WHEN ({UNMARKED}) {call}",
    ]
