"""Files of instances: made and upgraded when they are opened, refused where they must be, gone when they are purged."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.errors import Conflict, InvalidValue, NotFound, NotPermitted, PersistError, ReadOnlyTransaction, StoreInUse
from persist.schema import migrate
from persist.schema.metadata import HEAD
from persist.settings import Settings
from persist.single_owner_files import FILE
from persist.telemetry import open_instance, open_workspace, purge_instance
from tests.cases import each
from tests.contract.telemetry.scenes import do


def ask(path: Path, *statements: str) -> list[Any]:
    """Run them on a connection of their own; the rows of the last one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        return [raw.execute(statement).fetchall() for statement in statements][-1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file of `box` is."""
    return tmp_path / "box" / FILE


def test_a_new_instance_has_a_file_that_is_current(tmp_path: Path, path: Path) -> None:
    with open_instance(tmp_path, "box") as store:
        assert (store.path, store.instance_id, store.workspace_id) == (path, "box", None)
    assert ask(path, "PRAGMA journal_mode") == [("wal",)]
    assert ask(path, "PRAGMA page_size") == [(1024,)]
    facts = ask(path, "SELECT key, value FROM _meta ORDER BY key")
    assert facts == [("instance_id", "box"), ("schema_version", HEAD)]


def test_opening_it_again_migrates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_instance(tmp_path, "box") as store:
        do(store, "status", "record", "busy")
    monkeypatch.setattr(migrate, "upgrade_with", None)
    monkeypatch.setattr("persist.schema.opening._create", None)
    with open_instance(tmp_path, "box") as store:
        assert store.instance_id == "box"
        assert do(store, "status", "current").new_status == "busy"
    with Store.open(f"sqlite:///{tmp_path / 'box' / FILE}") as plain:
        assert plain.instance_id == "box"


def test_an_asynchronous_store_knows_whose_file_it_is(tmp_path: Path) -> None:
    with open_instance(tmp_path, "box") as store:
        assert AsyncStore(store).instance_id == "box"
        assert AsyncStore(store).workspace_id is None


@contextmanager
def nobody(folder: Path) -> Iterator[None]:
    """Somebody who may read that folder and not write to it."""
    folder.chmod(0o500)
    if root := os.geteuid() == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o700)


def test_a_folder_that_cannot_be_written_to_gives_no_store(tmp_path: Path) -> None:
    with nobody(tmp_path), pytest.raises(NotPermitted):
        open_instance(tmp_path, "box")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_folder_should_be_gives_no_store(tmp_path: Path) -> None:
    (tmp_path / "box").write_text("in the way")
    with pytest.raises(NotPermitted):
        open_instance(tmp_path, "box")
    (tmp_path / "other" / FILE).mkdir(parents=True)
    with pytest.raises(NotPermitted):
        open_instance(tmp_path, "other")
    with pytest.raises(NotFound):
        open_workspace(tmp_path / "nowhere" / "queue.db", "ws")


def test_a_file_of_another_instance_is_refused(tmp_path: Path, path: Path) -> None:
    open_instance(tmp_path, "box").close()
    shutil.copytree(path.parent, tmp_path / "copy")
    for read_only in (False, True):
        with pytest.raises(Conflict):
            open_instance(tmp_path, "copy", read_only=read_only)
    open_workspace(path, "ws").close()
    with open_instance(tmp_path, "box") as store:
        assert (store.instance_id, store.workspace_id) == ("box", "ws")


def test_readers_make_nothing_and_write_nothing(tmp_path: Path, path: Path) -> None:
    with pytest.raises(NotFound):
        open_instance(tmp_path, "box", read_only=True)
    assert list(tmp_path.iterdir()) == []
    path.parent.mkdir()
    Store.open(f"sqlite:///{path}").close()
    with open_instance(tmp_path, "box", read_only=True) as reader, open_instance(tmp_path, "box") as writer:
        assert reader.instance_id == "box"
        do(writer, "status", "record", "busy")
        assert do(reader, "status", "current").instance_id == "box"
        with pytest.raises(ReadOnlyTransaction):
            do(reader, "status", "record", "idle")


@each("name", ["", ".", "..", "a/b", "../up", "a\\b", "\x00"])
def test_a_name_is_that_of_one_folder(tmp_path: Path, name: str) -> None:
    for call in (open_instance, purge_instance):
        with pytest.raises(InvalidValue):
            call(tmp_path, name)
    with pytest.raises(InvalidValue):
        open_workspace(tmp_path / "queue.db", "")


def test_waiting_for_the_lock_ends_after_four_waits(tmp_path: Path, path: Path) -> None:
    waits: list[float] = []
    settings = Settings(busy_timeout_ms=1)
    open_instance(tmp_path, "box").close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:

        def let_go(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 4:
                other.execute("ROLLBACK")

        with open_instance(tmp_path, "box", settings=settings, sleep=let_go) as store:
            other.execute("BEGIN IMMEDIATE")
            with store.begin() as tx:
                tx.telemetry.status.record("busy")
            assert [round(1000 * wait) for wait in waits] == [100, 200, 400, 800]
            waits[:] = [0.0] * 10
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(PersistError, match="lock"), store.begin():
                raise AssertionError("entered")
            assert len(waits) == 14
            other.execute("ROLLBACK")


def test_a_purge_waits_for_nobody_and_removes_the_file_alone(tmp_path: Path, path: Path) -> None:
    store = open_instance(tmp_path, "box")
    do(store, "status", "record", "busy")
    (path.parent / "notes.txt").write_text("mine")
    with pytest.raises(StoreInUse):
        purge_instance(tmp_path, "box")
    assert do(store, "status", "current").new_status == "busy"
    store.close()
    for beside in ("-wal", "-shm"):
        path.with_name(FILE + beside).touch()
    purge_instance(tmp_path, "box")
    assert [left.name for left in path.parent.iterdir()] == ["notes.txt"]
    purge_instance(tmp_path, "box")
    with open_instance(tmp_path, "box") as again:
        assert do(again, "status", "current") is None


def test_a_purge_is_refused_while_another_writes(tmp_path: Path, path: Path) -> None:
    open_instance(tmp_path, "box").close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreInUse):
            purge_instance(tmp_path, "box")
        other.execute("ROLLBACK")
    purge_instance(tmp_path, "box")
    assert not path.exists()


def test_a_file_that_cannot_be_opened_can_be_purged(tmp_path: Path, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 100)
    with suppress(PersistError):
        open_instance(tmp_path, "box").close()
        raise AssertionError("opened")
    purge_instance(tmp_path, "box")
    assert list(path.parent.iterdir()) == []
