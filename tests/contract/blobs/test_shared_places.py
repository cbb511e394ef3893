"""Several databases with one place for bodies: each is registered there, and none removes what another may name."""

import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from time import monotonic

import psycopg
import pytest
from click.testing import CliRunner

from persist import Store
from persist.blobs import BlobStore, FolderBlobStore, FsspecBlobStore, sharing
from persist.blobs.sharing import LOOK_SECONDS
from persist.cli import main
from persist.errors import NotFound
from persist.maintenance import backup, copy, copy_resumably, doctor, erase, export, import_, maintain, prune
from persist.testing import FrozenClock
from tests.contract.blobs.test_blobs import digest
from tests.contract.chat.scenes import create
from tests.contract.chat.test_files import append, everything, file


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    folder = FolderBlobStore(tmp_path / "bodies")
    return folder if request.param == "folder" else FsspecBlobStore(f"memory://bodies-{secrets.token_hex(8)}")


@pytest.fixture
def opened(clock: FrozenClock, place: BlobStore) -> Iterator[Callable[..., Store]]:
    with ExitStack() as stack:
        options = {"clock": clock, "blobs": place, "sleep": lambda seconds: None}
        yield lambda url, **more: stack.enter_context(Store.open(url, **{**options, **more}))


def later(clock: FrozenClock) -> None:
    """A moment at which all bodies, which have the time of the machine, are orphans if they have no row."""
    clock.advance(delta=timedelta(days=36_500))


def codes(store: Store) -> set[str]:
    return {finding.code for finding in doctor(store) if finding.code.startswith("blob")}


def test_no_database_removes_bodies_of_another_in_the_same_place(
    new_database: Callable[[], str], opened: Callable[..., Store], clock: FrozenClock
) -> None:
    first, second = opened(new_database()), opened(new_database())
    session = create(first)
    append(first, session, file())
    mine, theirs = create(second), second.blobs.put(b"theirs").sha256
    append(second, mine, file())
    gone = first.blobs.put(b"gone").sha256
    later(clock)
    assert first.blobs.delete(gone)
    prune(first, "blobs", older_than=timedelta(days=1))
    kept = erase(first, session_id=session).kept
    assert kept == {"blobs: bodies stay where they are, since another database may name them": 1}
    assert all(step.error is None for step in maintain(first).steps)
    assert second.blobs.read(theirs) == b"theirs"
    assert all(read == [file()] for read in everything(second, mine))
    assert codes(first) == codes(second) == {"blobs_kept"}
    # the other one is gone, or was moved: what is left of it may go
    (other,) = [one for one in first.runtime.blob_store.databases() if not one.own]
    first.runtime.blob_store.forget(other.name)
    with pytest.raises(NotFound):
        first.runtime.blob_store.forget(other.name)
    assert codes(first) == {"blobs_orphaned"}
    (said,) = [step.tables for step in maintain(first, dry_run=True).steps if step.name == "collect blobs"]
    assert said == {"bodies without a row": 3}
    assert second.runtime.blob_store.store.exists(theirs)
    (did,) = [step.tables for step in maintain(first).steps if step.name == "collect blobs"]
    assert did == said
    assert codes(first) == set()
    assert not second.runtime.blob_store.store.exists(theirs)


@pytest.mark.parametrize("how", ["copied", "imported", "backup", "file"])
def test_a_copy_of_a_database_is_another_one(
    sqlite_url: str, tmp_path: Path, opened: Callable[..., Store], clock: FrozenClock, how: str
) -> None:
    source, path = opened(sqlite_url), tmp_path / "beside.db"
    session = create(source)
    append(source, session, file())
    if how == "copied":
        with Store.open(path) as target:
            copy(source, target)
    elif how == "imported":
        with Store.open(path) as target:
            export(source, tmp_path / "all.jsonl")
            import_(target, tmp_path / "all.jsonl")
    elif how == "backup":
        backup(source, path)
    else:
        assert source.path is not None
        source.close()
        shutil.copy(source.path, path)
        source = opened(sqlite_url)
    beside = opened(path)
    beside.blobs.put(b"of the copy alone")
    new = source.blobs.put(b"put after the copy").sha256
    assert len(source.runtime.blob_store.databases()) == 2
    later(clock)
    beside.chat.sessions.delete(session)
    prune(beside, "blobs", older_than=timedelta(days=1))
    maintain(beside)
    assert all(read == [file()] for read in everything(source, session))
    assert source.blobs.read(new) == b"put after the copy"


def test_a_place_in_use_without_a_register_waits_a_day(
    database_url: str, opened: Callable[..., Store], place: BlobStore, clock: FrozenClock
) -> None:
    old = digest(b"of a database that has not registered yet")
    place.put(old, [b"of a database that has not registered yet"])
    later(clock)
    store = opened(database_url)
    mine = store.blobs.put(b"mine").sha256
    maintain(store)
    assert store.blobs.delete(mine)
    assert place.exists(old)
    assert place.exists(mine)
    assert codes(store) == {"blobs_kept"}
    clock.advance(delta=timedelta(days=2))
    maintain(store)
    assert not place.exists(old)
    assert not place.exists(mine)


def test_a_database_that_is_opened_again_is_the_same(
    database_url: str, opened: Callable[..., Store], tmp_path: Path, place: BlobStore
) -> None:
    for _ in range(2):
        with opened(database_url) as store:
            name = store.blobs.put(b"a").sha256
            assert store.blobs.delete(name)
            assert not place.exists(name)
            (only,) = store.runtime.blob_store.databases()
            assert only.own
    with opened(database_url, read_only=True) as reading:
        assert [one.own for one in reading.runtime.blob_store.databases()] == [True]
    with opened("sqlite:///:memory:") as memory:  # nobody opens it again: it does not register, and removes nothing
        name = memory.blobs.put(b"b").sha256
        assert memory.blobs.delete(name)
        assert place.exists(name)


