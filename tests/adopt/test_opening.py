"""`Store.open(adopt=True)`, backups and dry runs."""

import asyncio
import shutil
import signal
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from persist import (
    AsyncStore,
    InvalidValue,
    NotFound,
    PersistError,
    SchemaTooNew,
    Store,
    StoreBusy,
    UnmanagedDatabase,
    UnsupportedEngine,
    current,
)
from persist.errors import StoreCorrupt
from persist.maintenance import AdoptReport, adopt
from persist.schema.metadata import HEAD
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.adopt.files import Foreign
from tests.adopt.shapes import CHAT, CONVERSATIONS, FIRST_WORKFLOWS, INSTANCE, PROGRAMS, SYSTEMS
from tests.subprocesses import Worker

Make = Callable[..., Foreign]


def test_a_foreign_file_is_adopted_when_that_is_said(foreign: Make) -> None:
    file = foreign(INSTANCE)
    with pytest.raises(UnmanagedDatabase):
        Store.open(file.url)
    with Store.open(file.url, adopt=True, clock=FrozenClock()) as store, store.begin() as tx:
        tx.chat.sessions.create(agent="build", model={})
    assert [path.name for path in file.path.parent.glob("*before-adopt*")] == ["foreign.db.before-adopt-20260102T030405Z"]
    assert file.rows("PRAGMA journal_mode") == [("wal",)]
    with Store.open(file.url, adopt=True, clock=FrozenClock()):
        pass
    assert len(list(file.path.parent.glob("*before-adopt*"))) == 1


def test_an_asynchronous_store_adopts_too(foreign: Make) -> None:
    file = foreign(INSTANCE)

    async def use() -> None:
        async with AsyncStore.open(file.url, adopt=True) as store, store.begin() as tx:
            await tx.telemetry.tags.record("repo", "o/r")

    asyncio.run(use())
    assert file.rows("SELECT value FROM agent_tags") == [("o/r",)]


