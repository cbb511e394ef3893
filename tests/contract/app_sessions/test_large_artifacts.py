"""Large artifacts are blobs: stored once, not pruned while a version names them, and gone along with what names them."""

from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from persist import Settings, Store
from persist.blobs.content import PIECE
from persist.errors import BlobUnreadable, Conflict
from persist.events import rebuild
from persist.framework_state.app_sessions.schemas import ArtifactKey
from persist.maintenance import copy, doctor, export, import_, maintain, prune
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.blobs.body_stores import MemoryBlobStore
from tests.contract.conftest import Raw

CAP = 65_536
FILE = ArtifactKey("app", "u", "s", "f")
OF_USER = ArtifactKey("app", "u", None, "g")
LARGE = bytes(range(256)) * 257
LARGER = b"larger" + bytes(PIECE * 2)
DAY = timedelta(days=1)


def digest(body: bytes) -> str:
    return sha256(body).hexdigest()


def save(store: Any, key: ArtifactKey, *bodies: bytes | bytearray | memoryview, **given: Any) -> None:
    with store.begin() as tx:
        for body in bodies:
            tx.app_sessions.artifacts.save(key, "{}", data=body, **given)


def loaded(store: Any, key: ArtifactKey = FILE) -> list[bytes]:
    files = store.app_sessions.artifacts
    return [files.load(key, one.version).data for one in files.versions(key)]


def counts(raw: Raw) -> tuple[int, int]:
    return raw.count("blobs"), raw.count("app_artifact_blobs")


@pytest.mark.parametrize("outside", [False, True], ids=["inside", "outside"])
def test_large_bytes_are_a_blob_and_read_as_they_were_given(open_store: Callable[..., Any], raw: Raw, outside: bool) -> None:
    store = open_store(blobs=MemoryBlobStore() if outside else None)
    bodies = [LARGE, LARGE[:CAP], LARGE[: CAP + 1], LARGER, b"", LARGE]
    save(store, FILE, *bodies, mime_type="image/png")
    save(store, OF_USER, bytearray(LARGE), memoryview(LARGER))
    assert loaded(store) == bodies
    assert loaded(store, OF_USER) == [LARGE, LARGER]
    assert counts(raw) == (3, 6)
    assert raw.rows("SELECT version FROM app_artifact_versions WHERE data IS NOT NULL ORDER BY version") == [(1,), (4,)]
    assert store.blobs.get(digest(LARGE)).media_type == "image/png"
    assert store.app_sessions.artifacts.save(FILE, "{}", data=LARGE) == 6  # a verb alone
    assert store.app_sessions.artifacts.load(FILE).data == LARGE


@each("mime_type", [None, "a\x00/b", "a b", "", "x" * 300, "caf\u00e9/x", "\ud83d"])
def test_a_type_that_no_header_takes(store: Any, mime_type: str | None) -> None:
    save(store, FILE, LARGE, mime_type=mime_type)
    assert store.app_sessions.artifacts.load(FILE).version.mime_type == mime_type
    assert store.blobs.get(digest(LARGE)).media_type == "application/octet-stream"


def test_the_setting_says_what_is_large(open_store: Callable[..., Any], raw: Raw) -> None:
    store = open_store(settings=Settings(inline_file_bytes=3))
    save(store, FILE, b"123", b"1234")
    assert loaded(store) == [b"123", b"1234"]
    assert counts(raw) == (1, 1)


def test_a_transaction_that_fails_leaves_nothing(store: Any, raw: Raw) -> None:
    def fail(tx: Any) -> None:
        tx.app_sessions.artifacts.save(FILE, "{}", data=LARGE)
        assert tx.app_sessions.artifacts.load(FILE).data == LARGE
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.transact(fail)
    assert counts(raw) == (0, 0)


