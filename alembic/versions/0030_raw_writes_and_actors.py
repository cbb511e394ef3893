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
    "BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE FROM raw_writes "
    "WHERE at = 0 AND id <> 0; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json, "
    "writer_json) SELECT CASE WHEN was.id IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE was.id END, 0, "
    "'run', 'replace', ((was.id = NEW.id)) AND was.id IS NEW.id, (SELECT json_array(json_group_object(c, v) FILTER (WHERE "
    "k), json_group_object(c, v) FILTER (WHERE d)) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x "
    "GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN"
    " length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y "
    "AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES ('id', was.id, 1, NULL), ('program_path', "
    "was.program_path, 0, NULL), ('started_at', was.started_at, 0, NULL), ('updated_at', was.updated_at, 0, NULL), "
    "('status', was.status, 0, NULL), ('state_mode', was.state_mode, 0, NULL), ('written_status', was.written_status, 0, "
    "NULL), ('anonymous_names', was.anonymous_names, 0, NULL), ('held_by', was.held_by, 0, NULL), ('held_since', "
    "was.held_since, 0, NULL), ('seen_at', was.seen_at, 0, NULL), ('program_source', was.program_source, 0, NULL)) WHERE k "
    "OR x IS NOT y)), was.rowid FROM run AS was WHERE was.rowid = NEW.rowid OR (was.id = NEW.id); DELETE FROM raw_writes "
    "WHERE at = 0 AND id = 0; END",
    "CREATE TRIGGER persist_row_guard_log_run_inserted AFTER INSERT ON run WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE FROM "
    "raw_writes WHERE at = 0 AND id <> 0 AND CAST(writer_json AS INTEGER) <> NEW.rowid AND EXISTS (SELECT 1 FROM run AS "
    "is_now WHERE is_now.rowid = writer_json); UPDATE raw_writes SET at = 2 WHERE at = 0 AND id <> 0; INSERT INTO "
    "raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT CASE WHEN NEW.id IS (SELECT value "
    "FROM _meta WHERE key = 'run_id') THEN '' ELSE NEW.id END, 1, 'run', 'insert', json_group_object(c, v) FILTER (WHERE "
    "k), NULL FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN "
    "quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1,"
    " 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, 1 AS k FROM (SELECT 0 AS c, 0 AS x UNION ALL "
    "VALUES ('id', NEW.id)) WHERE c <> 0 AND NOT EXISTS (SELECT 1 FROM raw_writes WHERE at = 2 AND row_key_json = '1')) "
    "GROUP BY k; UPDATE raw_writes SET at = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), row_key_json"
    " = json_extract(before_json, '$[0]'), before_json = json_extract(before_json, '$[1]'), writer_json = NULL WHERE at = "
    "2; DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_run_updated AFTER UPDATE ON run WHEN substr(sqlite_source_id(), -8) <> ' persist'"
    " AND (OLD.id, OLD.program_path, OLD.started_at, OLD.updated_at, OLD.status, OLD.state_mode, OLD.written_status, "
    "OLD.anonymous_names, OLD.held_by, OLD.held_since, OLD.seen_at, OLD.program_source) IS NOT (NEW.id, NEW.program_path, "
    "NEW.started_at, NEW.updated_at, NEW.status, NEW.state_mode, NEW.written_status, NEW.anonymous_names, NEW.held_by, "
    "NEW.held_since, NEW.seen_at, NEW.program_source) BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, "
    "operation) VALUES (0, 0, '', ''); INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, "
    "before_json) SELECT CASE WHEN OLD.id IS (SELECT value FROM _meta WHERE key = 'run_id') THEN '' ELSE OLD.id END, 1, "
    "'run', 'update', json_group_object(c, v) FILTER (WHERE k), json_group_object(c, v) FILTER (WHERE d) FROM (SELECT c, "
    "CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS "
    "BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || "
    "length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL "
    "VALUES ('id', OLD.id, 1, NEW.id), ('program_path', OLD.program_path, 0, NEW.program_path), ('started_at', "
    "OLD.started_at, 0, NEW.started_at), ('updated_at', OLD.updated_at, 0, NEW.updated_at), ('status', OLD.status, 0, "
    "NEW.status), ('state_mode', OLD.state_mode, 0, NEW.state_mode), ('written_status', OLD.written_status, 0, "
    "NEW.written_status), ('anonymous_names', OLD.anonymous_names, 0, NEW.anonymous_names), ('held_by', OLD.held_by, 0, "
    "NEW.held_by), ('held_since', OLD.held_since, 0, NEW.held_since), ('seen_at', OLD.seen_at, 0, NEW.seen_at), "
    "('program_source', OLD.program_source, 0, NEW.program_source)) WHERE k OR x IS NOT y); INSERT INTO raw_writes (run_id,"
    " at, table_name, operation, row_key_json, before_json) SELECT CASE WHEN NEW.id IS (SELECT value FROM _meta WHERE key ="
    " 'run_id') THEN '' ELSE NEW.id END, 1, 'run', 'insert', json_group_object(c, v) FILTER (WHERE k), NULL FROM (SELECT c,"
    " CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS "
    "BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || "
    "length(x) || ' characters)' ELSE x END AS v, 1 AS k FROM (SELECT 0 AS c, 0 AS x UNION ALL VALUES ('id', NEW.id)) WHERE"
    " c <> 0 AND NEW.id IS NOT OLD.id) GROUP BY k; DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_run_deleted AFTER DELETE ON run WHEN substr(sqlite_source_id(), -8) <> ' persist'"
    " BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); INSERT INTO raw_writes "
    "(run_id, at, table_name, operation, row_key_json, before_json) SELECT CASE WHEN OLD.id IS (SELECT value FROM _meta "
    "WHERE key = 'run_id') THEN '' ELSE OLD.id END, 1, 'run', 'delete', json_group_object(c, v) FILTER (WHERE k), "
    "json_group_object(c, v) FILTER (WHERE d) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB "
    "'*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN "
    "length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y "
    "AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES ('id', OLD.id, 1, NULL), ('program_path', "
    "OLD.program_path, 0, NULL), ('started_at', OLD.started_at, 0, NULL), ('updated_at', OLD.updated_at, 0, NULL), "
    "('status', OLD.status, 0, NULL), ('state_mode', OLD.state_mode, 0, NULL), ('written_status', OLD.written_status, 0, "
    "NULL), ('anonymous_names', OLD.anonymous_names, 0, NULL), ('held_by', OLD.held_by, 0, NULL), ('held_since', "
    "OLD.held_since, 0, NULL), ('seen_at', OLD.seen_at, 0, NULL), ('program_source', OLD.program_source, 0, NULL)) WHERE k "
    "OR x IS NOT y); DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_execution_meets BEFORE INSERT ON execution WHEN substr(sqlite_source_id(), -8) <>"
    " ' persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE FROM "
    "raw_writes WHERE at = 0 AND id <> 0; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, "
    "before_json, writer_json) SELECT was.run_id, 0, 'execution', 'replace', ((was.id = NEW.id)) AND was.run_id IS "
    "NEW.run_id, (SELECT json_array(json_group_object(c, v) FILTER (WHERE k), json_group_object(c, v) FILTER (WHERE d)) "
    "FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN "
    "quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1,"
    " 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 "
    "AS k, 0 AS y UNION ALL VALUES ('id', was.id, 1, NULL), ('run_id', was.run_id, 0, NULL), ('statement_index', "
    "was.statement_index, 0, NULL), ('status', was.status, 0, NULL), ('written_status', was.written_status, 0, NULL), "
    "('started_at', was.started_at, 0, NULL), ('completed_at', was.completed_at, 0, NULL), ('updated_at', was.updated_at, "
    "0, NULL), ('parent_id', was.parent_id, 0, NULL), ('statement_text', was.statement_text, 0, NULL), ('error_message', "
    "was.error_message, 0, NULL), ('metadata', was.metadata, 0, NULL)) WHERE k OR x IS NOT y)), was.rowid FROM execution AS"
    " was WHERE was.rowid = NEW.rowid OR (was.id = NEW.id); DELETE FROM raw_writes WHERE at = 0 AND id = 0; END",
    "CREATE TRIGGER persist_row_guard_log_execution_inserted AFTER INSERT ON execution WHEN substr(sqlite_source_id(), -8) "
    "<> ' persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE "
    "FROM raw_writes WHERE at = 0 AND id <> 0 AND CAST(writer_json AS INTEGER) <> NEW.rowid AND EXISTS (SELECT 1 FROM "
    "execution AS is_now WHERE is_now.rowid = writer_json); UPDATE raw_writes SET at = 2 WHERE at = 0 AND id <> 0; INSERT "
    "INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT NEW.run_id, 1, 'execution', "
    "'insert', json_group_object(c, v) FILTER (WHERE k), NULL FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, "
    "char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN"
    " quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, "
    "1 AS k FROM (SELECT 0 AS c, 0 AS x UNION ALL VALUES ('id', NEW.id)) WHERE c <> 0 AND NOT EXISTS (SELECT 1 FROM "
    "raw_writes WHERE at = 2 AND row_key_json = '1')) GROUP BY k; UPDATE raw_writes SET at = CAST(round((julianday('now') -"
    " 2440587.5) * 86400000) AS INTEGER), row_key_json = json_extract(before_json, '$[0]'), before_json = "
    "json_extract(before_json, '$[1]'), writer_json = NULL WHERE at = 2; DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_execution_updated AFTER UPDATE ON execution WHEN substr(sqlite_source_id(), -8) "
    "<> ' persist' AND (OLD.id, OLD.run_id, OLD.statement_index, OLD.status, OLD.written_status, OLD.started_at, "
    "OLD.completed_at, OLD.updated_at, OLD.parent_id, OLD.statement_text, OLD.error_message, OLD.metadata) IS NOT (NEW.id, "
    "NEW.run_id, NEW.statement_index, NEW.status, NEW.written_status, NEW.started_at, NEW.completed_at, NEW.updated_at, "
    "NEW.parent_id, NEW.statement_text, NEW.error_message, NEW.metadata) BEGIN INSERT OR IGNORE INTO raw_writes (id, at, "
    "table_name, operation) VALUES (0, 0, '', ''); INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json,"
    " before_json) SELECT OLD.run_id, 1, 'execution', 'update', json_group_object(c, v) FILTER (WHERE k), "
    "json_group_object(c, v) FILTER (WHERE d) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB "
    "'*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN "
    "length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y "
    "AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES ('id', OLD.id, 1, NEW.id), ('run_id', OLD.run_id, 0,"
    " NEW.run_id), ('statement_index', OLD.statement_index, 0, NEW.statement_index), ('status', OLD.status, 0, NEW.status),"
    " ('written_status', OLD.written_status, 0, NEW.written_status), ('started_at', OLD.started_at, 0, NEW.started_at), "
    "('completed_at', OLD.completed_at, 0, NEW.completed_at), ('updated_at', OLD.updated_at, 0, NEW.updated_at), "
    "('parent_id', OLD.parent_id, 0, NEW.parent_id), ('statement_text', OLD.statement_text, 0, NEW.statement_text), "
    "('error_message', OLD.error_message, 0, NEW.error_message), ('metadata', OLD.metadata, 0, NEW.metadata)) WHERE k OR x "
    "IS NOT y); INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT NEW.run_id, 1,"
    " 'execution', 'insert', json_group_object(c, v) FILTER (WHERE k), NULL FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR"
    " instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = "
    "'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x"
    " END AS v, 1 AS k FROM (SELECT 0 AS c, 0 AS x UNION ALL VALUES ('id', NEW.id)) WHERE c <> 0 AND NEW.run_id IS NOT "
    "OLD.run_id) GROUP BY k; DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_execution_deleted AFTER DELETE ON execution WHEN substr(sqlite_source_id(), -8) "
    "<> ' persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); INSERT "
    "INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT OLD.run_id, 1, 'execution', "
    "'delete', json_group_object(c, v) FILTER (WHERE k), json_group_object(c, v) FILTER (WHERE d) FROM (SELECT c, CASE WHEN"
    " typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, "
    "5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) "
    "|| ' characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES "
    "('id', OLD.id, 1, NULL), ('run_id', OLD.run_id, 0, NULL), ('statement_index', OLD.statement_index, 0, NULL), "
    "('status', OLD.status, 0, NULL), ('written_status', OLD.written_status, 0, NULL), ('started_at', OLD.started_at, 0, "
    "NULL), ('completed_at', OLD.completed_at, 0, NULL), ('updated_at', OLD.updated_at, 0, NULL), ('parent_id', "
    "OLD.parent_id, 0, NULL), ('statement_text', OLD.statement_text, 0, NULL), ('error_message', OLD.error_message, 0, "
    "NULL), ('metadata', OLD.metadata, 0, NULL)) WHERE k OR x IS NOT y); DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_bindings_place_insert BEFORE INSERT ON bindings BEGIN SELECT CASE WHEN NEW.rowid <> "
    "-1 AND EXISTS (SELECT 1 FROM bindings AS bound WHERE bound.kind IN ('const', 'input') AND bound.rowid = NEW.rowid AND "
    "(bound.run_id IS NOT NEW.run_id OR bound.name IS NOT NEW.name OR bound.execution_id IS NOT NEW.execution_id OR "
    "bound.kind IS NOT NEW.kind OR bound.value IS NOT NEW.value OR bound.attachment_path IS NOT NEW.attachment_path)) THEN "
    "RAISE(ABORT, 'bindings.kind: a const or an input is bound once, and this one is bound to something else already: bind "
    "another name') END; END",
    "CREATE TRIGGER persist_row_guard_bindings_place_update BEFORE UPDATE ON bindings BEGIN SELECT CASE WHEN (OLD.rowid, "
    "OLD.run_id, OLD.name, OLD.execution_id) IS NOT (NEW.rowid, NEW.run_id, NEW.name, NEW.execution_id) AND EXISTS (SELECT "
    "1 FROM bindings AS bound WHERE bound.kind IN ('const', 'input') AND bound.rowid <> OLD.rowid AND (bound.rowid = "
    "NEW.rowid OR bound.run_id = NEW.run_id AND bound.name = NEW.name AND coalesce(bound.execution_id, -1) = "
    "coalesce(NEW.execution_id, -1))) THEN RAISE(ABORT, 'bindings.kind: a const or an input is bound once, and this one is "
    "bound to something else already: bind another name') END; END",
    "CREATE TRIGGER persist_row_guard_log_bindings_meets BEFORE INSERT ON bindings WHEN substr(sqlite_source_id(), -8) <> '"
    " persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE FROM "
    "raw_writes WHERE at = 0 AND id <> 0; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, "
    "before_json, writer_json) SELECT was.run_id, 0, 'bindings', 'replace', ((was.run_id = NEW.run_id AND was.name = "
    "NEW.name AND coalesce(was.execution_id, -1) = coalesce(NEW.execution_id, -1))) AND was.run_id IS NEW.run_id, (SELECT "
    "json_array(json_group_object(c, v) FILTER (WHERE k), json_group_object(c, v) FILTER (WHERE d)) FROM (SELECT c, CASE "
    "WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1,"
    " 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x)"
    " || ' characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES "
    "('run_id', was.run_id, 1, NULL), ('name', was.name, 1, NULL), ('execution_id', was.execution_id, 1, NULL), ('kind', "
    "was.kind, 0, NULL), ('source_statement', was.source_statement, 0, NULL), ('created_at', was.created_at, 0, NULL), "
    "('updated_at', was.updated_at, 0, NULL), ('attachment_path', was.attachment_path, 0, NULL), ('value', was.value, 0, "
    "NULL)) WHERE k OR x IS NOT y)), was.rowid FROM bindings AS was WHERE was.rowid = NEW.rowid OR (was.run_id = NEW.run_id"
    " AND was.name = NEW.name AND coalesce(was.execution_id, -1) = coalesce(NEW.execution_id, -1)); DELETE FROM raw_writes "
    "WHERE at = 0 AND id = 0; END",
    "CREATE TRIGGER persist_row_guard_log_bindings_inserted AFTER INSERT ON bindings WHEN substr(sqlite_source_id(), -8) <>"
    " ' persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE FROM "
    "raw_writes WHERE at = 0 AND id <> 0 AND CAST(writer_json AS INTEGER) <> NEW.rowid AND EXISTS (SELECT 1 FROM bindings "
    "AS is_now WHERE is_now.rowid = writer_json); UPDATE raw_writes SET at = 2 WHERE at = 0 AND id <> 0; INSERT INTO "
    "raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT NEW.run_id, 1, 'bindings', 'insert', "
    "json_group_object(c, v) FILTER (WHERE k), NULL FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x "
    "GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN"
    " length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, 1 AS k FROM "
    "(SELECT 0 AS c, 0 AS x UNION ALL VALUES ('run_id', NEW.run_id), ('name', NEW.name), ('execution_id', "
    "NEW.execution_id)) WHERE c <> 0 AND NOT EXISTS (SELECT 1 FROM raw_writes WHERE at = 2 AND row_key_json = '1')) GROUP "
    "BY k; UPDATE raw_writes SET at = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), row_key_json = "
    "json_extract(before_json, '$[0]'), before_json = json_extract(before_json, '$[1]'), writer_json = NULL WHERE at = 2; "
    "DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_bindings_updated AFTER UPDATE ON bindings WHEN substr(sqlite_source_id(), -8) <> "
    "' persist' AND (OLD.run_id, OLD.name, OLD.execution_id, OLD.kind, OLD.source_statement, OLD.created_at, "
    "OLD.updated_at, OLD.attachment_path, OLD.value) IS NOT (NEW.run_id, NEW.name, NEW.execution_id, NEW.kind, "
    "NEW.source_statement, NEW.created_at, NEW.updated_at, NEW.attachment_path, NEW.value) BEGIN INSERT OR IGNORE INTO "
    "raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); INSERT INTO raw_writes (run_id, at, table_name, "
    "operation, row_key_json, before_json) SELECT OLD.run_id, 1, 'bindings', 'update', json_group_object(c, v) FILTER "
    "(WHERE k), json_group_object(c, v) FILTER (WHERE d) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) "
    "OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x)"
    " WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS "
    "NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES ('run_id', OLD.run_id, 1, NEW.run_id), "
    "('name', OLD.name, 1, NEW.name), ('execution_id', OLD.execution_id, 1, NEW.execution_id), ('kind', OLD.kind, 0, "
    "NEW.kind), ('source_statement', OLD.source_statement, 0, NEW.source_statement), ('created_at', OLD.created_at, 0, "
    "NEW.created_at), ('updated_at', OLD.updated_at, 0, NEW.updated_at), ('attachment_path', OLD.attachment_path, 0, "
    "NEW.attachment_path), ('value', OLD.value, 0, NEW.value)) WHERE k OR x IS NOT y); INSERT INTO raw_writes (run_id, at, "
    "table_name, operation, row_key_json, before_json) SELECT NEW.run_id, 1, 'bindings', 'insert', json_group_object(c, v) "
    "FILTER (WHERE k), NULL FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) "
    "|| '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN "
    "substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, 1 AS k FROM (SELECT 0 AS c, 0 AS x "
    "UNION ALL VALUES ('run_id', NEW.run_id), ('name', NEW.name), ('execution_id', NEW.execution_id)) WHERE c <> 0 AND "
    "NEW.run_id IS NOT OLD.run_id) GROUP BY k; DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_bindings_deleted AFTER DELETE ON bindings WHEN substr(sqlite_source_id(), -8) <> "
    "' persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); INSERT INTO "
    "raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT OLD.run_id, 1, 'bindings', 'delete', "
    "json_group_object(c, v) FILTER (WHERE k), json_group_object(c, v) FILTER (WHERE d) FROM (SELECT c, CASE WHEN typeof(x)"
    " = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN "
    "typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' "
    "characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES "
    "('run_id', OLD.run_id, 1, NULL), ('name', OLD.name, 1, NULL), ('execution_id', OLD.execution_id, 1, NULL), ('kind', "
    "OLD.kind, 0, NULL), ('source_statement', OLD.source_statement, 0, NULL), ('created_at', OLD.created_at, 0, NULL), "
    "('updated_at', OLD.updated_at, 0, NULL), ('attachment_path', OLD.attachment_path, 0, NULL), ('value', OLD.value, 0, "
    "NULL)) WHERE k OR x IS NOT y); DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_agents_meets BEFORE INSERT ON agents WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE FROM "
    "raw_writes WHERE at = 0 AND id <> 0; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, "
    "before_json, writer_json) SELECT was.run_id, 0, 'agents', 'replace', ((was.run_id = NEW.run_id AND was.name = "
    "NEW.name)) AND was.run_id IS NEW.run_id, (SELECT json_array(json_group_object(c, v) FILTER (WHERE k), "
    "json_group_object(c, v) FILTER (WHERE d)) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB "
    "'*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN "
    "length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y "
    "AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES ('run_id', was.run_id, 1, NULL), ('name', was.name, "
    "1, NULL), ('scope', was.scope, 0, NULL), ('created_at', was.created_at, 0, NULL), ('updated_at', was.updated_at, 0, "
    "NULL), ('memory', was.memory, 0, NULL)) WHERE k OR x IS NOT y)), was.rowid FROM agents AS was WHERE was.rowid = "
    "NEW.rowid OR (was.run_id = NEW.run_id AND was.name = NEW.name); DELETE FROM raw_writes WHERE at = 0 AND id = 0; END",
    "CREATE TRIGGER persist_row_guard_log_agents_inserted AFTER INSERT ON agents WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE FROM "
    "raw_writes WHERE at = 0 AND id <> 0 AND CAST(writer_json AS INTEGER) <> NEW.rowid AND EXISTS (SELECT 1 FROM agents AS "
    "is_now WHERE is_now.rowid = writer_json); UPDATE raw_writes SET at = 2 WHERE at = 0 AND id <> 0; INSERT INTO "
    "raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT NEW.run_id, 1, 'agents', 'insert', "
    "json_group_object(c, v) FILTER (WHERE k), NULL FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x "
    "GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN"
    " length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, 1 AS k FROM "
    "(SELECT 0 AS c, 0 AS x UNION ALL VALUES ('run_id', NEW.run_id), ('name', NEW.name)) WHERE c <> 0 AND NOT EXISTS "
    "(SELECT 1 FROM raw_writes WHERE at = 2 AND row_key_json = '1')) GROUP BY k; UPDATE raw_writes SET at = "
    "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), row_key_json = json_extract(before_json, '$[0]'), "
    "before_json = json_extract(before_json, '$[1]'), writer_json = NULL WHERE at = 2; DELETE FROM raw_writes WHERE at = 0;"
    " END",
    "CREATE TRIGGER persist_row_guard_log_agents_updated AFTER UPDATE ON agents WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' AND (OLD.run_id, OLD.name, OLD.scope, OLD.created_at, OLD.updated_at, OLD.memory) IS NOT (NEW.run_id, "
    "NEW.name, NEW.scope, NEW.created_at, NEW.updated_at, NEW.memory) BEGIN INSERT OR IGNORE INTO raw_writes (id, at, "
    "table_name, operation) VALUES (0, 0, '', ''); INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json,"
    " before_json) SELECT OLD.run_id, 1, 'agents', 'update', json_group_object(c, v) FILTER (WHERE k), json_group_object(c,"
    " v) FILTER (WHERE d) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) ||"
    " '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN "
    "substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS "
    "c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES ('run_id', OLD.run_id, 1, NEW.run_id), ('name', OLD.name, 1, NEW.name), "
    "('scope', OLD.scope, 0, NEW.scope), ('created_at', OLD.created_at, 0, NEW.created_at), ('updated_at', OLD.updated_at, "
    "0, NEW.updated_at), ('memory', OLD.memory, 0, NEW.memory)) WHERE k OR x IS NOT y); INSERT INTO raw_writes (run_id, at,"
    " table_name, operation, row_key_json, before_json) SELECT NEW.run_id, 1, 'agents', 'insert', json_group_object(c, v) "
    "FILTER (WHERE k), NULL FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) "
    "|| '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN "
    "substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, 1 AS k FROM (SELECT 0 AS c, 0 AS x "
    "UNION ALL VALUES ('run_id', NEW.run_id), ('name', NEW.name)) WHERE c <> 0 AND NEW.run_id IS NOT OLD.run_id) GROUP BY "
    "k; DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_agents_deleted AFTER DELETE ON agents WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); INSERT INTO "
    "raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT OLD.run_id, 1, 'agents', 'delete', "
    "json_group_object(c, v) FILTER (WHERE k), json_group_object(c, v) FILTER (WHERE d) FROM (SELECT c, CASE WHEN typeof(x)"
    " = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN "
    "typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' "
    "characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES "
    "('run_id', OLD.run_id, 1, NULL), ('name', OLD.name, 1, NULL), ('scope', OLD.scope, 0, NULL), ('created_at', "
    "OLD.created_at, 0, NULL), ('updated_at', OLD.updated_at, 0, NULL), ('memory', OLD.memory, 0, NULL)) WHERE k OR x IS "
    "NOT y); DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_meets BEFORE INSERT ON agent_segments WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) "
    "VALUES (0, 0, '', ''); DELETE FROM raw_writes WHERE at = 0 AND id <> 0; INSERT INTO raw_writes (run_id, at, "
    "table_name, operation, row_key_json, before_json, writer_json) SELECT was.run_id, 0, 'agent_segments', 'replace', "
    "((was.id = NEW.id) OR (was.run_id = NEW.run_id AND was.agent_name = NEW.agent_name AND was.segment_number = "
    "NEW.segment_number)) AND was.run_id IS NEW.run_id, (SELECT json_array(json_group_object(c, v) FILTER (WHERE k), "
    "json_group_object(c, v) FILTER (WHERE d)) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB "
    "'*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN "
    "length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y "
    "AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES ('id', was.id, 1, NULL), ('run_id', was.run_id, 0, "
    "NULL), ('agent_name', was.agent_name, 0, NULL), ('segment_number', was.segment_number, 0, NULL), ('timestamp', "
    "was.timestamp, 0, NULL), ('prompt', was.prompt, 0, NULL), ('summary', was.summary, 0, NULL)) WHERE k OR x IS NOT y)), "
    "was.rowid FROM agent_segments AS was WHERE was.rowid = NEW.rowid OR (was.id = NEW.id) OR (was.run_id = NEW.run_id AND "
    "was.agent_name = NEW.agent_name AND was.segment_number = NEW.segment_number); DELETE FROM raw_writes WHERE at = 0 AND "
    "id = 0; END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_inserted AFTER INSERT ON agent_segments WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) "
    "VALUES (0, 0, '', ''); DELETE FROM raw_writes WHERE at = 0 AND id <> 0 AND CAST(writer_json AS INTEGER) <> NEW.rowid "
    "AND EXISTS (SELECT 1 FROM agent_segments AS is_now WHERE is_now.rowid = writer_json); UPDATE raw_writes SET at = 2 "
    "WHERE at = 0 AND id <> 0; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT"
    " NEW.run_id, 1, 'agent_segments', 'insert', json_group_object(c, v) FILTER (WHERE k), NULL FROM (SELECT c, CASE WHEN "
    "typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, "
    "5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) "
    "|| ' characters)' ELSE x END AS v, 1 AS k FROM (SELECT 0 AS c, 0 AS x UNION ALL VALUES ('id', NEW.id)) WHERE c <> 0 "
    "AND NOT EXISTS (SELECT 1 FROM raw_writes WHERE at = 2 AND row_key_json = '1')) GROUP BY k; UPDATE raw_writes SET at = "
    "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), row_key_json = json_extract(before_json, '$[0]'), "
    "before_json = json_extract(before_json, '$[1]'), writer_json = NULL WHERE at = 2; DELETE FROM raw_writes WHERE at = 0;"
    " END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_updated AFTER UPDATE ON agent_segments WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' AND (OLD.id, OLD.run_id, OLD.agent_name, OLD.segment_number, "
    "OLD.timestamp, OLD.prompt, OLD.summary) IS NOT (NEW.id, NEW.run_id, NEW.agent_name, NEW.segment_number, NEW.timestamp,"
    " NEW.prompt, NEW.summary) BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', "
    "''); INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT OLD.run_id, 1, "
    "'agent_segments', 'update', json_group_object(c, v) FILTER (WHERE k), json_group_object(c, v) FILTER (WHERE d) FROM "
    "(SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN "
    "quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1,"
    " 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 "
    "AS k, 0 AS y UNION ALL VALUES ('id', OLD.id, 1, NEW.id), ('run_id', OLD.run_id, 0, NEW.run_id), ('agent_name', "
    "OLD.agent_name, 0, NEW.agent_name), ('segment_number', OLD.segment_number, 0, NEW.segment_number), ('timestamp', "
    "OLD.timestamp, 0, NEW.timestamp), ('prompt', OLD.prompt, 0, NEW.prompt), ('summary', OLD.summary, 0, NEW.summary)) "
    "WHERE k OR x IS NOT y); INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "NEW.run_id, 1, 'agent_segments', 'insert', json_group_object(c, v) FILTER (WHERE k), NULL FROM (SELECT c, CASE WHEN "
    "typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, "
    "5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) "
    "|| ' characters)' ELSE x END AS v, 1 AS k FROM (SELECT 0 AS c, 0 AS x UNION ALL VALUES ('id', NEW.id)) WHERE c <> 0 "
    "AND NEW.run_id IS NOT OLD.run_id) GROUP BY k; DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_deleted AFTER DELETE ON agent_segments WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) "
    "VALUES (0, 0, '', ''); INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT "
    "OLD.run_id, 1, 'agent_segments', 'delete', json_group_object(c, v) FILTER (WHERE k), json_group_object(c, v) FILTER "
    "(WHERE d) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN "
    "quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1,"
    " 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 "
    "AS k, 0 AS y UNION ALL VALUES ('id', OLD.id, 1, NULL), ('run_id', OLD.run_id, 0, NULL), ('agent_name', OLD.agent_name,"
    " 0, NULL), ('segment_number', OLD.segment_number, 0, NULL), ('timestamp', OLD.timestamp, 0, NULL), ('prompt', "
    "OLD.prompt, 0, NULL), ('summary', OLD.summary, 0, NULL)) WHERE k OR x IS NOT y); DELETE FROM raw_writes WHERE at = 0; "
    "END",
    "CREATE TRIGGER persist_row_guard_log_imports_meets BEFORE INSERT ON imports WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE FROM "
    "raw_writes WHERE at = 0 AND id <> 0; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, "
    "before_json, writer_json) SELECT was.run_id, 0, 'imports', 'replace', ((was.run_id = NEW.run_id AND was.alias = "
    "NEW.alias)) AND was.run_id IS NEW.run_id, (SELECT json_array(json_group_object(c, v) FILTER (WHERE k), "
    "json_group_object(c, v) FILTER (WHERE d)) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB "
    "'*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN "
    "length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y "
    "AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES ('run_id', was.run_id, 1, NULL), ('alias', "
    "was.alias, 1, NULL), ('source_url', was.source_url, 0, NULL), ('fetched_at', was.fetched_at, 0, NULL), "
    "('inputs_schema', was.inputs_schema, 0, NULL), ('outputs_schema', was.outputs_schema, 0, NULL)) WHERE k OR x IS NOT "
    "y)), was.rowid FROM imports AS was WHERE was.rowid = NEW.rowid OR (was.run_id = NEW.run_id AND was.alias = NEW.alias);"
    " DELETE FROM raw_writes WHERE at = 0 AND id = 0; END",
    "CREATE TRIGGER persist_row_guard_log_imports_inserted AFTER INSERT ON imports WHEN substr(sqlite_source_id(), -8) <> '"
    " persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE FROM "
    "raw_writes WHERE at = 0 AND id <> 0 AND CAST(writer_json AS INTEGER) <> NEW.rowid AND EXISTS (SELECT 1 FROM imports AS"
    " is_now WHERE is_now.rowid = writer_json); UPDATE raw_writes SET at = 2 WHERE at = 0 AND id <> 0; INSERT INTO "
    "raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT NEW.run_id, 1, 'imports', 'insert', "
    "json_group_object(c, v) FILTER (WHERE k), NULL FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x "
    "GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN"
    " length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, 1 AS k FROM "
    "(SELECT 0 AS c, 0 AS x UNION ALL VALUES ('run_id', NEW.run_id), ('alias', NEW.alias)) WHERE c <> 0 AND NOT EXISTS "
    "(SELECT 1 FROM raw_writes WHERE at = 2 AND row_key_json = '1')) GROUP BY k; UPDATE raw_writes SET at = "
    "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), row_key_json = json_extract(before_json, '$[0]'), "
    "before_json = json_extract(before_json, '$[1]'), writer_json = NULL WHERE at = 2; DELETE FROM raw_writes WHERE at = 0;"
    " END",
    "CREATE TRIGGER persist_row_guard_log_imports_updated AFTER UPDATE ON imports WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' AND (OLD.run_id, OLD.alias, OLD.source_url, OLD.fetched_at, OLD.inputs_schema, OLD.outputs_schema) IS NOT "
    "(NEW.run_id, NEW.alias, NEW.source_url, NEW.fetched_at, NEW.inputs_schema, NEW.outputs_schema) BEGIN INSERT OR IGNORE "
    "INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); INSERT INTO raw_writes (run_id, at, table_name,"
    " operation, row_key_json, before_json) SELECT OLD.run_id, 1, 'imports', 'update', json_group_object(c, v) FILTER "
    "(WHERE k), json_group_object(c, v) FILTER (WHERE d) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) "
    "OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x)"
    " WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS "
    "NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES ('run_id', OLD.run_id, 1, NEW.run_id), "
    "('alias', OLD.alias, 1, NEW.alias), ('source_url', OLD.source_url, 0, NEW.source_url), ('fetched_at', OLD.fetched_at, "
    "0, NEW.fetched_at), ('inputs_schema', OLD.inputs_schema, 0, NEW.inputs_schema), ('outputs_schema', OLD.outputs_schema,"
    " 0, NEW.outputs_schema)) WHERE k OR x IS NOT y); INSERT INTO raw_writes (run_id, at, table_name, operation, "
    "row_key_json, before_json) SELECT NEW.run_id, 1, 'imports', 'insert', json_group_object(c, v) FILTER (WHERE k), NULL "
    "FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN "
    "quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1,"
    " 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, 1 AS k FROM (SELECT 0 AS c, 0 AS x UNION ALL "
    "VALUES ('run_id', NEW.run_id), ('alias', NEW.alias)) WHERE c <> 0 AND NEW.run_id IS NOT OLD.run_id) GROUP BY k; DELETE"
    " FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_imports_deleted AFTER DELETE ON imports WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); INSERT INTO "
    "raw_writes (run_id, at, table_name, operation, row_key_json, before_json) SELECT OLD.run_id, 1, 'imports', 'delete', "
    "json_group_object(c, v) FILTER (WHERE k), json_group_object(c, v) FILTER (WHERE d) FROM (SELECT c, CASE WHEN typeof(x)"
    " = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN "
    "typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' "
    "characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES "
    "('run_id', OLD.run_id, 1, NULL), ('alias', OLD.alias, 1, NULL), ('source_url', OLD.source_url, 0, NULL), "
    "('fetched_at', OLD.fetched_at, 0, NULL), ('inputs_schema', OLD.inputs_schema, 0, NULL), ('outputs_schema', "
    "OLD.outputs_schema, 0, NULL)) WHERE k OR x IS NOT y); DELETE FROM raw_writes WHERE at = 0; END",
    "CREATE TRIGGER persist_row_guard_log_raw_writes_finished AFTER INSERT ON raw_writes WHEN NEW.id <> 0 AND NEW.at IN (0, "
    "1) AND substr(sqlite_source_id(), -8) <> ' persist' BEGIN DELETE FROM raw_writes WHERE id = NEW.id AND (EXISTS (SELECT "
    "1 FROM _meta WHERE key = 'writer') OR (SELECT count(*) FROM raw_writes WHERE id > 0 AND run_id = NEW.run_id) > 1000 OR "
    "NEW.run_id NOT IN (SELECT '' UNION ALL SELECT id FROM run) AND (SELECT count(*) FROM raw_writes WHERE id > 0 AND "
    "run_id NOT IN (SELECT '' UNION ALL SELECT id FROM run)) > 1000); UPDATE raw_writes SET at = "
    "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) WHERE id = NEW.id AND at = 1; END",
    "CREATE TRIGGER persist_row_guard_log_raw_writes_made BEFORE INSERT ON raw_writes WHEN (NEW.id <> 0 AND NOT EXISTS "
    "(SELECT 1 FROM raw_writes WHERE id = 0) OR NEW.at NOT IN (0, 1) OR EXISTS (SELECT 1 FROM raw_writes WHERE id = NEW.id "
    "AND at NOT IN (0, 1, 2))) AND substr(sqlite_source_id(), -8) <> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE "
    "key = 'writer') BEGIN SELECT RAISE(ABORT, 'raw_writes: notes of raw writes are only deleted by persist, with their "
    "run, and only made by its triggers'); END",
    "CREATE TRIGGER persist_row_guard_log_raw_writes_kept_update BEFORE UPDATE ON raw_writes WHEN (NOT EXISTS (SELECT 1 "
    "FROM raw_writes WHERE id = 0) OR OLD.at NOT IN (0, 1, 2) OR NEW.id IS NOT OLD.id) AND substr(sqlite_source_id(), -8) "
    "<> ' persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN SELECT RAISE(ABORT, 'raw_writes: notes "
    "of raw writes are only deleted by persist, with their run, and only made by its triggers'); END",
    "CREATE TRIGGER persist_row_guard_log_raw_writes_kept_delete BEFORE DELETE ON raw_writes WHEN (OLD.at NOT IN (0, 1, 2) "
    "OR OLD.at <> 0 AND NOT EXISTS (SELECT 1 FROM raw_writes WHERE id = 0)) AND substr(sqlite_source_id(), -8) <> ' "
    "persist' AND NOT EXISTS (SELECT 1 FROM _meta WHERE key = 'writer') BEGIN SELECT RAISE(ABORT, 'raw_writes: notes of raw "
    "writes are only deleted by persist, with their run, and only made by its triggers'); END",
)
UNMARKED = "current_setting('persist.writes', true) IS DISTINCT FROM 'on'"
NOTE = (
    "DECLARE home text; was jsonb; is_now jsonb; said jsonb; this jsonb; notes bigint; room bigint := 1000; moved boolean; "
    "BEGIN SELECT quote_ident(n.nspname) INTO home FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_class c ON "
    "c.oid = t.tgrelid AND c.relnamespace = p.pronamespace AND p.proname = 'persist_row_guard_log_' || c.relname JOIN "
    "pg_namespace n ON n.oid = p.pronamespace WHERE t.tgrelid = TG_RELID AND t.tgname = TG_NAME; IF home IS NULL THEN RAISE"
    " EXCEPTION USING ERRCODE = '42501', MESSAGE = 'raw_writes: this function notes what is written to the tables of its "
    "schema'; END IF; IF TG_OP IN ('UPDATE', 'DELETE') THEN was := to_jsonb(OLD); END IF; IF TG_OP IN ('UPDATE', 'INSERT') "
    "THEN is_now := to_jsonb(NEW); END IF; IF TG_OP = 'TRUNCATE' THEN room := 100; ELSIF was IS NOT DISTINCT FROM is_now "
    "THEN RETURN NEW; END IF; SELECT jsonb_object_agg(o.key, CASE WHEN length(o.value #>> '{}') > 10000 THEN "
    "to_jsonb(left(o.value #>> '{}', 10000) || ' ... (' || length(o.value #>> '{}') || ' characters)') ELSE o.value END) "
    "INTO said FROM jsonb_each(was) AS o WHERE CASE WHEN is_now IS NULL THEN o.value <> 'null' ELSE o.value IS DISTINCT "
    "FROM is_now -> o.key END; FOREACH this IN ARRAY CASE WHEN TG_OP = 'TRUNCATE' THEN ARRAY['{}'::jsonb] WHEN was ->> "
    "TG_ARGV[0] IS DISTINCT FROM is_now ->> TG_ARGV[0] THEN array_remove(ARRAY[was, is_now], NULL) ELSE ARRAY[was] END LOOP"
    " moved := TG_OP = 'UPDATE' AND this IS DISTINCT FROM was; EXECUTE 'SELECT count(*) FROM (SELECT 1 FROM ' || home || "
    "'.raw_writes WHERE run_id = $1 AND (operation = ''truncate'') = $2 LIMIT $3) AS noted' INTO notes USING coalesce(this "
    "->> TG_ARGV[0], ''), TG_OP = 'TRUNCATE', room; IF notes < room THEN EXECUTE 'INSERT INTO ' || home || '.raw_writes "
    "(run_id, at, table_name, operation, row_key_json, before_json, writer_json) VALUES ($1, $2, $3, $4, $5, $6, $7)' USING"
    " coalesce(this ->> TG_ARGV[0], ''), CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), TG_TABLE_NAME, CASE "
    "WHEN moved THEN 'insert' ELSE lower(TG_OP) END, (SELECT jsonb_object_agg(name, this -> name) FROM "
    "unnest(string_to_array(TG_ARGV[1], ',')) AS name WHERE TG_OP <> 'TRUNCATE'), CASE WHEN NOT moved THEN said END, "
    "jsonb_build_object('role', CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE "
    "current_setting('role') END, 'application', current_setting('application_name'), 'pid', pg_backend_pid(), 'address', "
    "host(inet_client_addr())); END IF; END LOOP; RETURN NEW; END"
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
            f"REVOKE ALL ON FUNCTION {name}() FROM PUBLIC",
            f"CREATE TRIGGER {name}_rows AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW {call}",
            f"CREATE TRIGGER {name}_table BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {call}",
        ]
    name, message = (
        "persist_row_guard_log_raw_writes",
        "raw_writes: notes of raw writes are only deleted by persist, with their run, and only made by its triggers",
    )
    refuse = f"RAISE EXCEPTION USING ERRCODE = '23514', CONSTRAINT = 'raw_writes', MESSAGE = '{message}';"
    return [
        *found,
        f"CREATE FUNCTION {name}() {made} AS $$ BEGIN {refuse} END $$",
        f"CREATE TRIGGER {name} BEFORE UPDATE OR DELETE OR TRUNCATE ON raw_writes FOR EACH STATEMENT"
        f" WHEN ({UNMARKED}) EXECUTE FUNCTION {name}()",
        f"CREATE TRIGGER {name}_made BEFORE INSERT ON raw_writes FOR EACH STATEMENT"
        f" WHEN ({UNMARKED} AND pg_trigger_depth() = 0) EXECUTE FUNCTION {name}()",
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
