"""Row guards: triggers that hold the rules of a program's tables for writers that know nothing of persist, such as a shell.

Additive only: create tables, add columns (nullable, or with a server default), create indexes and triggers that refuse new rows
which no release writes. Nothing is dropped, renamed, narrowed or rebuilt, and code of the previous release must run on the
result. Name no schema: env.py sets it. Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep
its checksum).
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

ON_SQLITE = (
    "CREATE TRIGGER persist_row_guard_bindings_insert BEFORE INSERT ON bindings BEGIN SELECT CASE WHEN EXISTS (SELECT "
    "1 FROM bindings AS bound WHERE bound.run_id = NEW.run_id AND bound.name = NEW.name AND "
    "coalesce(bound.execution_id, -1) = coalesce(NEW.execution_id, -1) AND bound.kind IN ('const', 'input') AND "
    "(bound.kind IS NOT NEW.kind OR bound.value IS NOT NEW.value OR bound.attachment_path IS NOT "
    "NEW.attachment_path)) THEN RAISE(ABORT, 'bindings.kind: a const or an input is bound once, and this one is bound "
    "to something else already: bind another name') WHEN NEW.attachment_path IS NOT NULL AND "
    "(typeof(NEW.attachment_path) <> 'text' OR substr(NEW.attachment_path, 1, 12) <> 'attachments/' OR "
    "instr(substr(NEW.attachment_path, 13), '/') > 0 OR instr(NEW.attachment_path, char(92)) > 0 OR "
    "instr(NEW.attachment_path, char(0)) > 0 OR trim(substr(NEW.attachment_path, 13), '. ') = '') THEN RAISE(ABORT, "
    "'bindings.attachment_path: attachment_path names a file directly in attachments: attachments/NAME, and no other "
    "folder') END; END",
    "CREATE TRIGGER persist_row_guard_bindings_update BEFORE UPDATE OF run_id, name, execution_id, value, "
    "attachment_path, kind ON bindings BEGIN SELECT CASE WHEN OLD.kind IN ('const', 'input') AND (OLD.run_id IS NOT "
    "NEW.run_id OR OLD.name IS NOT NEW.name OR OLD.execution_id IS NOT NEW.execution_id OR OLD.kind IS NOT NEW.kind "
    "OR OLD.value IS NOT NEW.value OR OLD.attachment_path IS NOT NEW.attachment_path) THEN RAISE(ABORT, "
    "'bindings.kind: a const or an input is bound once, and this one is bound to something else already: bind another "
    "name') WHEN NEW.attachment_path IS NOT OLD.attachment_path AND NEW.attachment_path IS NOT NULL AND "
    "(typeof(NEW.attachment_path) <> 'text' OR substr(NEW.attachment_path, 1, 12) <> 'attachments/' OR "
    "instr(substr(NEW.attachment_path, 13), '/') > 0 OR instr(NEW.attachment_path, char(92)) > 0 OR "
    "instr(NEW.attachment_path, char(0)) > 0 OR trim(substr(NEW.attachment_path, 13), '. ') = '') THEN RAISE(ABORT, "
    "'bindings.attachment_path: attachment_path names a file directly in attachments: attachments/NAME, and no other "
    "folder') END; END",
    "CREATE TRIGGER persist_row_guard_execution_insert BEFORE INSERT ON execution BEGIN SELECT CASE WHEN NEW.metadata "
    "IS NOT NULL AND (typeof(NEW.metadata) <> 'text' OR NOT json_valid(NEW.metadata)) THEN RAISE(ABORT, "
    "'execution.metadata: metadata is to hold JSON, and this is none') END; END",
    "CREATE TRIGGER persist_row_guard_execution_update BEFORE UPDATE OF metadata ON execution BEGIN SELECT CASE WHEN "
    "NEW.metadata IS NOT OLD.metadata AND NEW.metadata IS NOT NULL AND (typeof(NEW.metadata) <> 'text' OR NOT "
    "json_valid(NEW.metadata)) THEN RAISE(ABORT, 'execution.metadata: metadata is to hold JSON, and this is none') "
    "END; END",
    "CREATE TRIGGER persist_row_guard_imports_insert BEFORE INSERT ON imports BEGIN SELECT CASE WHEN "
    "NEW.inputs_schema IS NOT NULL AND (typeof(NEW.inputs_schema) <> 'text' OR NOT json_valid(NEW.inputs_schema)) "
    "THEN RAISE(ABORT, 'imports.inputs_schema: inputs_schema is to hold JSON, and this is none') WHEN "
    "NEW.outputs_schema IS NOT NULL AND (typeof(NEW.outputs_schema) <> 'text' OR NOT json_valid(NEW.outputs_schema)) "
    "THEN RAISE(ABORT, 'imports.outputs_schema: outputs_schema is to hold JSON, and this is none') END; END",
    "CREATE TRIGGER persist_row_guard_imports_update BEFORE UPDATE OF inputs_schema, outputs_schema ON imports BEGIN "
    "SELECT CASE WHEN NEW.inputs_schema IS NOT OLD.inputs_schema AND NEW.inputs_schema IS NOT NULL AND "
    "(typeof(NEW.inputs_schema) <> 'text' OR NOT json_valid(NEW.inputs_schema)) THEN RAISE(ABORT, "
    "'imports.inputs_schema: inputs_schema is to hold JSON, and this is none') WHEN NEW.outputs_schema IS NOT "
    "OLD.outputs_schema AND NEW.outputs_schema IS NOT NULL AND (typeof(NEW.outputs_schema) <> 'text' OR NOT "
    "json_valid(NEW.outputs_schema)) THEN RAISE(ABORT, 'imports.outputs_schema: outputs_schema is to hold JSON, and "
    "this is none') END; END",
)
ON_POSTGRES = (
    "CREATE FUNCTION persist_row_guard_bindings() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF "
    "current_setting('persist.carries_rows', true) IS DISTINCT FROM 'on' THEN RAISE EXCEPTION USING ERRCODE = "
    "'23514', CONSTRAINT = TG_ARGV[0], MESSAGE = TG_ARGV[1]; END IF; RETURN NEW; END $$",
    "CREATE TRIGGER persist_row_guard_bindings_kind_update BEFORE UPDATE OF run_id, name, execution_id, kind, value, "
    "attachment_path ON bindings FOR EACH ROW WHEN (OLD.kind IN ('const', 'input') AND ROW(OLD.run_id, OLD.name, "
    "OLD.execution_id, OLD.kind, OLD.value, OLD.attachment_path) IS DISTINCT FROM ROW(NEW.run_id, NEW.name, "
    "NEW.execution_id, NEW.kind, NEW.value, NEW.attachment_path)) EXECUTE FUNCTION "
    "persist_row_guard_bindings('bindings.kind', 'bindings.kind: a const or an input is bound once, and this one is "
    "bound to something else already: bind another name')",
    "CREATE TRIGGER persist_row_guard_bindings_attachment_path_insert BEFORE INSERT ON bindings FOR EACH ROW WHEN "
    "((NOT starts_with(NEW.attachment_path, 'attachments/') OR strpos(substr(NEW.attachment_path, 13), '/') > 0 OR "
    "strpos(NEW.attachment_path, chr(92)) > 0 OR btrim(substr(NEW.attachment_path, 13), '. ') = '')) EXECUTE FUNCTION "
    "persist_row_guard_bindings('bindings.attachment_path', 'bindings.attachment_path: attachment_path names a file "
    "directly in attachments: attachments/NAME, and no other folder')",
    "CREATE TRIGGER persist_row_guard_bindings_attachment_path_update BEFORE UPDATE OF attachment_path ON bindings "
    "FOR EACH ROW WHEN (ROW(OLD.attachment_path) IS DISTINCT FROM ROW(NEW.attachment_path) AND (NOT "
    "starts_with(NEW.attachment_path, 'attachments/') OR strpos(substr(NEW.attachment_path, 13), '/') > 0 OR "
    "strpos(NEW.attachment_path, chr(92)) > 0 OR btrim(substr(NEW.attachment_path, 13), '. ') = '')) EXECUTE FUNCTION "
    "persist_row_guard_bindings('bindings.attachment_path', 'bindings.attachment_path: attachment_path names a file "
    "directly in attachments: attachments/NAME, and no other folder')",
)


def upgrade() -> None:
    for statement in ON_SQLITE if op.get_context().dialect.name == "sqlite" else ON_POSTGRES:
        op.execute(statement)
    op.execute(sa.text("UPDATE _meta SET value = '0028' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
