"""URLs and paths that name no file of ours are refused and make nothing; and disks without room."""

import errno
import os
import resource
import socket
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from persist import Store
from persist.db.dialects.sqlite import connections
from persist.db.dialects.sqlite.errors import translate_error
from persist.errors import InvalidValue, NotFound, NotPermitted, PersistError, ReadOnlyTransaction, StoreBusy, StoreFull
from persist.maintenance import backup, export, import_
from persist.programs import subagent
from persist.sessionlog import SessionLogWriter, read_session_log
from persist.settings import Settings
from persist.single_owner_files import agents_file, create_run_file, open_instance, open_run_file, open_workspace
from tests.cases import each
from tests.sessionlog.scenes import text


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


# A disk that is full, in the small: no file may become larger than a few bytes. The large is in tests/torture.


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process grows beyond 1 KiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        # Python would leave a module's bytecode cut off, for all processes after this one
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def run_store(tmp_path: Path) -> Iterator[Store]:
    with create_run_file(tmp_path, program_source="session 1") as store:
        yield store


def _attachment(store: Store, folder: Path) -> None:
    with store.begin() as tx:
        assert store.run_id is not None
        tx.programs.bindings.bind(store.run_id, "large", "x" * 200_000)


WRITES: dict[str, Callable[[Store, Path], object]] = {
    "attachment": _attachment,
    "export": lambda store, folder: export(store, folder / "out.jsonl"),
    "run file": lambda store, folder: create_run_file(folder, program_source="x" * 5000).close(),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_full_disk_is_said_and_leaves_nothing_half_written(run_store: Store, tmp_path: Path, what: str) -> None:
    def there() -> set[Path]:
        return {path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith("state.db")}

    before, runs = there(), len(list(tmp_path.glob(".prose/runs/*")))
    with no_room(), pytest.raises(StoreFull):
        WRITES[what](run_store, tmp_path)
    assert there() == before
    assert len(list(tmp_path.glob(".prose/runs/*"))) == runs
    with run_store.read() as tx:
        assert tx.programs.bindings.list(str(run_store.run_id)) == []
    WRITES[what](run_store, tmp_path)
    assert there() > before


def test_a_session_log_that_does_not_fit(tmp_path: Path) -> None:
    with SessionLogWriter(tmp_path, "-app", strict=True) as log:
        with no_room(), pytest.raises(StoreFull):
            log.feed(text("x" * 5000))
        log.feed(text("kept"))
        assert log.path is not None
        assert "kept" in str(read_session_log(log.path))


def test_what_the_database_says_while_a_file_is_read_stays_what_it_is(sqlite_url: str, tmp_path: Path) -> None:
    """StoreBusy and StoreFull are OSErrors too, and were once taken for a failure of the file."""
    impatient = Settings(busy_timeout_ms=0)
    with Store.open(sqlite_url, sleep=lambda _: None, settings=impatient) as store, Store.open(sqlite_url) as other:
        export(store, tmp_path / "out.jsonl")
        with other.begin(), pytest.raises(StoreBusy):
            import_(store, tmp_path / "out.jsonl")


def test_a_commit_that_fails_spoils_no_connection(sqlite_url: str) -> None:
    def write(store: Store) -> int:
        with store.begin() as tx:
            tx.chat.sessions.create(agent="build", model={})
            return len(tx.chat.sessions.list().items)

    with Store.open(sqlite_url) as store:
        assert write(store) == 1
        for _ in range(3):
            with no_room(), pytest.raises(PersistError) as refused:
                write(store)
            assert getattr(refused.value, "outcome", "rolled back") == "rolled back"
            with store.read() as tx:
                assert len(tx.chat.sessions.list().items) == 1
        assert write(store) == 2


# What persist makes is its owner's alone, whatever the umask; what is there already keeps its mode.


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """Of everything below, by its relative path."""
    return {str(path.relative_to(folder)): oct(stat.S_IMODE(path.lstat().st_mode)) for path in sorted(folder.rglob("*"))}


@pytest.mark.usefixtures("no_umask")
def test_files_and_folders_are_their_owners_alone(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    with Store.open(f"sqlite:///{home / 'state.db'}") as store, store.begin() as tx:
        tx.chat.sessions.create(agent="build", model={})
        assert set(modes(home)) == {"state.db", "state.db-wal", "state.db-shm"}
    with Store.open(f"sqlite:///{home / 'state.db'}") as store:
        backup(store, home / "copy.db")
        export(store, home / "out.jsonl")
    with create_run_file(home, program_source="session 1") as run, run.begin() as tx:
        assert run.run_id is not None
        assert run.path is not None
        tx.programs.bindings.bind(run.run_id, "large", "x" * 200_000)
        home_of_run = run.path.parent
    with open_run_file(home_of_run / "state.db") as run:
        lent = subagent(run, str(run.run_id), None, isolation="file")
        assert lent.path.is_relative_to(home_of_run)
    agents_file("project", home).close()
    open_instance(home / "instances", "one").close()
    with SessionLogWriter(home / "logs", "-app", strict=True) as log:
        log.feed(text("x"))
    found = modes(home)
    assert any(name.endswith(".jsonl") and name.startswith("logs/") for name in found)
    assert any("/attachments/" in name for name in found)
    assert found == {name: "0o700" if (home / name).is_dir() else "0o600" for name in found}


@pytest.mark.usefixtures("no_umask")
def test_a_new_file_is_whole_where_links_are_and_where_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str) -> list[object]:
        Store.open(f"sqlite:///{tmp_path / name}").close()
        with closing(sqlite3.connect(tmp_path / name)) as raw:
            return [*raw.iterdump(), *raw.execute("PRAGMA integrity_check")]

    (tmp_path / "empty.db").touch()
    (tmp_path / "left.db-journal").touch()  # by a file that was deleted: SQLite decides what becomes of it
    found = [made("whole.db"), made("empty.db"), made("left.db")]
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError))
    assert found == [made("unlinked.db")] * 3


@pytest.mark.usefixtures("no_umask")
def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch(0o664)
    Store.open(f"sqlite:///{path}").close()
    (tmp_path / "projects").mkdir(mode=0o755)
    with SessionLogWriter(tmp_path, "-app", strict=True) as log:
        log.feed(text("x"))
    found = modes(tmp_path)
    assert (found["state.db"], found["projects"], found["projects/-app"]) == ("0o664", "0o755", "0o700")
