"""Triggers of rows on SQLite: a NULL in a key column counts as what REPLACE puts in its place, and no value is at the rowid -1.

Additive only: triggers of persist are made anew, and no table, column or row is touched. Postgres has no such REPLACE.
Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

ON_SQLITE = (
    "CREATE TRIGGER persist_row_guard_log_execution_meets BEFORE INSERT ON execution WHEN substr(sqlite_source_id(), -8) "
    "<> ' persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE "
    "FROM raw_writes WHERE at = 0 AND id <> 0; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, "
    "before_json, writer_json) SELECT was.run_id, 0, 'execution', 'replace', ((was.id = NEW.id)) AND was.run_id IS "
    "coalesce(NEW.run_id, ''), (SELECT json_array(json_group_object(c, v) FILTER (WHERE k), json_group_object(c, v) FILTER "
    "(WHERE d)) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN "
    "quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, "
    "1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, "
    "0 AS k, 0 AS y UNION ALL VALUES ('id', was.id, 1, NULL), ('run_id', was.run_id, 0, NULL), ('statement_index', "
    "was.statement_index, 0, NULL), ('status', was.status, 0, NULL), ('written_status', was.written_status, 0, NULL), "
    "('started_at', was.started_at, 0, NULL), ('completed_at', was.completed_at, 0, NULL), ('updated_at', was.updated_at, "
    "0, NULL), ('parent_id', was.parent_id, 0, NULL), ('statement_text', was.statement_text, 0, NULL), ('error_message', "
    "was.error_message, 0, NULL), ('metadata', was.metadata, 0, NULL)) WHERE k OR x IS NOT y)), was.rowid FROM execution "
    "AS was WHERE was.rowid = NEW.rowid OR (was.id = NEW.id); DELETE FROM raw_writes WHERE at = 0 AND id = 0; END",
    "CREATE TRIGGER persist_row_guard_bindings_insert BEFORE INSERT ON bindings BEGIN SELECT CASE WHEN EXISTS (SELECT 1 "
    "FROM bindings AS bound WHERE bound.run_id = coalesce(NEW.run_id, '') AND bound.name = NEW.name AND "
    "coalesce(bound.execution_id, -1) = coalesce(NEW.execution_id, -1) AND bound.kind IN ('const', 'input') AND "
    "(bound.kind IS NOT NEW.kind OR bound.value IS NOT NEW.value OR bound.attachment_path IS NOT NEW.attachment_path)) "
    "THEN RAISE(ABORT, 'bindings.kind: a const or an input is bound once, and this one is bound to something else already: "
    "bind another name') WHEN NEW.attachment_path IS NOT NULL AND (typeof(NEW.attachment_path) <> 'text' OR "
    "substr(NEW.attachment_path, 1, 12) <> 'attachments/' OR instr(substr(NEW.attachment_path, 13), '/') > 0 OR "
    "instr(NEW.attachment_path, char(92)) > 0 OR instr(NEW.attachment_path, char(0)) > 0 OR "
    "trim(substr(NEW.attachment_path, 13), '. ') = '') THEN RAISE(ABORT, 'bindings.attachment_path: attachment_path names "
    "a file directly in attachments: attachments/NAME, and no other folder') END; END",
    "CREATE TRIGGER persist_row_guard_bindings_place_inserted AFTER INSERT ON bindings BEGIN SELECT CASE WHEN NEW.rowid = "
    "-1 THEN RAISE(ABORT, 'bindings.rowid: a row is not inserted at the rowid -1') END; END",
    "CREATE TRIGGER persist_row_guard_bindings_place_update BEFORE UPDATE ON bindings BEGIN SELECT CASE WHEN (OLD.rowid, "
    "OLD.run_id, OLD.name, OLD.execution_id) IS NOT (NEW.rowid, NEW.run_id, NEW.name, NEW.execution_id) AND EXISTS (SELECT "
    "1 FROM bindings AS bound WHERE bound.kind IN ('const', 'input') AND bound.rowid <> OLD.rowid AND (bound.rowid = "
    "NEW.rowid OR bound.run_id = coalesce(NEW.run_id, '') AND bound.name = NEW.name AND coalesce(bound.execution_id, -1) = "
    "coalesce(NEW.execution_id, -1))) THEN RAISE(ABORT, 'bindings.kind: a const or an input is bound once, and this one is "
    "bound to something else already: bind another name') END; END",
    "CREATE TRIGGER persist_row_guard_log_bindings_meets BEFORE INSERT ON bindings WHEN substr(sqlite_source_id(), -8) <> "
    "' persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE FROM "
    "raw_writes WHERE at = 0 AND id <> 0; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, "
    "before_json, writer_json) SELECT was.run_id, 0, 'bindings', 'replace', ((was.run_id = coalesce(NEW.run_id, '') AND "
    "was.name = NEW.name AND coalesce(was.execution_id, -1) = coalesce(NEW.execution_id, -1))) AND was.run_id IS "
    "coalesce(NEW.run_id, ''), (SELECT json_array(json_group_object(c, v) FILTER (WHERE k), json_group_object(c, v) FILTER "
    "(WHERE d)) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN "
    "quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, "
    "1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, "
    "0 AS k, 0 AS y UNION ALL VALUES ('run_id', was.run_id, 1, NULL), ('name', was.name, 1, NULL), ('execution_id', "
    "was.execution_id, 1, NULL), ('kind', was.kind, 0, NULL), ('source_statement', was.source_statement, 0, NULL), "
    "('created_at', was.created_at, 0, NULL), ('updated_at', was.updated_at, 0, NULL), ('attachment_path', "
    "was.attachment_path, 0, NULL), ('value', was.value, 0, NULL)) WHERE k OR x IS NOT y)), was.rowid FROM bindings AS was "
    "WHERE was.rowid = NEW.rowid OR (was.run_id = coalesce(NEW.run_id, '') AND was.name = NEW.name AND "
    "coalesce(was.execution_id, -1) = coalesce(NEW.execution_id, -1)); DELETE FROM raw_writes WHERE at = 0 AND id = 0; END",
    "CREATE TRIGGER persist_row_guard_log_agents_meets BEFORE INSERT ON agents WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE FROM "
    "raw_writes WHERE at = 0 AND id <> 0; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, "
    "before_json, writer_json) SELECT was.run_id, 0, 'agents', 'replace', ((was.run_id = coalesce(NEW.run_id, '') AND "
    "was.name = NEW.name)) AND was.run_id IS coalesce(NEW.run_id, ''), (SELECT json_array(json_group_object(c, v) FILTER "
    "(WHERE k), json_group_object(c, v) FILTER (WHERE d)) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, "
    "char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' "
    "THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END "
    "AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES ('run_id', was.run_id, 1, "
    "NULL), ('name', was.name, 1, NULL), ('scope', was.scope, 0, NULL), ('created_at', was.created_at, 0, NULL), "
    "('updated_at', was.updated_at, 0, NULL), ('memory', was.memory, 0, NULL)) WHERE k OR x IS NOT y)), was.rowid FROM "
    "agents AS was WHERE was.rowid = NEW.rowid OR (was.run_id = coalesce(NEW.run_id, '') AND was.name = NEW.name); DELETE "
    "FROM raw_writes WHERE at = 0 AND id = 0; END",
    "CREATE TRIGGER persist_row_guard_log_agent_segments_meets BEFORE INSERT ON agent_segments WHEN "
    "substr(sqlite_source_id(), -8) <> ' persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) "
    "VALUES (0, 0, '', ''); DELETE FROM raw_writes WHERE at = 0 AND id <> 0; INSERT INTO raw_writes (run_id, at, "
    "table_name, operation, row_key_json, before_json, writer_json) SELECT was.run_id, 0, 'agent_segments', 'replace', "
    "((was.id = NEW.id) OR (was.run_id = coalesce(NEW.run_id, '') AND was.agent_name = NEW.agent_name AND "
    "was.segment_number = NEW.segment_number)) AND was.run_id IS coalesce(NEW.run_id, ''), (SELECT "
    "json_array(json_group_object(c, v) FILTER (WHERE k), json_group_object(c, v) FILTER (WHERE d)) FROM (SELECT c, CASE "
    "WHEN typeof(x) = 'blob' OR instr(x, char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), "
    "1, 5000)) WHEN typeof(x) = 'real' THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || "
    "length(x) || ' characters)' ELSE x END AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL "
    "VALUES ('id', was.id, 1, NULL), ('run_id', was.run_id, 0, NULL), ('agent_name', was.agent_name, 0, NULL), "
    "('segment_number', was.segment_number, 0, NULL), ('timestamp', was.timestamp, 0, NULL), ('prompt', was.prompt, 0, "
    "NULL), ('summary', was.summary, 0, NULL)) WHERE k OR x IS NOT y)), was.rowid FROM agent_segments AS was WHERE "
    "was.rowid = NEW.rowid OR (was.id = NEW.id) OR (was.run_id = coalesce(NEW.run_id, '') AND was.agent_name = "
    "NEW.agent_name AND was.segment_number = NEW.segment_number); DELETE FROM raw_writes WHERE at = 0 AND id = 0; END",
    "CREATE TRIGGER persist_row_guard_log_imports_meets BEFORE INSERT ON imports WHEN substr(sqlite_source_id(), -8) <> ' "
    "persist' BEGIN INSERT OR IGNORE INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', ''); DELETE FROM "
    "raw_writes WHERE at = 0 AND id <> 0; INSERT INTO raw_writes (run_id, at, table_name, operation, row_key_json, "
    "before_json, writer_json) SELECT was.run_id, 0, 'imports', 'replace', ((was.run_id = coalesce(NEW.run_id, '') AND "
    "was.alias = NEW.alias)) AND was.run_id IS coalesce(NEW.run_id, ''), (SELECT json_array(json_group_object(c, v) FILTER "
    "(WHERE k), json_group_object(c, v) FILTER (WHERE d)) FROM (SELECT c, CASE WHEN typeof(x) = 'blob' OR instr(x, "
    "char(0)) OR x GLOB '*' || char(65533) || '*' THEN quote(substr(CAST(x AS BLOB), 1, 5000)) WHEN typeof(x) = 'real' "
    "THEN quote(x) WHEN length(x) > 10000 THEN substr(x, 1, 10000) || ' ... (' || length(x) || ' characters)' ELSE x END "
    "AS v, k, x IS NOT y AS d FROM (SELECT 0 AS c, 0 AS x, 0 AS k, 0 AS y UNION ALL VALUES ('run_id', was.run_id, 1, "
    "NULL), ('alias', was.alias, 1, NULL), ('source_url', was.source_url, 0, NULL), ('fetched_at', was.fetched_at, 0, "
    "NULL), ('inputs_schema', was.inputs_schema, 0, NULL), ('outputs_schema', was.outputs_schema, 0, NULL)) WHERE k OR x "
    "IS NOT y)), was.rowid FROM imports AS was WHERE was.rowid = NEW.rowid OR (was.run_id = coalesce(NEW.run_id, '') AND "
    "was.alias = NEW.alias); DELETE FROM raw_writes WHERE at = 0 AND id = 0; END",
)


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        for statement in ON_SQLITE:
            op.execute(f"DROP TRIGGER IF EXISTS {statement.split()[2]}")
            op.execute(statement)
    op.execute(sa.text("UPDATE _meta SET value = '0032' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
