"""`Store.open(adopt=True)`, backups and dry runs."""

import asyncio
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from persist import AsyncStore, InvalidValue, Store, UnmanagedDatabase, current
from persist.maintenance import AdoptReport, adopt
from persist.schema.metadata import HEAD
from persist.testing import FrozenClock
from tests.adopt.files import Foreign
from tests.adopt.shapes import INSTANCE, SYSTEMS

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


def test_without_a_backup(foreign: Make) -> None:
    file = foreign(INSTANCE)
    assert file.adopt(backup=False).backup_path is None
    assert [path.name for path in file.path.parent.iterdir()] == ["foreign.db"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_dry_run_tells_the_same_and_changes_nothing(foreign: Make, system: str) -> None:
    file = foreign(SYSTEMS[system])
    before = file.path.read_bytes()
    told = adopt(file.url, dry_run=True)
    assert file.path.read_bytes() == before
    assert [path.name for path in file.path.parent.iterdir()] == ["foreign.db"]
    assert file.adopt(backup=False) == told
