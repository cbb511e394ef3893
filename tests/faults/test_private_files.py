"""What persist makes is its owner's alone, whatever the umask; what is there already keeps its mode."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from persist import Store
from persist.maintenance import backup, export
from persist.programs import subagent
from persist.sessionlog import SessionLogWriter
from persist.single_owner_files import agents_file, create_run_file, open_instance, open_run_file
from tests.sessionlog.scenes import text


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """Of everything below, by its relative path."""
    return {str(path.relative_to(folder)): oct(stat.S_IMODE(path.lstat().st_mode)) for path in sorted(folder.rglob("*"))}


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


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch(0o664)
    Store.open(f"sqlite:///{path}").close()
    (tmp_path / "projects").mkdir(mode=0o755)
    with SessionLogWriter(tmp_path, "-app", strict=True) as log:
        log.feed(text("x"))
    found = modes(tmp_path)
    assert (found["state.db"], found["projects"], found["projects/-app"]) == ("0o664", "0o755", "0o700")
