"""Notes of raw writes: triggers write down what a program that is not persist changes; the actor of an event.

Additive only: create tables, add columns (nullable, or with a server default), create indexes and triggers that write into a
table of the same revision. Nothing is dropped, renamed, narrowed or rebuilt, and code of the previous release must run on the
result: what it writes is noted, too. Name no schema: env.py sets it. Import only alembic and sqlalchemy. Once released, this
file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


ON_SQLITE = (
    "CREATE TRIGGER persist_row_guard_log_run_meets BEFORE INSERT ON run WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN DELETE FROM raw_writes WHERE run_id = "
    "CASE WHEN NEW.id IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE NEW.id END AND operation = "
    "'pending'; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT CASE "
    "WHEN NEW.id IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE NEW.id END, "
    "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'run', 'pending', json_object('id', was.id), "
    "(SELECT json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN length(o) > 10000 THEN substr(o, 1, "
    "10000) || ' ... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN o ELSE "
    "substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'id' AS n, was.id AS o, NEW.id AS w UNION ALL "
    "SELECT 'program_path', was.program_path, NEW.program_path UNION ALL SELECT 'started_at', was.started_at, "
    "NEW.started_at UNION ALL SELECT 'updated_at', was.updated_at, NEW.updated_at UNION ALL SELECT 'status', "
    "was.status, NEW.status UNION ALL SELECT 'state_mode', was.state_mode, NEW.state_mode UNION ALL SELECT "
    "'written_status', was.written_status, NEW.written_status UNION ALL SELECT 'anonymous_names', "
    "was.anonymous_names, NEW.anonymous_names UNION ALL SELECT 'held_by', was.held_by, NEW.held_by UNION ALL SELECT "
    "'held_since', was.held_since, NEW.held_since UNION ALL SELECT 'seen_at', was.seen_at, NEW.seen_at UNION ALL "
    "SELECT 'program_source', was.program_source, NEW.program_source) WHERE o IS NOT w) FROM run AS was WHERE "
    "((was.id = NEW.id)) AND (SELECT count(*) FROM raw_writes WHERE run_id = CASE WHEN NEW.id IS (SELECT value FROM "
    "_meta WHERE key = 'run_id') THEN '' ELSE NEW.id END) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_run_inserted AFTER INSERT ON run WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN INSERT INTO raw_writes (run_id, at, "
    "table_name, operation, row_key_json, before_json) SELECT CASE WHEN NEW.id IS (SELECT value FROM _meta WHERE key "
    "= 'run_id') THEN '' ELSE NEW.id END, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'run', "
    "'insert', json_object('id', NEW.id), NULL WHERE NOT EXISTS (SELECT 1 FROM raw_writes WHERE run_id = CASE WHEN "
    "NEW.id IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE NEW.id END AND operation = 'pending') AND "
    "(SELECT count(*) FROM raw_writes WHERE run_id = CASE WHEN NEW.id IS (SELECT value FROM _meta WHERE key = "
    "'run_id') THEN '' ELSE NEW.id END) < 1000; UPDATE raw_writes SET operation = 'replace' WHERE run_id = CASE WHEN "
    "NEW.id IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE NEW.id END AND operation = 'pending'; END",
    "CREATE TRIGGER persist_row_guard_log_run_updated AFTER UPDATE ON run WHEN (OLD.id IS NOT NEW.id OR "
    "OLD.program_path IS NOT NEW.program_path OR OLD.started_at IS NOT NEW.started_at OR OLD.updated_at IS NOT "
    "NEW.updated_at OR OLD.status IS NOT NEW.status OR OLD.state_mode IS NOT NEW.state_mode OR OLD.written_status IS "
    "NOT NEW.written_status OR OLD.anonymous_names IS NOT NEW.anonymous_names OR OLD.held_by IS NOT NEW.held_by OR "
    "OLD.held_since IS NOT NEW.held_since OR OLD.seen_at IS NOT NEW.seen_at OR OLD.program_source IS NOT "
    "NEW.program_source) AND substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE "
    "key = 'writer') BEGIN DELETE FROM raw_writes WHERE run_id = CASE WHEN OLD.id IS (SELECT value FROM _meta WHERE "
    "key = 'run_id') THEN '' ELSE OLD.id END AND operation = 'pending'; INSERT INTO raw_writes (run_id, at, "
    "table_name, operation, row_key_json, before_json) SELECT CASE WHEN OLD.id IS (SELECT value FROM _meta WHERE key "
    "= 'run_id') THEN '' ELSE OLD.id END, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'run', "
    "'update', json_object('id', OLD.id), (SELECT json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN "
    "length(o) > 10000 THEN substr(o, 1, 10000) || ' ... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' "
    "THEN o WHEN 'null' THEN o ELSE substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'id' AS n, OLD.id "
    "AS o, NEW.id AS w UNION ALL SELECT 'program_path', OLD.program_path, NEW.program_path UNION ALL SELECT "
    "'started_at', OLD.started_at, NEW.started_at UNION ALL SELECT 'updated_at', OLD.updated_at, NEW.updated_at UNION"
    " ALL SELECT 'status', OLD.status, NEW.status UNION ALL SELECT 'state_mode', OLD.state_mode, NEW.state_mode UNION"
    " ALL SELECT 'written_status', OLD.written_status, NEW.written_status UNION ALL SELECT 'anonymous_names', "
    "OLD.anonymous_names, NEW.anonymous_names UNION ALL SELECT 'held_by', OLD.held_by, NEW.held_by UNION ALL SELECT "
    "'held_since', OLD.held_since, NEW.held_since UNION ALL SELECT 'seen_at', OLD.seen_at, NEW.seen_at UNION ALL "
    "SELECT 'program_source', OLD.program_source, NEW.program_source) WHERE o IS NOT w) WHERE (SELECT count(*) FROM "
    "raw_writes WHERE run_id = CASE WHEN OLD.id IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE OLD.id"
    " END) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_run_deleted AFTER DELETE ON run WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN INSERT INTO raw_writes (run_id, at, "
    "table_name, operation, row_key_json, before_json) SELECT CASE WHEN OLD.id IS (SELECT value FROM _meta WHERE key "
    "= 'run_id') THEN '' ELSE OLD.id END, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'run', "
    "'delete', json_object('id', OLD.id), (SELECT json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN "
    "length(o) > 10000 THEN substr(o, 1, 10000) || ' ... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' "
    "THEN o WHEN 'null' THEN o ELSE substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'id' AS n, OLD.id "
    "AS o UNION ALL SELECT 'program_path', OLD.program_path UNION ALL SELECT 'started_at', OLD.started_at UNION ALL "
    "SELECT 'updated_at', OLD.updated_at UNION ALL SELECT 'status', OLD.status UNION ALL SELECT 'state_mode', "
    "OLD.state_mode UNION ALL SELECT 'written_status', OLD.written_status UNION ALL SELECT 'anonymous_names', "
    "OLD.anonymous_names UNION ALL SELECT 'held_by', OLD.held_by UNION ALL SELECT 'held_since', OLD.held_since UNION "
    "ALL SELECT 'seen_at', OLD.seen_at UNION ALL SELECT 'program_source', OLD.program_source) WHERE o IS NOT NULL) "
    "WHERE (SELECT count(*) FROM raw_writes WHERE run_id = CASE WHEN OLD.id IS (SELECT value FROM _meta WHERE key = "
    "'run_id') THEN '' ELSE OLD.id END) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_execution_meets BEFORE INSERT ON execution WHEN substr(sqlite_source_id(), "
    "-8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN DELETE FROM raw_writes WHERE "
    "run_id = NEW.run_id AND operation = 'pending'; INSERT INTO raw_writes (run_id, at, table_name, operation, "
    "row_key_json, before_json) SELECT NEW.run_id, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER),"
    " 'execution', 'pending', json_object('id', was.id), (SELECT json_group_object(n, CASE typeof(o) WHEN 'text' THEN"
    " CASE WHEN length(o) > 10000 THEN substr(o, 1, 10000) || ' ... (' || length(o) || ' characters)' ELSE o END WHEN"
    " 'integer' THEN o WHEN 'null' THEN o ELSE substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'id' AS"
    " n, was.id AS o, NEW.id AS w UNION ALL SELECT 'run_id', was.run_id, NEW.run_id UNION ALL SELECT "
    "'statement_index', was.statement_index, NEW.statement_index UNION ALL SELECT 'status', was.status, NEW.status "
    "UNION ALL SELECT 'written_status', was.written_status, NEW.written_status UNION ALL SELECT 'started_at', "
    "was.started_at, NEW.started_at UNION ALL SELECT 'completed_at', was.completed_at, NEW.completed_at UNION ALL "
    "SELECT 'updated_at', was.updated_at, NEW.updated_at UNION ALL SELECT 'parent_id', was.parent_id, NEW.parent_id "
    "UNION ALL SELECT 'statement_text', was.statement_text, NEW.statement_text UNION ALL SELECT 'error_message', "
    "was.error_message, NEW.error_message UNION ALL SELECT 'metadata', was.metadata, NEW.metadata) WHERE o IS NOT w) "
    "FROM execution AS was WHERE ((was.id = NEW.id)) AND (SELECT count(*) FROM raw_writes WHERE run_id = NEW.run_id) "
    "< 1000; END",
    "CREATE TRIGGER persist_row_guard_log_execution_inserted AFTER INSERT ON execution WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN "
    "INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT NEW.run_id, "
    "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'execution', 'insert', json_object('id', "
    "NEW.id), NULL WHERE NOT EXISTS (SELECT 1 FROM raw_writes WHERE run_id = NEW.run_id AND operation = 'pending') "
    "AND (SELECT count(*) FROM raw_writes WHERE run_id = NEW.run_id) < 1000; UPDATE raw_writes SET operation = "
    "'replace' WHERE run_id = NEW.run_id AND operation = 'pending'; END",
    "CREATE TRIGGER persist_row_guard_log_execution_updated AFTER UPDATE ON execution WHEN (OLD.id IS NOT NEW.id OR "
    "OLD.run_id IS NOT NEW.run_id OR OLD.statement_index IS NOT NEW.statement_index OR OLD.status IS NOT NEW.status "
    "OR OLD.written_status IS NOT NEW.written_status OR OLD.started_at IS NOT NEW.started_at OR OLD.completed_at IS "
    "NOT NEW.completed_at OR OLD.updated_at IS NOT NEW.updated_at OR OLD.parent_id IS NOT NEW.parent_id OR "
    "OLD.statement_text IS NOT NEW.statement_text OR OLD.error_message IS NOT NEW.error_message OR OLD.metadata IS "
    "NOT NEW.metadata) AND substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key"
    " = 'writer') BEGIN DELETE FROM raw_writes WHERE run_id = OLD.run_id AND operation = 'pending'; INSERT INTO "
    "raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT OLD.run_id, "
    "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'execution', 'update', json_object('id', "
    "OLD.id), (SELECT json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN length(o) > 10000 THEN substr(o,"
    " 1, 10000) || ' ... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN o ELSE "
    "substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'id' AS n, OLD.id AS o, NEW.id AS w UNION ALL "
    "SELECT 'run_id', OLD.run_id, NEW.run_id UNION ALL SELECT 'statement_index', OLD.statement_index, "
    "NEW.statement_index UNION ALL SELECT 'status', OLD.status, NEW.status UNION ALL SELECT 'written_status', "
    "OLD.written_status, NEW.written_status UNION ALL SELECT 'started_at', OLD.started_at, NEW.started_at UNION ALL "
    "SELECT 'completed_at', OLD.completed_at, NEW.completed_at UNION ALL SELECT 'updated_at', OLD.updated_at, "
    "NEW.updated_at UNION ALL SELECT 'parent_id', OLD.parent_id, NEW.parent_id UNION ALL SELECT 'statement_text', "
    "OLD.statement_text, NEW.statement_text UNION ALL SELECT 'error_message', OLD.error_message, NEW.error_message "
    "UNION ALL SELECT 'metadata', OLD.metadata, NEW.metadata) WHERE o IS NOT w) WHERE (SELECT count(*) FROM "
    "raw_writes WHERE run_id = OLD.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_execution_deleted AFTER DELETE ON execution WHEN substr(sqlite_source_id(),"
    " -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN INSERT INTO raw_writes "
    "(run_id, at, table_name, operation, row_key_json, before_json) SELECT OLD.run_id, CAST(round((julianday('now') -"
    " 2440587.5) * 86400000) AS INTEGER), 'execution', 'delete', json_object('id', OLD.id), (SELECT "
    "json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN length(o) > 10000 THEN substr(o, 1, 10000) || ' "
    "... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN o ELSE "
    "substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'id' AS n, OLD.id AS o UNION ALL SELECT 'run_id',"
    " OLD.run_id UNION ALL SELECT 'statement_index', OLD.statement_index UNION ALL SELECT 'status', OLD.status UNION "
    "ALL SELECT 'written_status', OLD.written_status UNION ALL SELECT 'started_at', OLD.started_at UNION ALL SELECT "
    "'completed_at', OLD.completed_at UNION ALL SELECT 'updated_at', OLD.updated_at UNION ALL SELECT 'parent_id', "
    "OLD.parent_id UNION ALL SELECT 'statement_text', OLD.statement_text UNION ALL SELECT 'error_message', "
    "OLD.error_message UNION ALL SELECT 'metadata', OLD.metadata) WHERE o IS NOT NULL) WHERE (SELECT count(*) FROM "
    "raw_writes WHERE run_id = OLD.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_bindings_meets BEFORE INSERT ON bindings WHEN substr(sqlite_source_id(), "
    "-8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN DELETE FROM raw_writes WHERE "
    "run_id = NEW.run_id AND operation = 'pending'; INSERT INTO raw_writes (run_id, at, table_name, operation, "
    "row_key_json, before_json) SELECT NEW.run_id, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER),"
    " 'bindings', 'pending', json_object('run_id', was.run_id, 'name', was.name, 'execution_id', was.execution_id), "
    "(SELECT json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN length(o) > 10000 THEN substr(o, 1, "
    "10000) || ' ... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN o ELSE "
    "substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'run_id' AS n, was.run_id AS o, NEW.run_id AS w "
    "UNION ALL SELECT 'name', was.name, NEW.name UNION ALL SELECT 'execution_id', was.execution_id, NEW.execution_id "
    "UNION ALL SELECT 'kind', was.kind, NEW.kind UNION ALL SELECT 'source_statement', was.source_statement, "
    "NEW.source_statement UNION ALL SELECT 'created_at', was.created_at, NEW.created_at UNION ALL SELECT "
    "'updated_at', was.updated_at, NEW.updated_at UNION ALL SELECT 'attachment_path', was.attachment_path, "
    "NEW.attachment_path UNION ALL SELECT 'value', was.value, NEW.value) WHERE o IS NOT w) FROM bindings AS was WHERE"
    " ((was.run_id = NEW.run_id AND was.name = NEW.name AND coalesce(was.execution_id, -1) = "
    "coalesce(NEW.execution_id, -1))) AND (SELECT count(*) FROM raw_writes WHERE run_id = NEW.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_bindings_inserted AFTER INSERT ON bindings WHEN substr(sqlite_source_id(), "
    "-8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN INSERT INTO raw_writes "
    "(run_id, at, table_name, operation, row_key_json, before_json) SELECT NEW.run_id, CAST(round((julianday('now') -"
    " 2440587.5) * 86400000) AS INTEGER), 'bindings', 'insert', json_object('run_id', NEW.run_id, 'name', NEW.name, "
    "'execution_id', NEW.execution_id), NULL WHERE NOT EXISTS (SELECT 1 FROM raw_writes WHERE run_id = NEW.run_id AND"
    " operation = 'pending') AND (SELECT count(*) FROM raw_writes WHERE run_id = NEW.run_id) < 1000; UPDATE "
    "raw_writes SET operation = 'replace' WHERE run_id = NEW.run_id AND operation = 'pending'; END",
    "CREATE TRIGGER persist_row_guard_log_bindings_updated AFTER UPDATE ON bindings WHEN (OLD.run_id IS NOT "
    "NEW.run_id OR OLD.name IS NOT NEW.name OR OLD.execution_id IS NOT NEW.execution_id OR OLD.kind IS NOT NEW.kind "
    "OR OLD.source_statement IS NOT NEW.source_statement OR OLD.created_at IS NOT NEW.created_at OR OLD.updated_at IS"
    " NOT NEW.updated_at OR OLD.attachment_path IS NOT NEW.attachment_path OR OLD.value IS NOT NEW.value) AND "
    "substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN "
    "DELETE FROM raw_writes WHERE run_id = OLD.run_id AND operation = 'pending'; INSERT INTO raw_writes (run_id, at, "
    "table_name, operation, row_key_json, before_json) SELECT OLD.run_id, CAST(round((julianday('now') - 2440587.5) *"
    " 86400000) AS INTEGER), 'bindings', 'update', json_object('run_id', OLD.run_id, 'name', OLD.name, "
    "'execution_id', OLD.execution_id), (SELECT json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN "
    "length(o) > 10000 THEN substr(o, 1, 10000) || ' ... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' "
    "THEN o WHEN 'null' THEN o ELSE substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'run_id' AS n, "
    "OLD.run_id AS o, NEW.run_id AS w UNION ALL SELECT 'name', OLD.name, NEW.name UNION ALL SELECT 'execution_id', "
    "OLD.execution_id, NEW.execution_id UNION ALL SELECT 'kind', OLD.kind, NEW.kind UNION ALL SELECT "
    "'source_statement', OLD.source_statement, NEW.source_statement UNION ALL SELECT 'created_at', OLD.created_at, "
    "NEW.created_at UNION ALL SELECT 'updated_at', OLD.updated_at, NEW.updated_at UNION ALL SELECT 'attachment_path',"
    " OLD.attachment_path, NEW.attachment_path UNION ALL SELECT 'value', OLD.value, NEW.value) WHERE o IS NOT w) "
    "WHERE (SELECT count(*) FROM raw_writes WHERE run_id = OLD.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_bindings_deleted AFTER DELETE ON bindings WHEN substr(sqlite_source_id(), "
    "-8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN INSERT INTO raw_writes "
    "(run_id, at, table_name, operation, row_key_json, before_json) SELECT OLD.run_id, CAST(round((julianday('now') -"
    " 2440587.5) * 86400000) AS INTEGER), 'bindings', 'delete', json_object('run_id', OLD.run_id, 'name', OLD.name, "
    "'execution_id', OLD.execution_id), (SELECT json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN "
    "length(o) > 10000 THEN substr(o, 1, 10000) || ' ... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' "
    "THEN o WHEN 'null' THEN o ELSE substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'run_id' AS n, "
    "OLD.run_id AS o UNION ALL SELECT 'name', OLD.name UNION ALL SELECT 'execution_id', OLD.execution_id UNION ALL "
    "SELECT 'kind', OLD.kind UNION ALL SELECT 'source_statement', OLD.source_statement UNION ALL SELECT 'created_at',"
    " OLD.created_at UNION ALL SELECT 'updated_at', OLD.updated_at UNION ALL SELECT 'attachment_path', "
    "OLD.attachment_path UNION ALL SELECT 'value', OLD.value) WHERE o IS NOT NULL) WHERE (SELECT count(*) FROM "
    "raw_writes WHERE run_id = OLD.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_agents_meets BEFORE INSERT ON agents WHEN substr(sqlite_source_id(), -8) <>"
    " ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN DELETE FROM raw_writes WHERE run_id "
    "= NEW.run_id AND operation = 'pending'; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json,"
    " before_json) SELECT NEW.run_id, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'agents', "
    "'pending', json_object('run_id', was.run_id, 'name', was.name), (SELECT json_group_object(n, CASE typeof(o) WHEN"
    " 'text' THEN CASE WHEN length(o) > 10000 THEN substr(o, 1, 10000) || ' ... (' || length(o) || ' characters)' "
    "ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN o ELSE substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM "
    "(SELECT 'run_id' AS n, was.run_id AS o, NEW.run_id AS w UNION ALL SELECT 'name', was.name, NEW.name UNION ALL "
    "SELECT 'scope', was.scope, NEW.scope UNION ALL SELECT 'created_at', was.created_at, NEW.created_at UNION ALL "
    "SELECT 'updated_at', was.updated_at, NEW.updated_at UNION ALL SELECT 'memory', was.memory, NEW.memory) WHERE o "
    "IS NOT w) FROM agents AS was WHERE ((was.run_id = NEW.run_id AND was.name = NEW.name)) AND (SELECT count(*) FROM"
    " raw_writes WHERE run_id = NEW.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_agents_inserted AFTER INSERT ON agents WHEN substr(sqlite_source_id(), -8) "
    "<> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN INSERT INTO raw_writes (run_id, "
    "at, table_name, operation, row_key_json, before_json) SELECT NEW.run_id, CAST(round((julianday('now') - "
    "2440587.5) * 86400000) AS INTEGER), 'agents', 'insert', json_object('run_id', NEW.run_id, 'name', NEW.name), "
    "NULL WHERE NOT EXISTS (SELECT 1 FROM raw_writes WHERE run_id = NEW.run_id AND operation = 'pending') AND (SELECT"
    " count(*) FROM raw_writes WHERE run_id = NEW.run_id) < 1000; UPDATE raw_writes SET operation = 'replace' WHERE "
    "run_id = NEW.run_id AND operation = 'pending'; END",
    "CREATE TRIGGER persist_row_guard_log_agents_updated AFTER UPDATE ON agents WHEN (OLD.run_id IS NOT NEW.run_id OR"
    " OLD.name IS NOT NEW.name OR OLD.scope IS NOT NEW.scope OR OLD.created_at IS NOT NEW.created_at OR "
    "OLD.updated_at IS NOT NEW.updated_at OR OLD.memory IS NOT NEW.memory) AND substr(sqlite_source_id(), -8) <> ' "
    "persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN DELETE FROM raw_writes WHERE run_id = "
    "OLD.run_id AND operation = 'pending'; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, "
    "before_json) SELECT OLD.run_id, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'agents', "
    "'update', json_object('run_id', OLD.run_id, 'name', OLD.name), (SELECT json_group_object(n, CASE typeof(o) WHEN "
    "'text' THEN CASE WHEN length(o) > 10000 THEN substr(o, 1, 10000) || ' ... (' || length(o) || ' characters)' ELSE"
    " o END WHEN 'integer' THEN o WHEN 'null' THEN o ELSE substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM "
    "(SELECT 'run_id' AS n, OLD.run_id AS o, NEW.run_id AS w UNION ALL SELECT 'name', OLD.name, NEW.name UNION ALL "
    "SELECT 'scope', OLD.scope, NEW.scope UNION ALL SELECT 'created_at', OLD.created_at, NEW.created_at UNION ALL "
    "SELECT 'updated_at', OLD.updated_at, NEW.updated_at UNION ALL SELECT 'memory', OLD.memory, NEW.memory) WHERE o "
    "IS NOT w) WHERE (SELECT count(*) FROM raw_writes WHERE run_id = OLD.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_agents_deleted AFTER DELETE ON agents WHEN substr(sqlite_source_id(), -8) "
    "<> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN INSERT INTO raw_writes (run_id, "
    "at, table_name, operation, row_key_json, before_json) SELECT OLD.run_id, CAST(round((julianday('now') - "
    "2440587.5) * 86400000) AS INTEGER), 'agents', 'delete', json_object('run_id', OLD.run_id, 'name', OLD.name), "
    "(SELECT json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN length(o) > 10000 THEN substr(o, 1, "
    "10000) || ' ... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN o ELSE "
    "substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'run_id' AS n, OLD.run_id AS o UNION ALL SELECT "
    "'name', OLD.name UNION ALL SELECT 'scope', OLD.scope UNION ALL SELECT 'created_at', OLD.created_at UNION ALL "
    "SELECT 'updated_at', OLD.updated_at UNION ALL SELECT 'memory', OLD.memory) WHERE o IS NOT NULL) WHERE (SELECT "
    "count(*) FROM raw_writes WHERE run_id = OLD.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_meets BEFORE INSERT ON agent_segments WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN "
    "DELETE FROM raw_writes WHERE run_id = NEW.run_id AND operation = 'pending'; INSERT INTO raw_writes (run_id, at, "
    "table_name, operation, row_key_json, before_json) SELECT NEW.run_id, CAST(round((julianday('now') - 2440587.5) *"
    " 86400000) AS INTEGER), 'agent_segments', 'pending', json_object('id', was.id), (SELECT json_group_object(n, "
    "CASE typeof(o) WHEN 'text' THEN CASE WHEN length(o) > 10000 THEN substr(o, 1, 10000) || ' ... (' || length(o) ||"
    " ' characters)' ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN o ELSE substr(quote(substr(o, 1, 10000)), 1, "
    "10000) END) FROM (SELECT 'id' AS n, was.id AS o, NEW.id AS w UNION ALL SELECT 'run_id', was.run_id, NEW.run_id "
    "UNION ALL SELECT 'agent_name', was.agent_name, NEW.agent_name UNION ALL SELECT 'segment_number', "
    "was.segment_number, NEW.segment_number UNION ALL SELECT 'timestamp', was.timestamp, NEW.timestamp UNION ALL "
    "SELECT 'prompt', was.prompt, NEW.prompt UNION ALL SELECT 'summary', was.summary, NEW.summary) WHERE o IS NOT w) "
    "FROM agent_segments AS was WHERE ((was.id = NEW.id) OR (was.run_id = NEW.run_id AND was.agent_name = "
    "NEW.agent_name AND was.segment_number = NEW.segment_number)) AND (SELECT count(*) FROM raw_writes WHERE run_id ="
    " NEW.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_inserted AFTER INSERT ON agent_segments WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN "
    "INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT NEW.run_id, "
    "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'agent_segments', 'insert', json_object('id',"
    " NEW.id), NULL WHERE NOT EXISTS (SELECT 1 FROM raw_writes WHERE run_id = NEW.run_id AND operation = 'pending') "
    "AND (SELECT count(*) FROM raw_writes WHERE run_id = NEW.run_id) < 1000; UPDATE raw_writes SET operation = "
    "'replace' WHERE run_id = NEW.run_id AND operation = 'pending'; END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_updated AFTER UPDATE ON agent_segments WHEN (OLD.id IS NOT "
    "NEW.id OR OLD.run_id IS NOT NEW.run_id OR OLD.agent_name IS NOT NEW.agent_name OR OLD.segment_number IS NOT "
    "NEW.segment_number OR OLD.timestamp IS NOT NEW.timestamp OR OLD.prompt IS NOT NEW.prompt OR OLD.summary IS NOT "
    "NEW.summary) AND substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = "
    "'writer') BEGIN DELETE FROM raw_writes WHERE run_id = OLD.run_id AND operation = 'pending'; INSERT INTO "
    "raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT OLD.run_id, "
    "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'agent_segments', 'update', json_object('id',"
    " OLD.id), (SELECT json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN length(o) > 10000 THEN "
    "substr(o, 1, 10000) || ' ... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN"
    " o ELSE substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'id' AS n, OLD.id AS o, NEW.id AS w UNION"
    " ALL SELECT 'run_id', OLD.run_id, NEW.run_id UNION ALL SELECT 'agent_name', OLD.agent_name, NEW.agent_name UNION"
    " ALL SELECT 'segment_number', OLD.segment_number, NEW.segment_number UNION ALL SELECT 'timestamp', "
    "OLD.timestamp, NEW.timestamp UNION ALL SELECT 'prompt', OLD.prompt, NEW.prompt UNION ALL SELECT 'summary', "
    "OLD.summary, NEW.summary) WHERE o IS NOT w) WHERE (SELECT count(*) FROM raw_writes WHERE run_id = OLD.run_id) < "
    "1000; END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_deleted AFTER DELETE ON agent_segments WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN "
    "INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT OLD.run_id, "
    "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), 'agent_segments', 'delete', json_object('id',"
    " OLD.id), (SELECT json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN length(o) > 10000 THEN "
    "substr(o, 1, 10000) || ' ... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN"
    " o ELSE substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'id' AS n, OLD.id AS o UNION ALL SELECT "
    "'run_id', OLD.run_id UNION ALL SELECT 'agent_name', OLD.agent_name UNION ALL SELECT 'segment_number', "
    "OLD.segment_number UNION ALL SELECT 'timestamp', OLD.timestamp UNION ALL SELECT 'prompt', OLD.prompt UNION ALL "
    "SELECT 'summary', OLD.summary) WHERE o IS NOT NULL) WHERE (SELECT count(*) FROM raw_writes WHERE run_id = "
    "OLD.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_imports_meets BEFORE INSERT ON imports WHEN substr(sqlite_source_id(), -8) "
    "<> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN DELETE FROM raw_writes WHERE "
    "run_id = NEW.run_id AND operation = 'pending'; INSERT INTO raw_writes (run_id, at, table_name, operation, "
    "row_key_json, before_json) SELECT NEW.run_id, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER),"
    " 'imports', 'pending', json_object('run_id', was.run_id, 'alias', was.alias), (SELECT json_group_object(n, CASE "
    "typeof(o) WHEN 'text' THEN CASE WHEN length(o) > 10000 THEN substr(o, 1, 10000) || ' ... (' || length(o) || ' "
    "characters)' ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN o ELSE substr(quote(substr(o, 1, 10000)), 1, "
    "10000) END) FROM (SELECT 'run_id' AS n, was.run_id AS o, NEW.run_id AS w UNION ALL SELECT 'alias', was.alias, "
    "NEW.alias UNION ALL SELECT 'source_url', was.source_url, NEW.source_url UNION ALL SELECT 'fetched_at', "
    "was.fetched_at, NEW.fetched_at UNION ALL SELECT 'inputs_schema', was.inputs_schema, NEW.inputs_schema UNION ALL "
    "SELECT 'outputs_schema', was.outputs_schema, NEW.outputs_schema) WHERE o IS NOT w) FROM imports AS was WHERE "
    "((was.run_id = NEW.run_id AND was.alias = NEW.alias)) AND (SELECT count(*) FROM raw_writes WHERE run_id = "
    "NEW.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_imports_inserted AFTER INSERT ON imports WHEN substr(sqlite_source_id(), "
    "-8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN INSERT INTO raw_writes "
    "(run_id, at, table_name, operation, row_key_json, before_json) SELECT NEW.run_id, CAST(round((julianday('now') -"
    " 2440587.5) * 86400000) AS INTEGER), 'imports', 'insert', json_object('run_id', NEW.run_id, 'alias', NEW.alias),"
    " NULL WHERE NOT EXISTS (SELECT 1 FROM raw_writes WHERE run_id = NEW.run_id AND operation = 'pending') AND "
    "(SELECT count(*) FROM raw_writes WHERE run_id = NEW.run_id) < 1000; UPDATE raw_writes SET operation = 'replace' "
    "WHERE run_id = NEW.run_id AND operation = 'pending'; END",
    "CREATE TRIGGER persist_row_guard_log_imports_updated AFTER UPDATE ON imports WHEN (OLD.run_id IS NOT NEW.run_id "
    "OR OLD.alias IS NOT NEW.alias OR OLD.source_url IS NOT NEW.source_url OR OLD.fetched_at IS NOT NEW.fetched_at OR"
    " OLD.inputs_schema IS NOT NEW.inputs_schema OR OLD.outputs_schema IS NOT NEW.outputs_schema) AND "
    "substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN "
    "DELETE FROM raw_writes WHERE run_id = OLD.run_id AND operation = 'pending'; INSERT INTO raw_writes (run_id, at, "
    "table_name, operation, row_key_json, before_json) SELECT OLD.run_id, CAST(round((julianday('now') - 2440587.5) *"
    " 86400000) AS INTEGER), 'imports', 'update', json_object('run_id', OLD.run_id, 'alias', OLD.alias), (SELECT "
    "json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN length(o) > 10000 THEN substr(o, 1, 10000) || ' "
    "... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN o ELSE "
    "substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'run_id' AS n, OLD.run_id AS o, NEW.run_id AS w "
    "UNION ALL SELECT 'alias', OLD.alias, NEW.alias UNION ALL SELECT 'source_url', OLD.source_url, NEW.source_url "
    "UNION ALL SELECT 'fetched_at', OLD.fetched_at, NEW.fetched_at UNION ALL SELECT 'inputs_schema', "
    "OLD.inputs_schema, NEW.inputs_schema UNION ALL SELECT 'outputs_schema', OLD.outputs_schema, NEW.outputs_schema) "
    "WHERE o IS NOT w) WHERE (SELECT count(*) FROM raw_writes WHERE run_id = OLD.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_imports_deleted AFTER DELETE ON imports WHEN substr(sqlite_source_id(), -8)"
    " <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN INSERT INTO raw_writes (run_id, "
    "at, table_name, operation, row_key_json, before_json) SELECT OLD.run_id, CAST(round((julianday('now') - "
    "2440587.5) * 86400000) AS INTEGER), 'imports', 'delete', json_object('run_id', OLD.run_id, 'alias', OLD.alias), "
    "(SELECT json_group_object(n, CASE typeof(o) WHEN 'text' THEN CASE WHEN length(o) > 10000 THEN substr(o, 1, "
    "10000) || ' ... (' || length(o) || ' characters)' ELSE o END WHEN 'integer' THEN o WHEN 'null' THEN o ELSE "
    "substr(quote(substr(o, 1, 10000)), 1, 10000) END) FROM (SELECT 'run_id' AS n, OLD.run_id AS o UNION ALL SELECT "
    "'alias', OLD.alias UNION ALL SELECT 'source_url', OLD.source_url UNION ALL SELECT 'fetched_at', OLD.fetched_at "
    "UNION ALL SELECT 'inputs_schema', OLD.inputs_schema UNION ALL SELECT 'outputs_schema', OLD.outputs_schema) WHERE"
    " o IS NOT NULL) WHERE (SELECT count(*) FROM raw_writes WHERE run_id = OLD.run_id) < 1000; END",
    "CREATE TRIGGER persist_row_guard_log_raw_writes_kept_update BEFORE UPDATE ON raw_writes WHEN OLD.operation <> "
    "'pending' AND substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = "
    "'writer') BEGIN SELECT RAISE(ABORT, 'raw_writes: notes of raw writes are only deleted by persist, with their "
    "run'); END",
    "CREATE TRIGGER persist_row_guard_log_raw_writes_kept_delete BEFORE DELETE ON raw_writes WHEN OLD.operation <> "
    "'pending' AND substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = "
    "'writer') BEGIN SELECT RAISE(ABORT, 'raw_writes: notes of raw writes are only deleted by persist, with their "
    "run'); END",
)
ON_POSTGRES = (
    "CREATE FUNCTION persist_row_guard_log_run() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = "
    "pg_catalog, pg_temp AS $$ DECLARE was jsonb; is_now jsonb; row_key jsonb; said jsonb; notes bigint; scope text "
    ":= ''; BEGIN IF TG_OP IN ('UPDATE', 'DELETE') THEN was := to_jsonb(OLD); END IF; IF TG_OP IN ('UPDATE', "
    "'INSERT') THEN is_now := to_jsonb(NEW); END IF; IF TG_OP = 'TRUNCATE' OR was IS DISTINCT FROM is_now THEN IF "
    "TG_OP <> 'TRUNCATE' THEN scope := coalesce(was, is_now) ->> TG_ARGV[0]; SELECT jsonb_object_agg(name, "
    "coalesce(was, is_now) -> name) INTO row_key FROM unnest(string_to_array(TG_ARGV[1], ',')) AS name; SELECT "
    "jsonb_object_agg(o.key, CASE WHEN length(o.value #>> '{}') > 10000 THEN to_jsonb(left(o.value #>> '{}', 10000) "
    "|| ' ... (' || length(o.value #>> '{}') || ' characters)') ELSE o.value END) INTO said FROM jsonb_each(was) AS o"
    " WHERE CASE WHEN is_now IS NULL THEN o.value <> 'null' ELSE o.value IS DISTINCT FROM is_now -> o.key END; END "
    "IF; EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %I.raw_writes WHERE run_id = $1 LIMIT 1000) AS noted', "
    "TG_TABLE_SCHEMA) INTO notes USING scope; IF notes < 1000 THEN EXECUTE format('INSERT INTO %I.raw_writes (run_id,"
    " at, table_name, operation, row_key_json, before_json, writer_json) VALUES ($1, $2, $3, $4, $5, $6, $7)', "
    "TG_TABLE_SCHEMA) USING scope, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), TG_TABLE_NAME, "
    "lower(TG_OP), row_key, said, jsonb_build_object('role', session_user, 'application', "
    "current_setting('application_name'), 'pid', pg_backend_pid(), 'address', host(inet_client_addr())); END IF; END "
    "IF; RETURN NEW; END $$",
    "CREATE TRIGGER persist_row_guard_log_run_rows AFTER INSERT OR UPDATE OR DELETE ON run FOR EACH ROW WHEN "
    "(current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION persist_row_guard_log_run('id',"
    " 'id')",
    "CREATE TRIGGER persist_row_guard_log_run_table BEFORE TRUNCATE ON run FOR EACH STATEMENT WHEN "
    "(current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION persist_row_guard_log_run('id',"
    " 'id')",
    "CREATE FUNCTION persist_row_guard_log_execution() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET "
    "search_path = pg_catalog, pg_temp AS $$ DECLARE was jsonb; is_now jsonb; row_key jsonb; said jsonb; notes "
    "bigint; scope text := ''; BEGIN IF TG_OP IN ('UPDATE', 'DELETE') THEN was := to_jsonb(OLD); END IF; IF TG_OP IN "
    "('UPDATE', 'INSERT') THEN is_now := to_jsonb(NEW); END IF; IF TG_OP = 'TRUNCATE' OR was IS DISTINCT FROM is_now "
    "THEN IF TG_OP <> 'TRUNCATE' THEN scope := coalesce(was, is_now) ->> TG_ARGV[0]; SELECT jsonb_object_agg(name, "
    "coalesce(was, is_now) -> name) INTO row_key FROM unnest(string_to_array(TG_ARGV[1], ',')) AS name; SELECT "
    "jsonb_object_agg(o.key, CASE WHEN length(o.value #>> '{}') > 10000 THEN to_jsonb(left(o.value #>> '{}', 10000) "
    "|| ' ... (' || length(o.value #>> '{}') || ' characters)') ELSE o.value END) INTO said FROM jsonb_each(was) AS o"
    " WHERE CASE WHEN is_now IS NULL THEN o.value <> 'null' ELSE o.value IS DISTINCT FROM is_now -> o.key END; END "
    "IF; EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %I.raw_writes WHERE run_id = $1 LIMIT 1000) AS noted', "
    "TG_TABLE_SCHEMA) INTO notes USING scope; IF notes < 1000 THEN EXECUTE format('INSERT INTO %I.raw_writes (run_id,"
    " at, table_name, operation, row_key_json, before_json, writer_json) VALUES ($1, $2, $3, $4, $5, $6, $7)', "
    "TG_TABLE_SCHEMA) USING scope, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), TG_TABLE_NAME, "
    "lower(TG_OP), row_key, said, jsonb_build_object('role', session_user, 'application', "
    "current_setting('application_name'), 'pid', pg_backend_pid(), 'address', host(inet_client_addr())); END IF; END "
    "IF; RETURN NEW; END $$",
    "CREATE TRIGGER persist_row_guard_log_execution_rows AFTER INSERT OR UPDATE OR DELETE ON execution FOR EACH ROW "
    "WHEN (current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION "
    "persist_row_guard_log_execution('run_id', 'id')",
    "CREATE TRIGGER persist_row_guard_log_execution_table BEFORE TRUNCATE ON execution FOR EACH STATEMENT WHEN "
    "(current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION "
    "persist_row_guard_log_execution('run_id', 'id')",
    "CREATE FUNCTION persist_row_guard_log_bindings() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET "
    "search_path = pg_catalog, pg_temp AS $$ DECLARE was jsonb; is_now jsonb; row_key jsonb; said jsonb; notes "
    "bigint; scope text := ''; BEGIN IF TG_OP IN ('UPDATE', 'DELETE') THEN was := to_jsonb(OLD); END IF; IF TG_OP IN "
    "('UPDATE', 'INSERT') THEN is_now := to_jsonb(NEW); END IF; IF TG_OP = 'TRUNCATE' OR was IS DISTINCT FROM is_now "
    "THEN IF TG_OP <> 'TRUNCATE' THEN scope := coalesce(was, is_now) ->> TG_ARGV[0]; SELECT jsonb_object_agg(name, "
    "coalesce(was, is_now) -> name) INTO row_key FROM unnest(string_to_array(TG_ARGV[1], ',')) AS name; SELECT "
    "jsonb_object_agg(o.key, CASE WHEN length(o.value #>> '{}') > 10000 THEN to_jsonb(left(o.value #>> '{}', 10000) "
    "|| ' ... (' || length(o.value #>> '{}') || ' characters)') ELSE o.value END) INTO said FROM jsonb_each(was) AS o"
    " WHERE CASE WHEN is_now IS NULL THEN o.value <> 'null' ELSE o.value IS DISTINCT FROM is_now -> o.key END; END "
    "IF; EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %I.raw_writes WHERE run_id = $1 LIMIT 1000) AS noted', "
    "TG_TABLE_SCHEMA) INTO notes USING scope; IF notes < 1000 THEN EXECUTE format('INSERT INTO %I.raw_writes (run_id,"
    " at, table_name, operation, row_key_json, before_json, writer_json) VALUES ($1, $2, $3, $4, $5, $6, $7)', "
    "TG_TABLE_SCHEMA) USING scope, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), TG_TABLE_NAME, "
    "lower(TG_OP), row_key, said, jsonb_build_object('role', session_user, 'application', "
    "current_setting('application_name'), 'pid', pg_backend_pid(), 'address', host(inet_client_addr())); END IF; END "
    "IF; RETURN NEW; END $$",
    "CREATE TRIGGER persist_row_guard_log_bindings_rows AFTER INSERT OR UPDATE OR DELETE ON bindings FOR EACH ROW "
    "WHEN (current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION "
    "persist_row_guard_log_bindings('run_id', 'run_id,name,execution_id')",
    "CREATE TRIGGER persist_row_guard_log_bindings_table BEFORE TRUNCATE ON bindings FOR EACH STATEMENT WHEN "
    "(current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION "
    "persist_row_guard_log_bindings('run_id', 'run_id,name,execution_id')",
    "CREATE FUNCTION persist_row_guard_log_agents() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path"
    " = pg_catalog, pg_temp AS $$ DECLARE was jsonb; is_now jsonb; row_key jsonb; said jsonb; notes bigint; scope "
    "text := ''; BEGIN IF TG_OP IN ('UPDATE', 'DELETE') THEN was := to_jsonb(OLD); END IF; IF TG_OP IN ('UPDATE', "
    "'INSERT') THEN is_now := to_jsonb(NEW); END IF; IF TG_OP = 'TRUNCATE' OR was IS DISTINCT FROM is_now THEN IF "
    "TG_OP <> 'TRUNCATE' THEN scope := coalesce(was, is_now) ->> TG_ARGV[0]; SELECT jsonb_object_agg(name, "
    "coalesce(was, is_now) -> name) INTO row_key FROM unnest(string_to_array(TG_ARGV[1], ',')) AS name; SELECT "
    "jsonb_object_agg(o.key, CASE WHEN length(o.value #>> '{}') > 10000 THEN to_jsonb(left(o.value #>> '{}', 10000) "
    "|| ' ... (' || length(o.value #>> '{}') || ' characters)') ELSE o.value END) INTO said FROM jsonb_each(was) AS o"
    " WHERE CASE WHEN is_now IS NULL THEN o.value <> 'null' ELSE o.value IS DISTINCT FROM is_now -> o.key END; END "
    "IF; EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %I.raw_writes WHERE run_id = $1 LIMIT 1000) AS noted', "
    "TG_TABLE_SCHEMA) INTO notes USING scope; IF notes < 1000 THEN EXECUTE format('INSERT INTO %I.raw_writes (run_id,"
    " at, table_name, operation, row_key_json, before_json, writer_json) VALUES ($1, $2, $3, $4, $5, $6, $7)', "
    "TG_TABLE_SCHEMA) USING scope, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), TG_TABLE_NAME, "
    "lower(TG_OP), row_key, said, jsonb_build_object('role', session_user, 'application', "
    "current_setting('application_name'), 'pid', pg_backend_pid(), 'address', host(inet_client_addr())); END IF; END "
    "IF; RETURN NEW; END $$",
    "CREATE TRIGGER persist_row_guard_log_agents_rows AFTER INSERT OR UPDATE OR DELETE ON agents FOR EACH ROW WHEN "
    "(current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION "
    "persist_row_guard_log_agents('run_id', 'run_id,name')",
    "CREATE TRIGGER persist_row_guard_log_agents_table BEFORE TRUNCATE ON agents FOR EACH STATEMENT WHEN "
    "(current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION "
    "persist_row_guard_log_agents('run_id', 'run_id,name')",
    "CREATE FUNCTION persist_row_guard_log_agent_segments() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET "
    "search_path = pg_catalog, pg_temp AS $$ DECLARE was jsonb; is_now jsonb; row_key jsonb; said jsonb; notes "
    "bigint; scope text := ''; BEGIN IF TG_OP IN ('UPDATE', 'DELETE') THEN was := to_jsonb(OLD); END IF; IF TG_OP IN "
    "('UPDATE', 'INSERT') THEN is_now := to_jsonb(NEW); END IF; IF TG_OP = 'TRUNCATE' OR was IS DISTINCT FROM is_now "
    "THEN IF TG_OP <> 'TRUNCATE' THEN scope := coalesce(was, is_now) ->> TG_ARGV[0]; SELECT jsonb_object_agg(name, "
    "coalesce(was, is_now) -> name) INTO row_key FROM unnest(string_to_array(TG_ARGV[1], ',')) AS name; SELECT "
    "jsonb_object_agg(o.key, CASE WHEN length(o.value #>> '{}') > 10000 THEN to_jsonb(left(o.value #>> '{}', 10000) "
    "|| ' ... (' || length(o.value #>> '{}') || ' characters)') ELSE o.value END) INTO said FROM jsonb_each(was) AS o"
    " WHERE CASE WHEN is_now IS NULL THEN o.value <> 'null' ELSE o.value IS DISTINCT FROM is_now -> o.key END; END "
    "IF; EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %I.raw_writes WHERE run_id = $1 LIMIT 1000) AS noted', "
    "TG_TABLE_SCHEMA) INTO notes USING scope; IF notes < 1000 THEN EXECUTE format('INSERT INTO %I.raw_writes (run_id,"
    " at, table_name, operation, row_key_json, before_json, writer_json) VALUES ($1, $2, $3, $4, $5, $6, $7)', "
    "TG_TABLE_SCHEMA) USING scope, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), TG_TABLE_NAME, "
    "lower(TG_OP), row_key, said, jsonb_build_object('role', session_user, 'application', "
    "current_setting('application_name'), 'pid', pg_backend_pid(), 'address', host(inet_client_addr())); END IF; END "
    "IF; RETURN NEW; END $$",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_rows AFTER INSERT OR UPDATE OR DELETE ON agent_segments FOR "
    "EACH ROW WHEN (current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION "
    "persist_row_guard_log_agent_segments('run_id', 'id')",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_table BEFORE TRUNCATE ON agent_segments FOR EACH STATEMENT "
    "WHEN (current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION "
    "persist_row_guard_log_agent_segments('run_id', 'id')",
    "CREATE FUNCTION persist_row_guard_log_imports() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET "
    "search_path = pg_catalog, pg_temp AS $$ DECLARE was jsonb; is_now jsonb; row_key jsonb; said jsonb; notes "
    "bigint; scope text := ''; BEGIN IF TG_OP IN ('UPDATE', 'DELETE') THEN was := to_jsonb(OLD); END IF; IF TG_OP IN "
    "('UPDATE', 'INSERT') THEN is_now := to_jsonb(NEW); END IF; IF TG_OP = 'TRUNCATE' OR was IS DISTINCT FROM is_now "
    "THEN IF TG_OP <> 'TRUNCATE' THEN scope := coalesce(was, is_now) ->> TG_ARGV[0]; SELECT jsonb_object_agg(name, "
    "coalesce(was, is_now) -> name) INTO row_key FROM unnest(string_to_array(TG_ARGV[1], ',')) AS name; SELECT "
    "jsonb_object_agg(o.key, CASE WHEN length(o.value #>> '{}') > 10000 THEN to_jsonb(left(o.value #>> '{}', 10000) "
    "|| ' ... (' || length(o.value #>> '{}') || ' characters)') ELSE o.value END) INTO said FROM jsonb_each(was) AS o"
    " WHERE CASE WHEN is_now IS NULL THEN o.value <> 'null' ELSE o.value IS DISTINCT FROM is_now -> o.key END; END "
    "IF; EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %I.raw_writes WHERE run_id = $1 LIMIT 1000) AS noted', "
    "TG_TABLE_SCHEMA) INTO notes USING scope; IF notes < 1000 THEN EXECUTE format('INSERT INTO %I.raw_writes (run_id,"
    " at, table_name, operation, row_key_json, before_json, writer_json) VALUES ($1, $2, $3, $4, $5, $6, $7)', "
    "TG_TABLE_SCHEMA) USING scope, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), TG_TABLE_NAME, "
    "lower(TG_OP), row_key, said, jsonb_build_object('role', session_user, 'application', "
    "current_setting('application_name'), 'pid', pg_backend_pid(), 'address', host(inet_client_addr())); END IF; END "
    "IF; RETURN NEW; END $$",
    "CREATE TRIGGER persist_row_guard_log_imports_rows AFTER INSERT OR UPDATE OR DELETE ON imports FOR EACH ROW WHEN "
    "(current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION "
    "persist_row_guard_log_imports('run_id', 'run_id,alias')",
    "CREATE TRIGGER persist_row_guard_log_imports_table BEFORE TRUNCATE ON imports FOR EACH STATEMENT WHEN "
    "(current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION "
    "persist_row_guard_log_imports('run_id', 'run_id,alias')",
    "CREATE FUNCTION persist_row_guard_log_raw_writes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
    "USING ERRCODE = '23514', CONSTRAINT = 'raw_writes', MESSAGE = 'raw_writes: notes of raw writes are only deleted "
    "by persist, with their run'; END $$",
    "CREATE TRIGGER persist_row_guard_log_raw_writes BEFORE UPDATE OR DELETE OR TRUNCATE ON raw_writes FOR EACH "
    "STATEMENT WHEN (current_setting('persist.writes', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION "
    "persist_row_guard_log_raw_writes()",
)


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
    op.create_index("ix_raw_writes_run_id", "raw_writes", ["run_id"])
    op.add_column("event_log", sa.Column("actor", label(), nullable=True))
    for statement in ON_SQLITE if on_sqlite else ON_POSTGRES:
        op.execute(statement)
    op.execute(sa.text("UPDATE _meta SET value = '0029' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
