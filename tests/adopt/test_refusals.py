"""Files that are not taken over keep every byte, and the error says what is different about them."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from persist import InvalidValue, NotFound, PersistError, SchemaTooNew, Store, StoreBusy, UnmanagedDatabase, UnsupportedEngine
from persist.errors import StoreCorrupt
from persist.maintenance import adopt
from persist.settings import Settings
from tests.adopt.files import Foreign
from tests.adopt.shapes import CHAT, CONVERSATIONS, INSTANCE, PROGRAMS

Make = Callable[..., Foreign]

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
