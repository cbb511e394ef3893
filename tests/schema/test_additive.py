"""The schema only grows: every revision is run without a database and every operation of it is looked at."""

import ast
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import op
from alembic.script import ScriptDirectory

from persist.schema import metadata
from tests.cases import each
from tests.schema.additive import offences
from tests.schema.places import ROOT, VERSIONS, repository_config, revision_files

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


# The folder of revisions: one line, numbered, frozen, importing nothing of ours.


CHECKSUMS = Path(__file__).with_name("checksums.txt")
SCRIPTS = ScriptDirectory.from_config(repository_config("sqlite://"))
FILES = revision_files()


def test_there_is_one_head_and_the_code_knows_it() -> None:
    assert SCRIPTS.get_heads() == [metadata.HEAD]
    assert SCRIPTS.get_bases() == ["0001"]


def test_the_code_knows_every_revision_in_order() -> None:
    assert tuple(script.revision for script in SCRIPTS.walk_revisions())[::-1] == metadata.REVISIONS
    assert metadata.REVISIONS[-1] == metadata.HEAD


def test_revisions_are_numbered_in_one_line() -> None:
    numbers = [f"{number:04d}" for number in range(1, len(FILES) + 1)]
    assert [path.name[:4] for path in FILES] == numbers
    assert all(re.fullmatch(r"\d{4}_[a-z0-9_]+\.py", path.name) for path in FILES)
    scripts = [SCRIPTS.get_revision(number) for number in numbers]
    assert [script.down_revision for script in scripts] == [None, *numbers[:-1]]
    assert all(not script.dependencies and Path(script.path).name.startswith(script.revision) for script in scripts)


def test_the_first_revision_carries_the_branch_label() -> None:
    assert SCRIPTS.get_revision("0001").module.branch_labels == ("persist",)


def test_the_folder_is_no_package() -> None:
    """With an __init__.py our folder would be found in the place of the library."""
    assert not (ROOT / "alembic" / "__init__.py").exists()
    assert not (VERSIONS / "__init__.py").exists()


@each("path", FILES, ids=lambda path: str(path.name))
def test_a_revision_imports_only_the_libraries(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).partition(".")[0])
    assert imported <= {"alembic", "sqlalchemy"}


@each("path", FILES, ids=lambda path: str(path.name))
def test_a_revision_says_why(path: Path) -> None:
    first = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]
    assert len(first) > 20
    assert first.endswith(".")


@each("script", list(SCRIPTS.walk_revisions()), ids=lambda script: str(script.revision))
def test_there_is_no_downgrade(script: Any) -> None:
    with pytest.raises(RuntimeError, match="only grows"):
        script.module.downgrade()


def test_released_revisions_are_never_edited() -> None:
    """CONTRIBUTING.md says how a new one is added, before its release."""
    kept = {name: digest for digest, name in map(str.split, CHECKSUMS.read_text().splitlines())}
    assert kept == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FILES}


def test_the_template_makes_a_good_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What CONTRIBUTING says to type, in a copy of the folder."""
    shutil.copytree(ROOT / "alembic", tmp_path / "alembic", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "alembic.ini", tmp_path)
    number = f"{len(FILES) + 1:04d}"
    command = [sys.executable, "-m", "alembic", "revision", "--rev-id", number, "-m", "More lanes for sessions."]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (made,) = (tmp_path / "alembic" / "versions").glob(f"{number}_*.py")
    assert made.name == f"{number}_more_lanes_for_sessions.py"
    namespace: dict[str, Any] = {}
    exec(compile(made.read_text(), made, "exec"), namespace)
    assert (namespace["revision"], namespace["down_revision"]) == (number, metadata.HEAD)
    assert offences(namespace["upgrade"]) == []
    with pytest.raises(RuntimeError, match="only grows"):
        namespace["downgrade"]()