def test_what_is_named_is_not_pruned(database_url: str, raw: Raw, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        save(store, FILE, LARGE)
        save(store, OF_USER, LARGE, LARGER)
        with pytest.raises(Conflict, match="named"):
            store.blobs.delete(digest(LARGE))
        clock.advance(seconds=9 * 86_400)
        assert prune(store, "blobs", older_than=DAY).total == 0
        maintain(store)
        assert (loaded(store), loaded(store, OF_USER)) == ([LARGE], [LARGE, LARGER])
        assert store.app_sessions.artifacts.delete(OF_USER)
        assert counts(raw) == (2, 1)
        maintain(store)
        assert counts(raw) == (1, 1)
        assert loaded(store) == [LARGE]
        report = prune(store, "app_artifacts", older_than=DAY)  # nobody has the session
        assert report.tables == {"app_artifacts": 1, "app_artifact_blobs": 1, "app_artifact_versions": 1}
        assert prune(store, "blobs", older_than=DAY).tables["blobs"] == 1
        assert counts(raw) == (0, 0)


def test_a_user_is_erased_with_the_bytes(database_url: str, raw: Raw, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        save(store, FILE, LARGE)
        save(store, OF_USER, LARGER)
        save(store, ArtifactKey("app", "other", None, "f"), LARGE)
        store.app_sessions.sessions.erase_user("app", "u")
        assert counts(raw) == (2, 1)
        clock.advance(seconds=2 * 86_400)
        maintain(store)
        assert counts(raw) == (1, 1)
        assert loaded(store, ArtifactKey("app", "other", None, "f")) == [LARGE]


def test_a_release_that_does_not_know_blobs_deletes_artifacts(store: Any, raw: Raw) -> None:
    save(store, FILE, LARGE)
    if raw.is_sqlite:
        raw.rows("PRAGMA foreign_keys = ON")
    raw.rows("DELETE FROM app_artifact_versions")
    raw.rows("DELETE FROM app_artifacts")
    assert counts(raw) == (1, 0)


def test_bytes_that_are_gone_or_damaged(database_url: str, raw: Raw) -> None:
    with Store.open(database_url) as store:
        save(store, FILE, LARGE, b"small")
        raw.rows("DELETE FROM blob_pieces")
        raw.rows("UPDATE blobs SET body = NULL")
        with pytest.raises(BlobUnreadable, match="put the same bytes again"):
            store.app_sessions.artifacts.load(FILE, 0)
        with pytest.raises(BlobUnreadable, match="missing; put the same bytes again"):
            store.blobs.read(store.blobs.list().items[0].sha256)
        found = store.app_sessions.artifacts.load(FILE)
        assert found is not None
        assert found.data == b"small"
        assert len(store.app_sessions.artifacts.versions(FILE)) == 2
        assert "blob_damaged" in {one.code for one in doctor(store)}


@pytest.mark.parametrize("outside", [False, True], ids=["inside", "outside"])
def test_exports_and_copies_hold_the_bytes(
    database_url: str, new_database: Callable[[], str], tmp_path: Path, outside: bool
) -> None:
    path = tmp_path / "session.jsonl"
    with Store.open(database_url, blobs=MemoryBlobStore() if outside else None) as store:
        session = store.app_sessions.sessions.create("app", "u", "s").session.id
        save(store, FILE, LARGE, b"small", LARGER)
        save(store, OF_USER, LARGE[::-1])
        tables = export(store, path, session_id=session).tables
        assert (tables["blobs"], tables["app_artifact_blobs"], tables["app_artifact_versions"]) == (2, 2, 3)
        with Store.open(new_database()) as other:
            import_(other, path)
            assert loaded(other) == [LARGE, b"small", LARGER]
        with Store.open(new_database(), blobs=MemoryBlobStore() if outside else None) as other:
            copy(store, other)
            assert loaded(other) == [LARGE, b"small", LARGER]
            assert loaded(other, OF_USER) == [LARGE[::-1]]
            assert [one for one in doctor(other) if one.severity == "error"] == []


def test_a_rebuilt_database_has_the_bytes(database_url: str, new_database: Callable[[], str]) -> None:
    with Store.open(database_url, events=True) as store:
        save(store, FILE, LARGE, b"small", LARGER)
        save(store, OF_USER, LARGE)
        store.app_sessions.artifacts.delete(OF_USER)
        with Store.open(new_database()) as other:
            rebuild(store, other)
            assert loaded(other) == [LARGE, b"small", LARGER]
            assert loaded(other, OF_USER) == []
