"""The schema only grows: every revision is run without a database and every operation of it is looked at."""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op
from alembic.script import ScriptDirectory

from tests.cases import each
from tests.schema.additive import offences
from tests.schema.places import repository_config

REVISIONS = list(ScriptDirectory.from_config(repository_config("sqlite://")).walk_revisions())


@each("revision", REVISIONS, ids=lambda revision: str(revision.revision))
def test_a_revision_only_adds(revision: Any) -> None:
    assert offences(revision.module.upgrade) == []


def good() -> None:
    op.create_table(
        "lanes",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("word", sa.Text(), sa.CheckConstraint("word IN ('drop', 'delete', 'rename')"), nullable=False),
        sa.Column("session_id", sa.Text(), sa.ForeignKey("chat_sessions.id", ondelete="CASCADE")),
    )
    op.create_index("ux_lanes_word", "lanes", ["word"], unique=True)
    op.add_column("chat_sessions", sa.Column("lane", sa.Text()))
    op.add_column("chat_sessions", sa.Column("weight", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.create_index("ix_chat_sessions_lane", "chat_sessions", ["lane"])
    op.create_index("ux_chat_sessions_lane", "chat_sessions", ["agent", "lane"], unique=True)
    op.bulk_insert(sa.table("lanes", sa.column("id", sa.Text()), sa.column("word", sa.Text())), [{"id": "1", "word": "drop"}])
    op.execute("CREATE TRIGGER t BEFORE INSERT ON lanes BEGIN SELECT RAISE(ABORT, 'delete; drop') WHERE NEW.id = ''; END")
    op.execute("CREATE TRIGGER l AFTER UPDATE OF agent ON chat_sessions BEGIN INSERT INTO lanes (id) VALUES (OLD.id); END")
    op.execute("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; RETURN NEW; END $$")
    op.execute("CREATE TRIGGER p BEFORE UPDATE OF agent ON chat_sessions FOR EACH ROW EXECUTE FUNCTION f()")
    op.execute("UPDATE _meta SET value = '0002' WHERE key = 'schema_version'")


def replaced_index() -> None:
    op.create_index("ix_chat_sessions_agent_newest", "chat_sessions", ["agent", sa.text("created_at DESC")])
    op.drop_index("ix_chat_sessions_agent_updated_at", "chat_sessions")


def validated_later() -> None:
    op.create_table("lanes", sa.Column("name", sa.Text(), primary_key=True))
    op.add_column("chat_sessions", sa.Column("lane", sa.Text()))
    if op.get_context().dialect.name == "postgresql":
        op.create_foreign_key(op.f("fk_l"), "chat_sessions", "lanes", ["lane"], ["name"], postgresql_not_valid=True)
        op.create_check_constraint(op.f("ck_l"), "chat_sessions", "lane IS NULL OR lane <> ''", postgresql_not_valid=True)


def settings() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE bindings REPLICA IDENTITY FULL")
        op.execute("ALTER TABLE chat_sessions SET (fillfactor = 80)")


@each("revision", [good, replaced_index, validated_later, settings], ids=lambda one: str(one.__name__))
def test_what_a_revision_may_do(revision: Callable[[], None]) -> None:
    assert offences(revision) == []


def drop_table() -> None:
    op.drop_table("chat_turns")


def drop_column() -> None:
    op.drop_column("chat_sessions", "agent")


def drop_index() -> None:
    op.drop_index("ix_chat_sessions_agent_updated_at", "chat_sessions")


def drop_constraint() -> None:
    op.drop_constraint("ck_chat_messages_role", "chat_messages")


def rename_table() -> None:
    op.rename_table("chat_turns", "turns")


def rename_column() -> None:
    op.alter_column("chat_sessions", "agent", new_column_name="agent_name")


def retype_column() -> None:
    op.alter_column("chat_sessions", "agent", type_=sa.String(10))


def make_column_required() -> None:
    op.alter_column("chat_sessions", "workspace_root", nullable=False)


def required_column() -> None:
    op.add_column("chat_sessions", sa.Column("lane", sa.Text(), nullable=False))


def required_column_with_a_python_default() -> None:
    op.add_column("chat_sessions", sa.Column("lane", sa.Text(), nullable=False, default="main"))


def unique_column() -> None:
    op.add_column("chat_sessions", sa.Column("lane", sa.Text(), unique=True))


def unique_index() -> None:
    op.create_index("ux_chat_sessions_agent", "chat_sessions", ["agent"], unique=True)


def unique_constraint() -> None:
    op.create_unique_constraint("uq_chat_sessions_agent", "chat_sessions", ["agent"])


def check_constraint() -> None:
    op.create_check_constraint("ck_chat_sessions_agent", "chat_sessions", "agent <> ''")


def foreign_key() -> None:
    op.create_foreign_key("fk_chat_parts_session_id", "chat_parts", "chat_sessions", ["session_id"], ["id"])


def batch_add_column() -> None:
    with op.batch_alter_table("chat_sessions") as batch:
        batch.add_column(sa.Column("lane", sa.Text()))


def batch_recreate() -> None:
    with op.batch_alter_table("chat_sessions", recreate="always") as batch:
        batch.add_column(sa.Column("lane", sa.Text()))


def raw_drop() -> None:
    op.execute("drop table chat_turns")


def raw_rename() -> None:
    op.execute("ALTER TABLE chat_turns\n  RENAME TO turns")


def raw_delete() -> None:
    op.execute("DELETE FROM chat_turns")


def raw_retype() -> None:
    op.execute("ALTER TABLE chat_sessions ALTER agent TYPE varchar(10)")


def raw_constraint() -> None:
    op.execute("ALTER TABLE chat_sessions ADD CONSTRAINT c CHECK (agent <> '')")


def raw_unique_index() -> None:
    op.execute("CREATE UNIQUE INDEX ux ON chat_sessions (agent)")


def raw_required_column() -> None:
    op.execute("ALTER TABLE chat_sessions ADD COLUMN lane TEXT NOT NULL")


def raw_core_statement() -> None:
    op.execute(sa.delete(sa.table("chat_turns")))


def raw_index() -> None:
    op.execute("CREATE INDEX ix ON chat_sessions (agent)")


def raw_backfill() -> None:
    op.execute("UPDATE chat_sessions SET owner = agent")


def computed_default() -> None:
    op.add_column("chat_sessions", sa.Column("lane", sa.Text(), server_default=sa.text("gen_random_uuid()"), nullable=False))


def validated_at_once() -> None:
    op.add_column("chat_sessions", sa.Column("lane", sa.Text()))
    if op.get_context().dialect.name == "postgresql":
        op.create_check_constraint(op.f("ck_l"), "chat_sessions", "lane IS NULL OR lane <> ''")


def checks_old_rows() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.create_check_constraint(op.f("ck_a"), "chat_sessions", "agent <> ''", postgresql_not_valid=True)


def checks_without_a_name_to_find() -> None:
    op.add_column("chat_sessions", sa.Column("lane", sa.Text()))
    if op.get_context().dialect.name == "postgresql":
        op.create_check_constraint("ck_l", "chat_sessions", "lane IS NULL OR lane <> ''", postgresql_not_valid=True)


def index_replaced_elsewhere() -> None:
    op.create_index("ix_chat_messages_role", "chat_messages", ["role"])
    op.drop_index("ix_chat_sessions_agent_updated_at", "chat_sessions")


def one_dialect_only() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("TRUNCATE chat_turns")


def bound_to_data() -> None:
    op.get_bind().execute(sa.text("SELECT count(*) FROM chat_sessions")).scalar()


def bound_to_a_schema() -> None:
    op.add_column("chat_sessions", sa.Column("lane", sa.Text()), schema="persist")


def deleting_trigger() -> None:
    op.execute("CREATE TRIGGER t AFTER INSERT ON chat_turns BEGIN DELETE FROM chat_parts; END")


def changing_trigger() -> None:
    op.execute("CREATE TRIGGER t AFTER INSERT ON chat_turns BEGIN SELECT 1; UPDATE chat_parts SET text = ''; END")


def ignoring_trigger() -> None:
    op.execute("CREATE TRIGGER t BEFORE INSERT ON chat_turns BEGIN SELECT RAISE(IGNORE); END")


def copying_trigger() -> None:
    op.execute("CREATE TRIGGER t AFTER INSERT ON chat_turns BEGIN INSERT INTO chat_parts (id) VALUES (NEW.id); END")


def replacing_trigger() -> None:
    op.execute("CREATE TRIGGER t INSTEAD OF INSERT ON chat_turns BEGIN SELECT 1; END")


def swallowing_function() -> None:
    op.execute("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")


def assigning_function() -> None:
    op.execute("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.agent \\:= 'x'; RETURN NEW; END $$")


def replaced_function() -> None:
    op.execute("CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$")


PLANTED = [
    raw_index,
    raw_backfill,
    computed_default,
    validated_at_once,
    checks_old_rows,
    checks_without_a_name_to_find,
    index_replaced_elsewhere,
    deleting_trigger,
    changing_trigger,
    ignoring_trigger,
    copying_trigger,
    replacing_trigger,
    swallowing_function,
    assigning_function,
    replaced_function,
    drop_table,
    drop_column,
    drop_index,
    drop_constraint,
    rename_table,
    rename_column,
    retype_column,
    make_column_required,
    required_column,
    required_column_with_a_python_default,
    unique_column,
    unique_index,
    unique_constraint,
    check_constraint,
    foreign_key,
    batch_add_column,
    batch_recreate,
    raw_drop,
    raw_rename,
    raw_delete,
    raw_retype,
    raw_constraint,
    raw_unique_index,
    raw_required_column,
    raw_core_statement,
    one_dialect_only,
    bound_to_data,
    bound_to_a_schema,
]


@each("bad", PLANTED, ids=lambda bad: str(bad.__name__))
def test_a_planted_offence_is_found(bad: Callable[[], None]) -> None:
    assert offences(bad)


@each(
    ("bad", "words"),
    [
        (drop_table, ["sqlite: DropTableOp is not additive", "postgresql: DropTableOp is not additive"]),
        (required_column, ["sqlite: column chat_sessions.lane is NOT NULL without a server default"]),
        (unique_index, ["sqlite: unique index ux_chat_sessions_agent on chat_sessions: rows of old code may break it"]),
        (one_dialect_only, ["postgresql: SQL says TRUNCATE"]),
        (raw_delete, ["sqlite: SQL says DELETE", "postgresql: SQL says DELETE"]),
    ],
)
def test_an_offence_is_named(bad: Callable[[], None], words: list[str]) -> None:
    assert set(words) <= set(offences(bad))