def test_a_new_path_is_created_as_usual(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{(tmp_path / 'new.db').as_posix()}", adopt=True):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["new.db"]


def test_a_file_of_tables_that_are_nobodys_is_opened_as_usual(foreign: Make) -> None:
    file = foreign("CREATE TABLE theirs (id TEXT)")
    with Store.open(file.url, adopt=True):
        pass
    assert list(file.path.parent.glob("*before-adopt*")) == []


def test_a_server_is_opened_as_usual(postgres_url: str) -> None:
    with Store.open(postgres_url, adopt=True) as store, store.read() as tx:
        assert tx.chat.sessions.list().items == []


def test_a_read_only_store_cannot_adopt(foreign: Make) -> None:
    with pytest.raises(InvalidValue, match="read-only"):
        Store.open(foreign(INSTANCE).url, adopt=True, read_only=True)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_backup_is_the_file_as_it_was(foreign: Make, system: str) -> None:
    file = foreign(SYSTEMS[system])
    schema = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    before = file.rows(schema)
    report = file.adopt(clock=FrozenClock())
    assert report.backup_path == file.path.with_name("foreign.db.before-adopt-20260102T030405Z")
    assert file.rows(schema, report.backup_path) == before
    assert stat.S_IMODE(report.backup_path.stat().st_mode) == 0o600
    file.assert_kept(report, but=["message_types"])


def test_a_backup_never_replaces_a_file(foreign: Make) -> None:
    file = foreign(INSTANCE)
    taken = file.path.with_name("foreign.db.before-adopt-20260102T030405Z")
    taken.write_text("mine")
    report = file.adopt(clock=FrozenClock())
    assert report.backup_path == taken.with_name(f"{taken.name}-2")
    assert taken.read_text() == "mine"


def test_an_older_file_of_ours_is_only_brought_up_to_date(tmp_path: Path) -> None:
    kept = Path(__file__).parents[1] / "schema" / "databases" / "0001.db"
    file = Foreign(Path(shutil.copy(kept, tmp_path / "ours.db")))
    report = file.adopt()
    assert report == AdoptReport(file.path, HEAD)
    assert current(file.url) == HEAD
    assert list(tmp_path.glob("*before-adopt*")) == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_dry_run_tells_the_same_and_changes_nothing(foreign: Make, system: str) -> None:
    file = foreign(SYSTEMS[system])
    before = file.path.read_bytes()
    told = adopt(file.url, dry_run=True)
    assert file.path.read_bytes() == before
    assert [path.name for path in file.path.parent.iterdir()] == ["foreign.db"]
    assert file.adopt(backup=False) == told


# Killed at any moment, a file is as it was, and adopting it again works.


WORKER = "tests.adopt.adopting_worker"
MOMENTS = [
    ("back_up", 1, "delete"),
    ("copy_to", 1, "delete"),
    ("copy_to", 1, "wal"),
    ("rebuild_without_unique", 1, "wal"),
    ("run", 3, "delete"),
    ("add_column", 9, "delete"),
    ("add_index", 30, "wal"),
    ("orphans", 2, "delete"),
    ("commit", 1, "delete"),
    ("commit", 1, "wal"),
]
ROWS = "INSERT INTO messaging_sessions VALUES ('s', 'p', 'c', NULL, 'u', '2025', '2025', 0, 1, 'x');"


@pytest.mark.parametrize(("step", "number", "journal"), MOMENTS, ids=["-".join(map(str, moment)) for moment in MOMENTS])
def test_a_kill_leaves_the_file_as_it_was(foreign: Make, step: str, number: int, journal: str) -> None:
    file = foreign(f"PRAGMA journal_mode = {journal};{FIRST_WORKFLOWS}{INSTANCE}{ROWS}")
    schema = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    before = file.rows(schema)
    with Worker(WORKER, file.url, step, number) as killed:
        assert killed.wait(60) == -signal.SIGKILL
    assert file.rows(schema) == before
    assert file.rows("PRAGMA integrity_check") == [("ok",)]
    report = file.adopt()
    assert report.adopted
    assert file.rows(schema, report.backup_path) == before
    assert list(file.path.parent.glob("*.partial")) == []


def test_two_at_once_make_one_backup(foreign: Make) -> None:
    file = foreign(FIRST_WORKFLOWS + INSTANCE + ROWS)
    with Worker(WORKER, file.url) as one, Worker(WORKER, file.url) as other:
        said = sorted(worker.communicate(timeout=60)[0].strip() for worker in (one, other))
    assert said == ["False", "True"]
    assert len(list(file.path.parent.glob("*before-adopt*"))) == 1


# Files that are not taken over keep every byte, and the error says what is different about them.


STRANGERS = {
    "no-such-key": ("CREATE TABLE tasks (number INTEGER PRIMARY KEY)", "tasks has no id"),
    "another-key": (
        INSTANCE.replace("occurred_at INTEGER PRIMARY KEY,", "id INTEGER PRIMARY KEY, occurred_at INTEGER,"),
        "key (id)",
    ),
    "key-of-another-type": ("CREATE TABLE messages (id INTEGER PRIMARY KEY, created_at REAL)", "messages.id is INTEGER"),
    "a-column-that-must-be-there": ("CREATE TABLE sessions (id TEXT PRIMARY KEY, data TEXT)", "sessions has no progression_id"),
    "a-column-that-must-be-given": (
        PROGRAMS.replace("memory TEXT,", "memory TEXT, o INTEGER NOT NULL,"),
        "agents.o must be given",
    ),
    "a-column-that-must-not-be-null": (
        CHAT.replace("parent_id TEXT,", "parent_id TEXT NOT NULL,"),
        "chat_sessions.parent_id may not",
    ),
    "a-view": (INSTANCE + "CREATE VIEW run AS SELECT 1 AS id", "run is no table"),
    "rows-with-one-key": (
        CONVERSATIONS.replace(
            "(type_id INTEGER PRIMARY KEY, lion_class TEXT NOT NULL UNIQUE)", "(type_id INTEGER PRIMARY KEY, lion_class TEXT)"
        )
        + "INSERT INTO message_types VALUES (7, 'a'), (8, 'a')",
        "message_types has several rows with the same lion_class",
    ),
}


@pytest.mark.parametrize("name", STRANGERS)
@pytest.mark.parametrize("opened", [False, True], ids=["adopt", "open"])
def test_tables_of_another_program_are_refused_by_name(foreign: Make, name: str, opened: bool) -> None:
    script, reason = STRANGERS[name]
    file = foreign(script)
    before = file.path.read_bytes()
    with pytest.raises(UnmanagedDatabase) as caught:
        Store.open(file.url, adopt=True) if opened else adopt(file.url)
    assert reason in str(caught.value)
    assert str(caught.value).endswith("; nothing was changed.")
    assert caught.value.tables
    assert file.path.read_bytes() == before
    kept = [path.name for path in file.path.parent.iterdir() if path != file.path]
    assert [path for path in kept if "before-adopt" not in path] == []


def test_a_file_with_none_of_our_tables_is_a_wrong_file(foreign: Make) -> None:
    file = foreign("CREATE TABLE theirs (id TEXT); CREATE TABLE _meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    before = file.path.read_bytes()
    with pytest.raises(InvalidValue, match="none of the tables"):
        adopt(file.url)
    assert file.path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\x00" + b"\x01" * 2000], ids=["empty", "text", "garbage"])
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.db"
    path.write_bytes(content)
    with pytest.raises(PersistError):
        adopt(f"sqlite:///{path.as_posix()}")
    assert path.read_bytes() == content


def test_a_damaged_file_is_not_touched(foreign: Make) -> None:
    file = foreign(
        INSTANCE + "CREATE INDEX i ON tool_history (tool_key);" + "INSERT INTO tool_history VALUES (1, 1, 'bash', 0, 1);" * 1
    )
    with closing(sqlite3.connect(file.path)) as raw:
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute("UPDATE sqlite_master SET rootpage = 2 WHERE name = 'i'")
        raw.commit()
    before = file.path.read_bytes()
    with pytest.raises(StoreCorrupt):
        adopt(file.url)
    assert file.path.read_bytes() == before


def test_there_must_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        adopt(f"sqlite:///{(tmp_path / 'nobody.db').as_posix()}")
    with pytest.raises(InvalidValue):
        adopt("sqlite:///:memory:")
    with pytest.raises(UnsupportedEngine, match="only files are adopted"):
        adopt("postgresql://nobody@nowhere.invalid/x")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_newer_persist_is_left_alone(tmp_path: Path) -> None:
    file = Foreign(tmp_path / "new.db")
    Store.open(file.url).close()
    file.run("UPDATE persist_alembic_version SET version_num = '9999'")
    before = file.path.read_bytes()
    with pytest.raises(SchemaTooNew):
        adopt(file.url)
    assert file.path.read_bytes() == before


def test_while_another_program_writes_it_gives_up_and_can_be_run_again(foreign: Make) -> None:
    file = foreign(INSTANCE)
    with closing(sqlite3.connect(file.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy):
            adopt(file.url, settings=Settings(busy_timeout_ms=10))
    assert file.adopt().adopted
