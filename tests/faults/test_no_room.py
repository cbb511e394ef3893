"""A disk that is full, in the small: no file may become larger than a few bytes. The large is in tests/torture."""

import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from persist import Store
from persist.errors import PersistError, StoreBusy, StoreFull
from persist.maintenance import backup, export, import_
from persist.sessionlog import SessionLogWriter, read_session_log
from persist.settings import Settings
from persist.single_owner_files import create_run_file
from tests.sessionlog.scenes import text


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


def test_a_backup_into_a_full_disk(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise StoreFull(str(tmp_path / "copy.db"))

    monkeypatch.setattr("persist.db.dialects.sqlite.operations._copy", full)
    with Store.open(sqlite_url) as store, pytest.raises(StoreFull):
        backup(store, tmp_path / "copy.db")
    assert [path.name for path in tmp_path.iterdir()] == ["state.db"]


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
