"""`maintenance.backup`: a copy that is the store, made while others write, or nothing at all."""

import os
import resource
import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path

import pytest

from persist import Store
from persist.errors import Conflict, InvalidValue, NotFound, PersistError, StoreCorrupt, StoreInUse, TransactionOpen
from persist.maintenance import backup, doctor
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.maintenance.filled import filled, opened
from tests.maintenance.pair_writer import SESSIONS
from tests.maintenance.writing import make_sessions, writing
from tests.schema.filling import transcript
from tests.schema.places import Place


def test_a_copy_is_the_store(sqlite_url: str, clock: FrozenClock, tmp_path: Path) -> None:
    place, target = filled(sqlite_url, clock), tmp_path / "copy.db"
    with opened(place, clock, read_only=True) as store:
        report = backup(store, target)
        before = transcript(store)
    assert report.path == target
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert report.bytes == target.stat().st_size == report.pages * 4096
    copy = Place(f"sqlite:///{target}")
    assert copy.catalog() == place.catalog()
    assert copy.rows() == place.rows()
    with opened(copy, clock) as store:
        assert transcript(store) == before
        assert doctor(store, full=True) == []


def test_what_is_only_in_the_log_or_in_memory_is_copied(sqlite_url: str, tmp_path: Path) -> None:
    for url in (sqlite_url, "sqlite:///:memory:"):
        folder = tmp_path / url[-3:]
        folder.mkdir()
        with Store.open(url, settings=Settings(wal_autocheckpoint=0)) as store:
            digest = store.chat.prompts.put("only in the log")
            backup(store, folder / "copy.db")
        assert [path.name for path in folder.iterdir()] == ["copy.db"]
        with Store.open(f"sqlite:///{folder / 'copy.db'}", read_only=True) as copy:
            assert copy.chat.prompts.get(digest) == "only in the log"


def test_writers_go_on_and_every_transaction_is_in_the_copy_whole_or_not_at_all(sqlite_url: str, tmp_path: Path) -> None:
    with Store.open(sqlite_url) as store:
        make_sessions(store)
        with store.begin() as tx:
            for _ in range(40):  # so that the copy takes many steps
                tx.chat.prompts.put(os.urandom(200_000).hex())
        seen: list[tuple[int, int]] = []
        with writing(sqlite_url) as said:
            for number in range(3):
                backup(store, tmp_path / f"{number}.db", progress=lambda done, total: seen.append((done, total)))
    assert said["errors"] == 0
    counts = []
    for number in range(3):
        with Store.open(f"sqlite:///{tmp_path / f'{number}.db'}", read_only=True) as copy:
            left, right = ([message["id"] for message in copy.chat.messages.list(session)] for session in SESSIONS)
            assert [finding for finding in doctor(copy, full=True) if finding.severity == "error"] == []
        assert len(left) == len(right)
        counts.append(len(left))
    assert counts == sorted(counts)
    assert 0 < counts[-1] <= said["done"]
    # it never began anew: of each copy the pages only grow, and the last step has them all
    starts = [index for index, (done, _) in enumerate(seen) if index == 0 or done < seen[index - 1][0]]
    assert len(starts) == 3
    assert len(seen) > 15
    assert seen[-1][0] == seen[-1][1]


def test_what_is_there_is_only_overwritten_when_asked_for(sqlite_url: str, tmp_path: Path) -> None:
    """A log beside the target counts as there, and is never read into the copy."""
    target, log = tmp_path / "copy.db", tmp_path / "copy.db-wal"
    with Store.open(sqlite_url) as store:
        for path in (target, log):
            path.write_bytes(b"precious")
            with pytest.raises(Conflict, match=path.name):
                backup(store, target)
            assert path.read_bytes() == b"precious"
            backup(store, target, overwrite=True)
            assert not log.exists()
            with Store.open(f"sqlite:///{target}", read_only=True) as copy:
                assert doctor(copy) == []
            target.unlink()


def test_targets_that_cannot_be(sqlite_url: str, clock: FrozenClock, tmp_path: Path) -> None:
    """One that is open, the database itself, one in no folder, and a folder; and no backup within a transaction."""
    target = f"sqlite:///{tmp_path / 'copy.db'}"
    with Store.open(sqlite_url, clock=clock) as store, Store.open(target, clock=clock) as other:
        other.chat.prompts.put("precious")
        with pytest.raises(StoreInUse):
            backup(store, tmp_path / "copy.db", overwrite=True)
        assert doctor(other) == []
        assert store.path is not None
        for overwrite in (False, True):
            with pytest.raises(InvalidValue, match="the database itself"):
                backup(store, store.path, overwrite=overwrite)
        with pytest.raises(NotFound):
            backup(store, tmp_path / "none" / "copy.db")
        for wrong in (tmp_path, ""):
            with pytest.raises(InvalidValue):
                backup(store, wrong)
        with store.begin(), pytest.raises(TransactionOpen):
            backup(store, tmp_path / "new.db")
        assert doctor(store) == []


def test_an_interrupt_leaves_nothing_behind(sqlite_url: str, clock: FrozenClock, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    folder.mkdir()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with Store.open(sqlite_url, clock=clock) as store:
        with pytest.raises(KeyboardInterrupt):
            backup(store, folder / "copy.db", progress=interrupt)
        assert list(folder.iterdir()) == []
        with store.begin() as tx:  # the snapshot is not held any longer
            tx.chat.prompts.put("after")
        assert backup(store, folder / "copy.db").pages > 0


def test_a_disk_that_is_full_is_said_and_leaves_nothing_behind(
    sqlite_url: str, clock: FrozenClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on the size of files stands for the disk."""
    folder = tmp_path / "copies"
    folder.mkdir()
    with Store.open(sqlite_url, clock=clock) as store:
        store.chat.prompts.put("x" * 3_000_000)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python would leave a module's bytecode cut off
        _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        try:
            with pytest.raises(PersistError):
                backup(store, folder / "copy.db")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(folder.iterdir()) == []


def test_a_damaged_file_is_not_backed_up_as_if_it_were_sound(sqlite_url: str, clock: FrozenClock, tmp_path: Path) -> None:
    place = filled(sqlite_url, clock)
    with closing(sqlite3.connect(place.path)) as raw:
        (root,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages'").fetchone()
    content = bytearray(place.path.read_bytes())
    content[(root - 1) * 4096 : root * 4096] = os.urandom(4096)
    place.path.write_bytes(content)
    with opened(place, clock, read_only=True) as store, pytest.raises(StoreCorrupt):
        backup(store, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
