"""Bodies outside of the database: in a folder, or wherever a host keeps them; their rows stay, and so do their rules."""

import os
import stat
from collections.abc import Callable, Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from persist import Settings, Store
from persist.blobs import BlobStore, FolderBlobStore
from persist.blobs.content import INLINE, PIECE
from persist.errors import BlobUnreadable, InvalidValue, NotFound, NotPermitted
from persist.maintenance import maintain, prune
from persist.testing import FrozenClock
from tests.contract.blobs.body_stores import MemoryBlobStore
from tests.contract.chat.scenes import create
from tests.contract.chat.test_files import CAP, append, everything, file
from tests.contract.conftest import Raw

SIZES = [0, 5, INLINE + 1, 2 * PIECE + 3]
UNKNOWN = "a" * 64


def body(size: int) -> bytes:
    return bytes(number % 251 for number in range(size))


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> FolderBlobStore:
    return FolderBlobStore(tmp_path / "bodies")


@pytest.fixture
def memory() -> MemoryBlobStore:
    return MemoryBlobStore()


def files_in(folder: FolderBlobStore) -> list[Path]:
    return sorted(path for path in folder.path.rglob("*") if path.is_file() and path.parent.name != "databases")


@pytest.mark.parametrize("size", SIZES)
def test_a_folder_keeps_what_is_put(folder: FolderBlobStore, size: int) -> None:
    content = body(size)
    name = digest(content)
    assert isinstance(folder, BlobStore)
    assert not folder.exists(name)
    folder.put(name, [content[: size // 2], content[size // 2 :]])
    folder.put(name, [content])
    assert folder.exists(name)
    assert b"".join(folder.open(name)) == content
    assert b"".join(folder.open(name, 3, size - 1)) == content[3 : max(size - 1, 3)]
    assert [one for one, _ in folder.stored()] == [name]
    (path,) = files_in(folder)
    assert path.relative_to(folder.path).parts == (name[:2], name[2:4], name)
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    folder.delete(name)
    folder.delete(name)
    assert not folder.exists(name)
    assert files_in(folder) == []


def test_a_put_that_is_interrupted_leaves_no_file(folder: FolderBlobStore) -> None:
    def failing() -> Iterator[bytes]:
        yield b"a"
        raise RuntimeError("the client went away")

    with pytest.raises(RuntimeError):
        folder.put(UNKNOWN, failing())
    assert files_in(folder) == []
    assert not folder.exists(UNKNOWN)


def test_what_a_killed_put_left_is_told_and_deleted(folder: FolderBlobStore) -> None:
    folder.put(UNKNOWN, [b"a"])
    (path,) = files_in(folder)
    path.rename(path.with_name(f"{UNKNOWN}-0123abcd.part"))
    path.with_name("notes.txt").write_text("of somebody else's")
    assert [one for one, _ in folder.stored()] == [UNKNOWN]
    folder.delete(UNKNOWN)
    assert [left.name for left in files_in(folder)] == ["notes.txt"]


@pytest.mark.parametrize("name", ["", "../" * 3 + "etc/passwd", "/etc/passwd", "a" * 63 + "/", "A" * 64, "a" * 64 + "\n", None])
def test_no_name_leaves_the_folder(folder: FolderBlobStore, name: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: folder.put(name, [b"a"]),
        lambda: list(folder.open(name)),
        lambda: folder.exists(name),
        lambda: folder.delete(name),
    ]
    for call in calls:
        with pytest.raises(InvalidValue):
            call()
    assert files_in(folder) == []


def test_a_missing_file_is_named(folder: FolderBlobStore, tmp_path: Path) -> None:
    with pytest.raises(BlobUnreadable, match=f"{UNKNOWN}.*; put the same bytes again"):
        list(folder.open(UNKNOWN))
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(NotPermitted):
        FolderBlobStore(tmp_path / "file").put(UNKNOWN, [b"a"])


@pytest.mark.parametrize("size", SIZES)
def test_the_body_is_in_the_folder_and_the_row_in_the_database(
    open_store: Callable[..., Any], raw: Raw, folder: FolderBlobStore, size: int
) -> None:
    content = body(size)
    with open_store(blobs=folder) as store:
        blob = store.blobs.put([content], "image/png")
        assert store.blobs.put(content) == blob
        assert store.blobs.get(blob.sha256) == blob
        assert store.blobs.read(blob.sha256) == content
        assert store.blobs.read(blob.sha256, start=2, end=4) == content[2:4]
        assert b"".join(store.blobs.open(blob.sha256)) == content
        assert raw.rows("SELECT body FROM blobs") == [(None,)]
        assert raw.count("blob_pieces") == 0
        assert len(files_in(folder)) == 1
        assert store.blobs.delete(blob.sha256)
        assert files_in(folder) == []


def test_the_place_is_a_setting(open_store: Callable[..., Any], tmp_path: Path) -> None:
    for number, place in enumerate([str(tmp_path / "a"), (tmp_path / "b").as_uri()]):
        with open_store(settings=Settings(blobs=place)) as store:
            store.blobs.put(bytes([number]))
    with open_store(blobs=tmp_path / "c", settings=Settings(blobs=str(tmp_path / "d"))) as store:
        store.blobs.put(b"c")
    assert {path.parts[len(tmp_path.parts)] for path in tmp_path.rglob("*") if len(path.name) == 64} == {"a", "b", "c"}
    for bad in (5, object(), b"bytes"):
        with pytest.raises(InvalidValue, match="blobs"):
            open_store(blobs=bad)


def test_files_of_messages_are_outside_too(open_store: Callable[..., Any], raw: Raw, memory: MemoryBlobStore) -> None:
    with open_store(blobs=memory) as store:
        session = create(store)
        given = [file(), file(2 * PIECE), file(CAP)]
        asked = append(store, session, *given)
        assert all(read == given for read in everything(store, session))
        chunks = [{"type": "file", "mediaType": "image/png", "url": file(size)["url"]} for size in (CAP + 1, CAP + 9)]
        with store.record(session) as recorder:
            recorder.feed_many([{"type": "start", "messageId": "m"}, *chunks, {"type": "finish"}])
        assert store.chat.messages.get("m")["parts"] == chunks
        child = store.chat.sessions.fork(session, asked).id
        assert store.chat.messages.list(child)[0]["parts"] == given
        assert (raw.count("blobs"), raw.count("blob_pieces"), len(memory.bodies), memory.puts) == (3, 0, 3, 3)


def test_bodies_that_are_missing_or_damaged_are_named(open_store: Callable[..., Any], folder: FolderBlobStore) -> None:
    with open_store(blobs=folder) as store:
        session = create(store)
        append(store, session, file())
        (path,) = files_in(folder)
        content = path.read_bytes()
        path.write_bytes(content[:-1] + b"!")
        with pytest.raises(BlobUnreadable, match="another digest"):
            store.chat.messages.list(session)
        path.unlink()
        for read in (store.blobs.read, lambda name: list(store.blobs.open(name)), lambda _: store.chat.messages.list(session)):
            with pytest.raises(BlobUnreadable, match=path.name):
                read(path.name)
        assert store.chat.messages.list(session, files="reference")[0]["parts"][0]["url"] == f"persist-blob:{path.name}"
        store.blobs.put(content)  # whoever puts it again repairs it
        assert store.chat.messages.list(session)[0]["parts"] == [file()]


def test_one_database_with_bodies_here_and_there(open_store: Callable[..., Any], memory: MemoryBlobStore) -> None:
    inside, outside = body(2 * PIECE), body(PIECE)
    with open_store() as store:
        store.blobs.put(inside)
    with open_store(blobs=memory) as store:
        store.blobs.put(inside)  # stays where it is
        store.blobs.put(outside)
        assert [store.blobs.read(digest(one)) for one in (inside, outside)] == [inside, outside]
        assert list(memory.bodies) == [digest(outside)]
    with open_store() as store:
        assert store.blobs.read(digest(inside)) == inside
        for read in (store.blobs.read, lambda name: list(store.blobs.open(name)), lambda _: store.blobs.put(outside)):
            with pytest.raises(BlobUnreadable, match="outside of the database"):
                read(digest(outside))
        assert len(store.blobs.list().items) == 2


def test_a_body_that_cannot_be_written_leaves_no_row(open_store: Callable[..., Any], raw: Raw) -> None:
    class Full(MemoryBlobStore):
        def put(self, sha256: str, pieces: Any) -> None:
            raise NotPermitted("the bucket is read-only")

    with open_store(blobs=Full()) as store:
        session = create(store)
        with pytest.raises(NotPermitted):
            store.blobs.put(b"a")
        with pytest.raises(NotPermitted):
            append(store, session, file())
        with store.record(session) as recorder:
            with pytest.raises(NotPermitted):
                recorder.feed_many([{"type": "start"}, {"type": "file", "mediaType": "image/png", "url": file()["url"]}])
            recorder.feed({"type": "finish"})
        assert store.chat.messages.list(session) == []
    assert (raw.count("blobs"), raw.count("chat_parts")) == (0, 0)


def test_what_nothing_names_is_pruned_with_its_body(database_url: str, clock: FrozenClock, memory: MemoryBlobStore) -> None:
    with Store.open(database_url, clock=clock, blobs=memory) as store:
        session = create(store)
        append(store, session, file())
        store.blobs.put(b"by the host")
        clock.advance(delta=timedelta(days=2))
        store.blobs.put(b"young")
        for dry_run in (True, False):
            assert prune(store, "blobs", older_than=timedelta(days=1), dry_run=dry_run).tables == {"blobs": 1}
            assert len(memory.bodies) == (3 if dry_run else 2)
        store.chat.sessions.delete(session)
        assert prune(store, "blobs", older_than=timedelta(days=1)).tables == {"blobs": 1}
        assert list(memory.bodies) == [digest(b"young")]


def test_maintain_collects_files_that_no_message_names(database_url: str, clock: FrozenClock, memory: MemoryBlobStore) -> None:
    def collected(store: Store, **options: Any) -> dict[str, int]:
        return next(step.tables for step in maintain(store, **options).steps if step.name == "collect blobs")

    with Store.open(database_url, clock=clock, blobs=memory) as store:
        first, second = create(store), create(store)
        append(store, first, file())
        append(store, second, file(), file(2 * CAP))
        store.blobs.put(b"by the host")
        clock.advance(delta=timedelta(hours=25))
        store.chat.sessions.delete(second)
        assert collected(store, dry_run=True) == {"blobs": 1}
        assert collected(store) == {"blobs": 1}
        assert collected(store) == {}
        assert len(memory.bodies) == 2
        assert store.chat.messages.list(first)[0]["parts"] == [file()]
        # put again a moment ago: it may be about to be named
        store.chat.sessions.delete(first)
        append(store, create(store), file())
        store.chat.sessions.delete(store.chat.sessions.list().items[0].id)
        assert collected(store) == {}


def test_bodies_without_a_row_are_collected(database_url: str, clock: FrozenClock, memory: MemoryBlobStore) -> None:
    with Store.open(database_url, clock=clock, blobs=memory) as store:
        kept = store.blobs.put(b"kept")

        def undone() -> None:
            with store.begin() as tx:
                tx.blobs.put(b"rolled back")
                tx.blobs.get(UNKNOWN)

        with pytest.raises(NotFound):
            undone()
        assert len(memory.bodies) == 2
        maintain(store)
        assert len(memory.bodies) == 2  # young: its transaction may still be open
        memory.written -= timedelta(days=2)
        maintain(store, dry_run=True)
        assert len(memory.bodies) == 2
        maintain(store)
        assert list(memory.bodies) == [kept.sha256]
        assert [blob.sha256 for blob in store.blobs.list().items] == [kept.sha256]
