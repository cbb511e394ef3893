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


def batch_add_column() -> None:
    with op.batch_alter_table("chat_sessions") as batch:
        batch.add_column(sa.Column("lane", sa.Text()))


def batch_recreate() -> None:
    with op.batch_alter_table("chat_sessions", recreate="always") as batch:
        batch.add_column(sa.Column("lane", sa.Text()))


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


PLANTED: dict[str, Callable[[], object]] = {
    "raw_index": lambda: op.execute("CREATE INDEX ix ON chat_sessions (agent)"),
    "raw_backfill": lambda: op.execute("UPDATE chat_sessions SET owner = agent"),
    "computed_default": lambda: op.add_column(
        "chat_sessions", sa.Column("lane", sa.Text(), server_default=sa.text("gen_random_uuid()"), nullable=False)
    ),
    "deleting_trigger": lambda: op.execute("CREATE TRIGGER t AFTER INSERT ON chat_turns BEGIN DELETE FROM chat_parts; END"),
    "changing_trigger": lambda: op.execute(
        "CREATE TRIGGER t AFTER INSERT ON chat_turns BEGIN SELECT 1; UPDATE chat_parts SET text = ''; END"
    ),
    "ignoring_trigger": lambda: op.execute("CREATE TRIGGER t BEFORE INSERT ON chat_turns BEGIN SELECT RAISE(IGNORE); END"),
    "copying_trigger": lambda: op.execute(
        "CREATE TRIGGER t AFTER INSERT ON chat_turns BEGIN INSERT INTO chat_parts (id) VALUES (NEW.id); END"
    ),
    "replacing_trigger": lambda: op.execute("CREATE TRIGGER t INSTEAD OF INSERT ON chat_turns BEGIN SELECT 1; END"),
    "swallowing_function": lambda: op.execute(
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"
    ),
    "assigning_function": lambda: op.execute(
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.agent \\:= 'x'; RETURN NEW; END $$"
    ),
    "replaced_function": lambda: op.execute(
        "CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$"
    ),
    "drop_table": lambda: op.drop_table("chat_turns"),
    "drop_column": lambda: op.drop_column("chat_sessions", "agent"),
    "drop_index": lambda: op.drop_index("ix_chat_sessions_agent_updated_at", "chat_sessions"),
    "drop_constraint": lambda: op.drop_constraint("ck_chat_messages_role", "chat_messages"),
    "rename_table": lambda: op.rename_table("chat_turns", "turns"),
    "rename_column": lambda: op.alter_column("chat_sessions", "agent", new_column_name="agent_name"),
    "retype_column": lambda: op.alter_column("chat_sessions", "agent", type_=sa.String(10)),
    "make_column_required": lambda: op.alter_column("chat_sessions", "workspace_root", nullable=False),
    "required_column": lambda: op.add_column("chat_sessions", sa.Column("lane", sa.Text(), nullable=False)),
    "required_column_with_a_python_default": lambda: op.add_column(
        "chat_sessions", sa.Column("lane", sa.Text(), nullable=False, default="main")
    ),
    "unique_column": lambda: op.add_column("chat_sessions", sa.Column("lane", sa.Text(), unique=True)),
    "unique_index": lambda: op.create_index("ux_chat_sessions_agent", "chat_sessions", ["agent"], unique=True),
    "unique_constraint": lambda: op.create_unique_constraint("uq_chat_sessions_agent", "chat_sessions", ["agent"]),
    "check_constraint": lambda: op.create_check_constraint("ck_chat_sessions_agent", "chat_sessions", "agent <> ''"),
    "foreign_key": lambda: op.create_foreign_key(
        "fk_chat_parts_session_id", "chat_parts", "chat_sessions", ["session_id"], ["id"]
    ),
    "raw_drop": lambda: op.execute("drop table chat_turns"),
    "raw_rename": lambda: op.execute("ALTER TABLE chat_turns\n  RENAME TO turns"),
    "raw_delete": lambda: op.execute("DELETE FROM chat_turns"),
    "raw_retype": lambda: op.execute("ALTER TABLE chat_sessions ALTER agent TYPE varchar(10)"),
    "raw_constraint": lambda: op.execute("ALTER TABLE chat_sessions ADD CONSTRAINT c CHECK (agent <> '')"),
    "raw_unique_index": lambda: op.execute("CREATE UNIQUE INDEX ux ON chat_sessions (agent)"),
    "raw_required_column": lambda: op.execute("ALTER TABLE chat_sessions ADD COLUMN lane TEXT NOT NULL"),
    "raw_core_statement": lambda: op.execute(sa.delete(sa.table("chat_turns"))),
    "bound_to_data": lambda: op.get_bind().execute(sa.text("SELECT count(*) FROM chat_sessions")).scalar(),
    "bound_to_a_schema": lambda: op.add_column("chat_sessions", sa.Column("lane", sa.Text()), schema="persist"),
    "validated_at_once": validated_at_once,
    "checks_old_rows": checks_old_rows,
    "checks_without_a_name_to_find": checks_without_a_name_to_find,
    "index_replaced_elsewhere": index_replaced_elsewhere,
    "batch_add_column": batch_add_column,
    "batch_recreate": batch_recreate,
    "one_dialect_only": one_dialect_only,
}


@each("name", PLANTED)
def test_a_planted_offence_is_found(name: str) -> None:
    assert offences(PLANTED[name])


@each(
    ("name", "words"),
    [
        ("drop_table", ["sqlite: DropTableOp is not additive", "postgresql: DropTableOp is not additive"]),
        ("required_column", ["sqlite: column chat_sessions.lane is NOT NULL without a server default"]),
        ("unique_index", ["sqlite: unique index ux_chat_sessions_agent on chat_sessions: rows of old code may break it"]),
        ("one_dialect_only", ["postgresql: SQL says TRUNCATE"]),
        ("raw_delete", ["sqlite: SQL says DELETE", "postgresql: SQL says DELETE"]),
    ],
)
def test_an_offence_is_named(name: str, words: list[str]) -> None:
    assert set(words) <= set(offences(PLANTED[name]))
