"""URLs and paths that name no file of ours: refused with an error of ours, and nothing is made."""

import errno
import os
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.db.dialects.sqlite import connections
from persist.db.dialects.sqlite.errors import translate_error
from persist.errors import (
    InvalidValue,
    NotFound,
    NotPermitted,
    PersistError,
    ReadOnlyTransaction,
    StoreCorrupt,
    UnmanagedDatabase,
)
from persist.maintenance import backup, export, import_
from persist.sessionlog import SessionLogWriter, read_session_log
from persist.single_owner_files import create_run_file, open_instance, open_run_file, open_workspace
from tests.cases import each


@pytest.mark.parametrize(
    "name", ["a b.db", "ha#sh.db", "ünï 🦊.db", "semi;colon.db", "quote'\".db", "file:x.db", "a&mode=memory.db", "-x.db"]
)
def test_any_name_that_a_file_can_have(tmp_path: Path, name: str) -> None:
    with Store.open(f"sqlite:///{tmp_path / name}") as store, store.begin() as tx:
        tx.chat.sessions.create(id="ses_1", agent="build", model={})
    with Store.open(f"sqlite:///{tmp_path / name}", read_only=True) as store, store.read() as tx:
        assert tx.chat.sessions.get("ses_1").agent == "build"
    assert {path.name for path in tmp_path.iterdir()} - {f"{name}-wal", f"{name}-shm"} == {name}


@each("name", ["x" * 300, "x" * 300 + "/state.db", "a\x00b", "a%00b", "x.db?mode=ro", "x.db?timeout=5"])
def test_what_no_file_can_be_called(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidValue):
        Store.open(f"sqlite:///{tmp_path}/{name}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["sqlite://host/state.db", "sqlite://user:pw@/state.db"])
def test_a_file_has_no_host(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue):
        Store.open(url)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")  # its whole path may be too long
        for path in (tmp_path / "pipe", tmp_path / "folder", tmp_path / "socket", Path("/dev/null")):
            with pytest.raises(InvalidValue):
                Store.open(f"sqlite:///{path}")


def test_files_of_others_keep_every_byte(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no database at all, and long enough to be taken for one " * 50)
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE sessions (a)")
    connection.close()
    before = text.read_bytes(), foreign.read_bytes()
    with pytest.raises(StoreCorrupt):
        Store.open(f"sqlite:///{text}")
    with pytest.raises(UnmanagedDatabase):
        Store.open(f"sqlite:///{foreign}")
    assert (text.read_bytes(), foreign.read_bytes()) == before
    assert {path.name for path in tmp_path.iterdir()} == {"text", "foreign.db"}


def test_links_that_lead_nowhere_or_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone" / "state.db")
    for name in ("circle", "nowhere"):
        with pytest.raises(PersistError):
            Store.open(f"sqlite:///{tmp_path / name}")


@pytest.mark.parametrize("bad", ["a\x00b", "x" * 300])
def test_every_path_is_checked(tmp_path: Path, sqlite_url: str, bad: str) -> None:
    path = tmp_path / bad
    with Store.open(sqlite_url) as store:
        for give in (
            lambda: backup(store, path),
            lambda: export(store, path),
            lambda: import_(store, path),
            lambda: create_run_file(path),
            lambda: open_run_file(path),
            lambda: open_instance(tmp_path, bad),
            lambda: open_workspace(path, "w"),
            lambda: SessionLogWriter(path, "-app"),
            lambda: read_session_log(path),
        ):
            with pytest.raises((InvalidValue, NotFound)):
                give()


@each("url", ["", "nonsense", "sqlite:///x.db", "postgresql://h:port/d", "postgresql://u:p@ss@h/d"])
def test_a_url_to_listen_to_is_checked_when_the_store_is_opened(sqlite_url: str, url: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Store.open(sqlite_url, listen_url=url)
    assert caught.value.path == "listen_url"


# What SQLite and the system say of places that cannot be read or written, in our words. The places are in tests/torture.


def said(name: str, text: str = "attempt to write a readonly database") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error


def test_a_folder_where_no_log_can_be_made() -> None:
    """The file is only looked at, and nobody's statement wrote anything."""
    assert isinstance(translate_error(said("SQLITE_READONLY_DIRECTORY"), "x.db", 0.0, read_only=True), NotPermitted)
    assert isinstance(translate_error(said("SQLITE_READONLY"), "x.db", 0.0, read_only=True), ReadOnlyTransaction)
    assert isinstance(translate_error(said("SQLITE_READONLY"), "x.db", 0.0, read_only=False), NotPermitted)


def test_a_place_that_nobody_may_look_at(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Any, **_: Any) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with Store.open(sqlite_url) as store:
        monkeypatch.setattr(os, "lstat", refuse)
        with pytest.raises(NotPermitted):
            export(store, tmp_path / "out.jsonl")
        with pytest.raises(NotPermitted):
            Store.open(f"sqlite:///{tmp_path / 'other.db'}")
        SessionLogWriter(tmp_path, "-app").close()  # it says so when it writes, and fails nobody


def test_a_file_that_stays_busy_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look may wait for the busy timeout: two hundred of them were a quarter of an hour."""
    asked = []

    class Busy:
        def execute(self, statement: str) -> None:
            asked.append(statement)
            raise said("SQLITE_BUSY", "database is locked")

    monkeypatch.setattr(connections, "_PATIENCE_FOR_WAL", -1.0)
    connection: Any = Busy()
    with pytest.raises(sqlite3.OperationalError):
        connections.use_wal(connection, tmp_path / "state.db")
    assert len(asked) == 1
