"""Notes of raw writes: triggers write down what a program that is not persist changes; the actor of an event.

Additive only: create tables, add columns (nullable, or with a server default), create indexes and triggers that write into a
table of the same revision. Nothing is dropped, renamed, narrowed or rebuilt, and code of the previous release must run on the
result: what it writes is noted, too. Name no schema: env.py sets it. Import only alembic and sqlalchemy. Once released, this
file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


ON_SQLITE = (
    "CREATE TRIGGER persist_row_guard_log_run_meets BEFORE INSERT ON run WHEN substr(sqlite_source_id(), -8) <> ' persist' "
    "BEGIN DELETE FROM raw_writes WHERE at = 0; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, "
    "before_json) SELECT CASE WHEN was.id IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE was.id END, 0, "
    "'run', 'replace', json_object('id', was.id), json_array(json_object('id', quote(was.id), 'program_path', "
    "quote(was.program_path), 'started_at', quote(was.started_at), 'updated_at', quote(was.updated_at), 'status', "
    "quote(was.status), 'state_mode', quote(was.state_mode), 'written_status', quote(was.written_status), "
    "'anonymous_names', quote(was.anonymous_names), 'held_by', quote(was.held_by), 'held_since', quote(was.held_since), "
    "'seen_at', quote(was.seen_at), 'program_source', quote(was.program_source))) FROM run AS was WHERE (was.id = NEW.id); "
    "END",
    "CREATE TRIGGER persist_row_guard_log_run_inserted AFTER INSERT ON run WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT CASE WHEN "
    "NEW.id IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE NEW.id END, 0, 'run', 'insert', "
    "json_object('id', NEW.id), NULL; END",
    "CREATE TRIGGER persist_row_guard_log_run_updated AFTER UPDATE ON run WHEN substr(sqlite_source_id(), -8) <> ' persist'"
    " BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT CASE WHEN OLD.id "
    "IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE OLD.id END, 0, 'run', 'update', json_object('id', "
    "OLD.id), json_array(json_object('id', quote(OLD.id), 'program_path', quote(OLD.program_path), 'started_at', "
    "quote(OLD.started_at), 'updated_at', quote(OLD.updated_at), 'status', quote(OLD.status), 'state_mode', "
    "quote(OLD.state_mode), 'written_status', quote(OLD.written_status), 'anonymous_names', quote(OLD.anonymous_names), "
    "'held_by', quote(OLD.held_by), 'held_since', quote(OLD.held_since), 'seen_at', quote(OLD.seen_at), 'program_source', "
    "quote(OLD.program_source)), json_object('id', quote(NEW.id), 'program_path', quote(NEW.program_path), 'started_at', "
    "quote(NEW.started_at), 'updated_at', quote(NEW.updated_at), 'status', quote(NEW.status), 'state_mode', "
    "quote(NEW.state_mode), 'written_status', quote(NEW.written_status), 'anonymous_names', quote(NEW.anonymous_names), "
    "'held_by', quote(NEW.held_by), 'held_since', quote(NEW.held_since), 'seen_at', quote(NEW.seen_at), 'program_source', "
    "quote(NEW.program_source))); END",
    "CREATE TRIGGER persist_row_guard_log_run_deleted AFTER DELETE ON run WHEN substr(sqlite_source_id(), -8) <> ' persist'"
    " BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT CASE WHEN OLD.id "
    "IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE OLD.id END, 0, 'run', 'delete', json_object('id', "
    "OLD.id), json_array(json_object('id', quote(OLD.id), 'program_path', quote(OLD.program_path), 'started_at', "
    "quote(OLD.started_at), 'updated_at', quote(OLD.updated_at), 'status', quote(OLD.status), 'state_mode', "
    "quote(OLD.state_mode), 'written_status', quote(OLD.written_status), 'anonymous_names', quote(OLD.anonymous_names), "
    "'held_by', quote(OLD.held_by), 'held_since', quote(OLD.held_since), 'seen_at', quote(OLD.seen_at), 'program_source', "
    "quote(OLD.program_source))); END",
    "CREATE TRIGGER persist_row_guard_log_execution_meets BEFORE INSERT ON execution WHEN substr(sqlite_source_id(), -8) <>"
    " ' persist' BEGIN DELETE FROM raw_writes WHERE at = 0; INSERT INTO raw_writes (run_id, at, table_name, operation, "
    "row_key_json, before_json) SELECT was.run_id, 0, 'execution', 'replace', json_object('id', was.id), "
    "json_array(json_object('id', quote(was.id), 'run_id', quote(was.run_id), 'statement_index', "
    "quote(was.statement_index), 'status', quote(was.status), 'written_status', quote(was.written_status), 'started_at', "
    "quote(was.started_at), 'completed_at', quote(was.completed_at), 'updated_at', quote(was.updated_at), 'parent_id', "
    "quote(was.parent_id), 'statement_text', quote(was.statement_text), 'error_message', quote(was.error_message), "
    "'metadata', quote(was.metadata))) FROM execution AS was WHERE (was.id = NEW.id); END",
    "CREATE TRIGGER persist_row_guard_log_execution_inserted AFTER INSERT ON execution WHEN substr(sqlite_source_id(), -8) "
    "<> ' persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "NEW.run_id, 0, 'execution', 'insert', json_object('id', NEW.id), NULL; END",
    "CREATE TRIGGER persist_row_guard_log_execution_updated AFTER UPDATE ON execution WHEN substr(sqlite_source_id(), -8) "
    "<> ' persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "OLD.run_id, 0, 'execution', 'update', json_object('id', OLD.id), json_array(json_object('id', quote(OLD.id), 'run_id',"
    " quote(OLD.run_id), 'statement_index', quote(OLD.statement_index), 'status', quote(OLD.status), 'written_status', "
    "quote(OLD.written_status), 'started_at', quote(OLD.started_at), 'completed_at', quote(OLD.completed_at), 'updated_at',"
    " quote(OLD.updated_at), 'parent_id', quote(OLD.parent_id), 'statement_text', quote(OLD.statement_text), "
    "'error_message', quote(OLD.error_message), 'metadata', quote(OLD.metadata)), json_object('id', quote(NEW.id), "
    "'run_id', quote(NEW.run_id), 'statement_index', quote(NEW.statement_index), 'status', quote(NEW.status), "
    "'written_status', quote(NEW.written_status), 'started_at', quote(NEW.started_at), 'completed_at', "
    "quote(NEW.completed_at), 'updated_at', quote(NEW.updated_at), 'parent_id', quote(NEW.parent_id), 'statement_text', "
    "quote(NEW.statement_text), 'error_message', quote(NEW.error_message), 'metadata', quote(NEW.metadata))); END",
    "CREATE TRIGGER persist_row_guard_log_execution_deleted AFTER DELETE ON execution WHEN substr(sqlite_source_id(), -8) "
    "<> ' persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "OLD.run_id, 0, 'execution', 'delete', json_object('id', OLD.id), json_array(json_object('id', quote(OLD.id), 'run_id',"
    " quote(OLD.run_id), 'statement_index', quote(OLD.statement_index), 'status', quote(OLD.status), 'written_status', "
    "quote(OLD.written_status), 'started_at', quote(OLD.started_at), 'completed_at', quote(OLD.completed_at), 'updated_at',"
    " quote(OLD.updated_at), 'parent_id', quote(OLD.parent_id), 'statement_text', quote(OLD.statement_text), "
    "'error_message', quote(OLD.error_message), 'metadata', quote(OLD.metadata))); END",
    "CREATE TRIGGER persist_row_guard_log_bindings_meets BEFORE INSERT ON bindings WHEN substr(sqlite_source_id(), -8) <> '"
    " persist' BEGIN DELETE FROM raw_writes WHERE at = 0; INSERT INTO raw_writes (run_id, at, table_name, operation, "
    "row_key_json, before_json) SELECT was.run_id, 0, 'bindings', 'replace', json_object('run_id', was.run_id, 'name', "
    "was.name, 'execution_id', was.execution_id), json_array(json_object('run_id', quote(was.run_id), 'name', "
    "quote(was.name), 'execution_id', quote(was.execution_id), 'kind', quote(was.kind), 'source_statement', "
    "quote(was.source_statement), 'created_at', quote(was.created_at), 'updated_at', quote(was.updated_at), "
    "'attachment_path', quote(was.attachment_path), 'value', quote(was.value))) FROM bindings AS was WHERE (was.run_id = "
    "NEW.run_id AND was.name = NEW.name AND coalesce(was.execution_id, -1) = coalesce(NEW.execution_id, -1)); END",
    "CREATE TRIGGER persist_row_guard_log_bindings_inserted AFTER INSERT ON bindings WHEN substr(sqlite_source_id(), -8) <>"
    " ' persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "NEW.run_id, 0, 'bindings', 'insert', json_object('run_id', NEW.run_id, 'name', NEW.name, 'execution_id', "
    "NEW.execution_id), NULL; END",
    "CREATE TRIGGER persist_row_guard_log_bindings_updated AFTER UPDATE ON bindings WHEN substr(sqlite_source_id(), -8) <> "
    "' persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "OLD.run_id, 0, 'bindings', 'update', json_object('run_id', OLD.run_id, 'name', OLD.name, 'execution_id', "
    "OLD.execution_id), json_array(json_object('run_id', quote(OLD.run_id), 'name', quote(OLD.name), 'execution_id', "
    "quote(OLD.execution_id), 'kind', quote(OLD.kind), 'source_statement', quote(OLD.source_statement), 'created_at', "
    "quote(OLD.created_at), 'updated_at', quote(OLD.updated_at), 'attachment_path', quote(OLD.attachment_path), 'value', "
    "quote(OLD.value)), json_object('run_id', quote(NEW.run_id), 'name', quote(NEW.name), 'execution_id', "
    "quote(NEW.execution_id), 'kind', quote(NEW.kind), 'source_statement', quote(NEW.source_statement), 'created_at', "
    "quote(NEW.created_at), 'updated_at', quote(NEW.updated_at), 'attachment_path', quote(NEW.attachment_path), 'value', "
    "quote(NEW.value))); END",
    "CREATE TRIGGER persist_row_guard_log_bindings_deleted AFTER DELETE ON bindings WHEN substr(sqlite_source_id(), -8) <> "
    "' persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "OLD.run_id, 0, 'bindings', 'delete', json_object('run_id', OLD.run_id, 'name', OLD.name, 'execution_id', "
    "OLD.execution_id), json_array(json_object('run_id', quote(OLD.run_id), 'name', quote(OLD.name), 'execution_id', "
    "quote(OLD.execution_id), 'kind', quote(OLD.kind), 'source_statement', quote(OLD.source_statement), 'created_at', "
    "quote(OLD.created_at), 'updated_at', quote(OLD.updated_at), 'attachment_path', quote(OLD.attachment_path), 'value', "
    "quote(OLD.value))); END",
    "CREATE TRIGGER persist_row_guard_log_agents_meets BEFORE INSERT ON agents WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN DELETE FROM raw_writes WHERE at = 0; INSERT INTO raw_writes (run_id, at, table_name, operation, "
    "row_key_json, before_json) SELECT was.run_id, 0, 'agents', 'replace', json_object('run_id', was.run_id, 'name', "
    "was.name), json_array(json_object('run_id', quote(was.run_id), 'name', quote(was.name), 'scope', quote(was.scope), "
    "'created_at', quote(was.created_at), 'updated_at', quote(was.updated_at), 'memory', quote(was.memory))) FROM agents AS"
    " was WHERE (was.run_id = NEW.run_id AND was.name = NEW.name); END",
    "CREATE TRIGGER persist_row_guard_log_agents_inserted AFTER INSERT ON agents WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "NEW.run_id, 0, 'agents', 'insert', json_object('run_id', NEW.run_id, 'name', NEW.name), NULL; END",
    "CREATE TRIGGER persist_row_guard_log_agents_updated AFTER UPDATE ON agents WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "OLD.run_id, 0, 'agents', 'update', json_object('run_id', OLD.run_id, 'name', OLD.name), "
    "json_array(json_object('run_id', quote(OLD.run_id), 'name', quote(OLD.name), 'scope', quote(OLD.scope), 'created_at', "
    "quote(OLD.created_at), 'updated_at', quote(OLD.updated_at), 'memory', quote(OLD.memory)), json_object('run_id', "
    "quote(NEW.run_id), 'name', quote(NEW.name), 'scope', quote(NEW.scope), 'created_at', quote(NEW.created_at), "
    "'updated_at', quote(NEW.updated_at), 'memory', quote(NEW.memory))); END",
    "CREATE TRIGGER persist_row_guard_log_agents_deleted AFTER DELETE ON agents WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "OLD.run_id, 0, 'agents', 'delete', json_object('run_id', OLD.run_id, 'name', OLD.name), "
    "json_array(json_object('run_id', quote(OLD.run_id), 'name', quote(OLD.name), 'scope', quote(OLD.scope), 'created_at', "
    "quote(OLD.created_at), 'updated_at', quote(OLD.updated_at), 'memory', quote(OLD.memory))); END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_meets BEFORE INSERT ON agent_segments WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' BEGIN DELETE FROM raw_writes WHERE at = 0; INSERT INTO raw_writes "
    "(run_id, at, table_name, operation, row_key_json, before_json) SELECT was.run_id, 0, 'agent_segments', 'replace', "
    "json_object('id', was.id), json_array(json_object('id', quote(was.id), 'run_id', quote(was.run_id), 'agent_name', "
    "quote(was.agent_name), 'segment_number', quote(was.segment_number), 'timestamp', quote(was.timestamp), 'prompt', "
    "quote(was.prompt), 'summary', quote(was.summary))) FROM agent_segments AS was WHERE (was.id = NEW.id) OR (was.run_id ="
    " NEW.run_id AND was.agent_name = NEW.agent_name AND was.segment_number = NEW.segment_number); END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_inserted AFTER INSERT ON agent_segments WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, "
    "row_key_json, before_json) SELECT NEW.run_id, 0, 'agent_segments', 'insert', json_object('id', NEW.id), NULL; END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_updated AFTER UPDATE ON agent_segments WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, "
    "row_key_json, before_json) SELECT OLD.run_id, 0, 'agent_segments', 'update', json_object('id', OLD.id), "
    "json_array(json_object('id', quote(OLD.id), 'run_id', quote(OLD.run_id), 'agent_name', quote(OLD.agent_name), "
    "'segment_number', quote(OLD.segment_number), 'timestamp', quote(OLD.timestamp), 'prompt', quote(OLD.prompt), "
    "'summary', quote(OLD.summary)), json_object('id', quote(NEW.id), 'run_id', quote(NEW.run_id), 'agent_name', "
    "quote(NEW.agent_name), 'segment_number', quote(NEW.segment_number), 'timestamp', quote(NEW.timestamp), 'prompt', "
    "quote(NEW.prompt), 'summary', quote(NEW.summary))); END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_deleted AFTER DELETE ON agent_segments WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, "
    "row_key_json, before_json) SELECT OLD.run_id, 0, 'agent_segments', 'delete', json_object('id', OLD.id), "
    "json_array(json_object('id', quote(OLD.id), 'run_id', quote(OLD.run_id), 'agent_name', quote(OLD.agent_name), "
    "'segment_number', quote(OLD.segment_number), 'timestamp', quote(OLD.timestamp), 'prompt', quote(OLD.prompt), "
    "'summary', quote(OLD.summary))); END",
    "CREATE TRIGGER persist_row_guard_log_imports_meets BEFORE INSERT ON imports WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN DELETE FROM raw_writes WHERE at = 0; INSERT INTO raw_writes (run_id, at, table_name, operation, "
    "row_key_json, before_json) SELECT was.run_id, 0, 'imports', 'replace', json_object('run_id', was.run_id, 'alias', "
    "was.alias), json_array(json_object('run_id', quote(was.run_id), 'alias', quote(was.alias), 'source_url', "
    "quote(was.source_url), 'fetched_at', quote(was.fetched_at), 'inputs_schema', quote(was.inputs_schema), "
    "'outputs_schema', quote(was.outputs_schema))) FROM imports AS was WHERE (was.run_id = NEW.run_id AND was.alias = "
    "NEW.alias); END",
    "CREATE TRIGGER persist_row_guard_log_imports_inserted AFTER INSERT ON imports WHEN substr(sqlite_source_id(), -8) <> '"
    " persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "NEW.run_id, 0, 'imports', 'insert', json_object('run_id', NEW.run_id, 'alias', NEW.alias), NULL; END",
    "CREATE TRIGGER persist_row_guard_log_imports_updated AFTER UPDATE ON imports WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "OLD.run_id, 0, 'imports', 'update', json_object('run_id', OLD.run_id, 'alias', OLD.alias), "
    "json_array(json_object('run_id', quote(OLD.run_id), 'alias', quote(OLD.alias), 'source_url', quote(OLD.source_url), "
    "'fetched_at', quote(OLD.fetched_at), 'inputs_schema', quote(OLD.inputs_schema), 'outputs_schema', "
    "quote(OLD.outputs_schema)), json_object('run_id', quote(NEW.run_id), 'alias', quote(NEW.alias), 'source_url', "
    "quote(NEW.source_url), 'fetched_at', quote(NEW.fetched_at), 'inputs_schema', quote(NEW.inputs_schema), "
    "'outputs_schema', quote(NEW.outputs_schema))); END",
    "CREATE TRIGGER persist_row_guard_log_imports_deleted AFTER DELETE ON imports WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "OLD.run_id, 0, 'imports', 'delete', json_object('run_id', OLD.run_id, 'alias', OLD.alias), "
    "json_array(json_object('run_id', quote(OLD.run_id), 'alias', quote(OLD.alias), 'source_url', quote(OLD.source_url), "
    "'fetched_at', quote(OLD.fetched_at), 'inputs_schema', quote(OLD.inputs_schema), 'outputs_schema', "
    "quote(OLD.outputs_schema))); END",
    "CREATE TRIGGER persist_row_guard_log_raw_writes_finished AFTER INSERT ON raw_writes WHEN NEW.at = 0 AND "
    "substr(sqlite_source_id(), -8) <> ' persist' BEGIN DELETE FROM raw_writes WHERE run_id = NEW.run_id AND at = 0 AND id "
    "< NEW.id AND NEW.operation NOT IN ('insert', 'replace'); DELETE FROM raw_writes WHERE run_id = NEW.run_id AND at = 0 "
    "AND id <= NEW.id AND (EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') OR json_extract(NEW.before_json, '$[0]') = "
    "json_extract(NEW.before_json, '$[1]') OR (SELECT count(*) FROM raw_writes WHERE run_id = NEW.run_id) > 1000); DELETE "
    "FROM raw_writes WHERE run_id = NEW.run_id AND at = 0 AND id = NEW.id AND NEW.operation = 'insert' AND EXISTS (SELECT 1"
    " FROM raw_writes WHERE run_id = NEW.run_id AND at = 0 AND id < NEW.id); UPDATE raw_writes SET at = "
    "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), before_json = CASE WHEN before_json IS NOT NULL "
    "THEN (SELECT json_group_object(o.key, CASE WHEN o.value = 'NULL' THEN NULL WHEN o.value NOT GLOB '*[^0-9-]*' THEN "
    "CAST(o.value AS INTEGER) WHEN substr(o.value, 1, 1) <> '''' THEN substr(o.value, 1, 10000) WHEN "
    "length(replace(substr(o.value, 2, length(o.value) - 2), '''''', '''')) <= 10000 THEN replace(substr(o.value, 2, "
    "length(o.value) - 2), '''''', '''') ELSE substr(replace(substr(o.value, 2, length(o.value) - 2), '''''', ''''), 1, "
    "10000) || ' ... (' || length(replace(substr(o.value, 2, length(o.value) - 2), '''''', '''')) || ' characters)' END) "
    "FROM json_each(before_json, '$[0]') AS o WHERE CASE WHEN json_array_length(before_json) = 1 THEN o.value <> 'NULL' "
    "ELSE o.value IS NOT json_extract(before_json, '$[1].' || o.key) END) END WHERE run_id = NEW.run_id AND at = 0 AND id "
    "<= NEW.id AND NEW.operation <> 'replace'; END",
    "CREATE TRIGGER persist_row_guard_log_raw_writes_kept_update BEFORE UPDATE ON raw_writes WHEN OLD.at <> 0 AND "
    "substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN SELECT "
    "RAISE(ABORT, 'raw_writes: notes of raw writes are only deleted by persist, with their run'); END",
    "CREATE TRIGGER persist_row_guard_log_raw_writes_kept_delete BEFORE DELETE ON raw_writes WHEN OLD.at <> 0 AND "
    "substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN SELECT "
    "RAISE(ABORT, 'raw_writes: notes of raw writes are only deleted by persist, with their run'); END",
)
UNMARKED = "current_setting('persist.writes', true) IS DISTINCT FROM 'on'"
NOTE = (
    "DECLARE was jsonb; is_now jsonb; row_key jsonb; said jsonb; notes bigint; scope text := ''; BEGIN IF TG_OP IN "
    "('UPDATE', 'DELETE') THEN was := to_jsonb(OLD); END IF; IF TG_OP IN ('UPDATE', 'INSERT') THEN is_now := to_jsonb(NEW);"
    " END IF; IF TG_OP = 'TRUNCATE' OR was IS DISTINCT FROM is_now THEN IF TG_OP <> 'TRUNCATE' THEN scope := coalesce(was, "
    "is_now) ->> TG_ARGV[0]; SELECT jsonb_object_agg(name, coalesce(was, is_now) -> name) INTO row_key FROM "
    "unnest(string_to_array(TG_ARGV[1], ',')) AS name; SELECT jsonb_object_agg(o.key, CASE WHEN length(o.value #>> '{}') > "
    "10000 THEN to_jsonb(left(o.value #>> '{}', 10000) || ' ... (' || length(o.value #>> '{}') || ' characters)') ELSE "
    "o.value END) INTO said FROM jsonb_each(was) AS o WHERE CASE WHEN is_now IS NULL THEN o.value <> 'null' ELSE o.value IS"
    " DISTINCT FROM is_now -> o.key END; END IF; EXECUTE 'SELECT count(*) FROM (SELECT 1 FROM ' || "
    "quote_ident(TG_TABLE_SCHEMA) || '.raw_writes WHERE run_id = $1 LIMIT 1000) AS noted' INTO notes USING scope; IF notes "
    "< 1000 THEN EXECUTE 'INSERT INTO ' || quote_ident(TG_TABLE_SCHEMA) || '.raw_writes (run_id, at, table_name, operation,"
    " row_key_json, before_json, writer_json) VALUES ($1, $2, $3, $4, $5, $6, $7)' USING scope, CAST(extract(epoch FROM "
    "clock_timestamp()) * 1000 AS bigint), TG_TABLE_NAME, lower(TG_OP), row_key, said, jsonb_build_object('role', CASE "
    "current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END, 'application', "
    "current_setting('application_name'), 'pid', pg_backend_pid(), 'address', host(inet_client_addr())); END IF; END IF; "
    "RETURN NEW; END"
)
KEYS = {
    "run": ("id", "id"),
    "execution": ("run_id", "id"),
    "bindings": ("run_id", "run_id,name,execution_id"),
    "agents": ("run_id", "run_id,name"),
    "agent_segments": ("run_id", "id"),
    "imports": ("run_id", "run_id,alias"),
}
"""The column of the run, and those of the key, by table."""


def on_postgres() -> list:
    found = []
    made = "RETURNS trigger LANGUAGE plpgsql"
    for table, (scope, key) in KEYS.items():
        name = f"persist_row_guard_log_{table}"
        call = f"WHEN ({UNMARKED}) EXECUTE FUNCTION {name}('{scope}', '{key}')"
        found += [
            f"CREATE FUNCTION {name}() {made} SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ {NOTE} $$",
            f"CREATE TRIGGER {name}_rows AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW {call}",
            f"CREATE TRIGGER {name}_table BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {call}",
        ]
    name, message = (
        "persist_row_guard_log_raw_writes",
        "raw_writes: notes of raw writes are only deleted by persist, with their run",
    )
    refuse = f"RAISE EXCEPTION USING ERRCODE = '23514', CONSTRAINT = 'raw_writes', MESSAGE = '{message}';"
    return [
        *found,
        f"CREATE FUNCTION {name}() {made} AS $$ BEGIN {refuse} END $$",
        f"CREATE TRIGGER {name} BEFORE UPDATE OR DELETE OR TRUNCATE ON raw_writes FOR EACH STATEMENT"
        f" WHEN ({UNMARKED}) EXECUTE FUNCTION {name}()",
    ]


def upgrade() -> None:
    on_sqlite = op.get_context().dialect.name == "sqlite"
    default = "''" if on_sqlite else "NULLIF(current_setting('persist.run_id', true), '')"
    op.create_table(
        "raw_writes",
        sa.Column("id", whole(), sa.Identity(), nullable=False),
        sa.Column("run_id", label(), server_default=sa.text(default), nullable=False),
        sa.Column("at", whole(), nullable=False),
        sa.Column("table_name", label(), nullable=False),
        sa.Column("operation", label(), nullable=False),
        sa.Column("row_key_json", json()),
        sa.Column("writer_json", json()),
        sa.Column("before_json", json()),
        sa.PrimaryKeyConstraint(*(("id",) if on_sqlite else ("run_id", "id")), name=op.f("pk_raw_writes")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_raw_writes_run_id_at", "raw_writes", ["run_id", "at"])
    op.create_index("ix_raw_writes_at", "raw_writes", ["at"])
    op.add_column("event_log", sa.Column("actor", label(), nullable=True))
    for statement in ON_SQLITE if on_sqlite else on_postgres():
        op.execute(statement)
    op.execute(sa.text("UPDATE _meta SET value = '0030' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