class Looks:
    """Counts looks at the register of a place, and calls what is to happen at one of them."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.count, self.seconds, self.now = 0, seconds, monotonic() + 2 * LOOK_SECONDS
        self.meanwhile: dict[int, Callable[[], object]] = {}
        place = store.runtime.blob_store.store
        registered = place.registered

        def looked() -> Mapping[str, str]:
            self.count += 1
            self.meanwhile.pop(self.count, lambda: None)()
            return registered()  # type: ignore[no-any-return]  # a store of bodies

        def time() -> float:
            self.now += self.seconds
            return self.now

        monkeypatch.setattr(place, "registered", looked)
        monkeypatch.setattr(sharing, "monotonic", time)


def test_a_sweep_looks_once_at_the_register_and_again_when_its_look_is_old(
    new_database: Callable[[], str], opened: Callable[..., Store], clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = opened(new_database()), new_database()
    for number in range(30):
        store.blobs.delete(store.blobs.put(bytes([number])).sha256)
    for number in range(30):
        store.runtime.blob_store.store.put(digest(bytes([number])), [bytes([number])])
    later(clock)
    looks = Looks(store, monkeypatch, 0.0)
    (did,) = [step.tables for step in maintain(store).steps if step.name == "collect blobs"]
    assert did == {"bodies without a row": 30}
    assert looks.count == 2  # whether there is anything to do, and before the first one goes
    for number in range(30):
        store.runtime.blob_store.store.put(digest(bytes([number])), [bytes([number])])
    looks = Looks(store, monkeypatch, LOOK_SECONDS / 10)
    looks.meanwhile[3] = lambda: opened(other).blobs.put(b"of the other one")
    maintain(store)
    assert 1 < len(list(store.runtime.blob_store.store.stored())) < 31
    assert codes(store) == {"blobs_kept"}


def test_a_database_that_comes_second_waits_until_the_first_one_knows_it(
    new_database: Callable[[], str], opened: Callable[..., Store]
) -> None:
    waited: list[float] = []
    opened(new_database()).blobs.put(b"a")
    second = new_database()
    for _ in range(2):
        with opened(second, sleep=waited.append) as store:
            store.blobs.put(b"a")
    assert waited == [2 * LOOK_SECONDS]


def test_each_database_may_have_a_place_of_its_own_in_one_folder(
    new_database: Callable[[], str], opened: Callable[..., Store], clock: FrozenClock, tmp_path: Path
) -> None:
    place = (tmp_path / "all" / "{database}").as_posix()
    urls = [new_database() for _ in range(2)]
    digests = []
    for url in urls:
        with opened(url, blobs=place) as store:
            digests.append(store.blobs.put(url.encode()).sha256)
    first, second = (opened(url, blobs=place) for url in urls)
    assert [first.blobs.read(digests[0]), second.blobs.read(digests[1])] == [url.encode() for url in urls]
    assert [len(store.runtime.blob_store.databases()) for store in (first, second)] == [1, 1]
    later(clock)
    assert first.blobs.delete(digests[0])
    assert maintain(second).failed is False
    assert len(list((tmp_path / "all").glob("*/[0-9a-f][0-9a-f]/*/*"))) == 1
    with opened(new_database(), blobs=place) as target:
        copy(second, target)
        assert target.blobs.read(digests[1]) == urls[1].encode()
    assert len([*(tmp_path / "all").iterdir()]) == 3
    with opened("sqlite:///:memory:", blobs=place) as memory:
        assert memory.blobs.read(memory.blobs.put(b"m").sha256) == b"m"


def test_a_database_of_a_server_is_known_by_its_server(postgres_url: str, opened: Callable[..., Store]) -> None:
    """A dump that is restored on two servers has the same numbers on both."""
    store = opened(postgres_url)
    store.blobs.put(b"a")
    with psycopg.connect(postgres_url) as raw:
        ((server,),) = raw.execute("SELECT system_identifier FROM pg_control_system()").fetchall()
    (only,) = store.runtime.blob_store.databases()
    assert only.database.startswith(f"{server}.")


def test_databases_in_memory_remove_nothing(opened: Callable[..., Store], place: BlobStore) -> None:
    first, second = opened("sqlite:///:memory:"), opened("sqlite:///:memory:")
    name = first.blobs.put(b"a").sha256
    second.blobs.put(b"a")
    assert first.blobs.delete(name)
    assert second.blobs.read(name) == b"a"
    assert "blobs_kept" in codes(second)


def test_a_copy_says_how_many_bodies_stay_outside(sqlite_url: str, tmp_path: Path, opened: Callable[..., Store]) -> None:
    source = opened(sqlite_url)
    source.blobs.put(b"a")
    with Store.open(tmp_path / "without.db") as without:
        assert copy(source, without).bodies_outside == 1
    with Store.open(tmp_path / "with.db", blobs=tmp_path / "others") as beside:
        assert copy(source, beside).bodies_outside == 0
    assert copy_resumably(source, f"sqlite:///{(tmp_path / 'resumed.db').as_posix()}").bodies_outside == 1
    source.close()
    said = CliRunner().invoke(main, ["copy", sqlite_url, f"sqlite:///{(tmp_path / 'said.db').as_posix()}"])
    assert "what was copied was read back and is the same" in said.output
    assert "Outside of both databases: 1 bodies of blobs." in said.output
