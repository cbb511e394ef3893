"""Bodies outside of the database go after the commit that deletes their rows; damaged ones are repaired by putting them again."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from persist import Store
from persist.blobs import FolderBlobStore, FsspecBlobStore
from persist.blobs.content import INLINE, PIECE
from persist.errors import BlobUnreadable, NotFound, Unavailable
from persist.maintenance import doctor, erase, maintain, prune
from persist.testing import FrozenClock
from tests.contract.blobs.body_stores import MemoryBlobStore
from tests.contract.blobs.test_body_stores import UNKNOWN, body, digest, files_in
from tests.contract.chat.scenes import create
from tests.contract.chat.test_files import CAP, append, file
from tests.contract.chat.test_files import body as file_body
from tests.contract.conftest import Raw


@pytest.fixture
def memory() -> MemoryBlobStore:
    return MemoryBlobStore()


def test_a_body_goes_after_the_commit_that_deletes_its_row(
    open_store: Callable[..., Any], memory: MemoryBlobStore, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(MemoryBlobStore):
        def delete(self, sha256: str) -> None:
            raise Unavailable("the bucket is away")

    with open_store(blobs=memory) as store:
        kept = store.blobs.put(b"kept").sha256

        def refused_later() -> None:
            with store.begin() as tx:
                assert tx.blobs.delete(kept)
                assert kept in memory.bodies  # a process that is killed here leaves row and body
                tx.blobs.get(UNKNOWN)

        with pytest.raises(NotFound):
            refused_later()
        assert store.blobs.read(kept) == b"kept"
        with store.begin() as tx:
            tx.blobs.delete(kept)
            tx.blobs.put(b"kept")
        assert store.blobs.read(kept) == b"kept"
        assert store.blobs.delete(kept)
        assert (memory.bodies, store.blobs.list().items) == ({}, [])
    away = Away()
    with open_store(blobs=away) as store:
        orphan = store.blobs.put(b"away").sha256
        assert store.blobs.delete(orphan)  # what is left is a body without a row, which `maintain` finds
        assert ([*away.bodies], store.blobs.list().items) == ([orphan], [])
    assert "the bucket is away" in caplog.text


def test_bytes_that_are_put_while_they_are_deleted_have_a_body(database_url: str, memory: MemoryBlobStore) -> None:
    content, rounds = b"put and deleted", 25
    with Store.open(database_url, blobs=memory) as store, Store.open(database_url, blobs=memory) as other:

        def deletes() -> None:
            for _ in range(rounds):
                other.blobs.delete(digest(content))

        deleting = Thread(target=deletes)
        deleting.start()
        for _ in range(rounds):
            store.blobs.put(content)
        deleting.join()
        assert [blob.sha256 for blob in store.blobs.list().items] == [*memory.bodies]


@pytest.mark.parametrize("erased", [False, True], ids=["pruned", "erased"])
def test_bodies_of_pruned_and_erased_files_go_after_the_commit(
    database_url: str, clock: FrozenClock, memory: MemoryBlobStore, erased: bool
) -> None:
    with Store.open(database_url, clock=clock, blobs=memory) as store, Store.open(database_url) as other:
        session = create(store)
        append(store, session, file())
        (name,) = memory.bodies
        if not erased:
            store.chat.sessions.delete(session)
        clock.advance(delta=timedelta(days=2))

        def remove() -> None:
            if erased:
                erase(store, session_id=session)
            else:
                prune(store, "blobs", older_than=timedelta(days=1))

        class Killed(BaseException):
            """Ends what runs, as a killed process does."""

        def dies(sha256: str) -> None:
            assert other.blobs.list().items == []  # the deletion of the row is committed
            raise Killed

        memory.delete, delete = dies, memory.delete  # type: ignore[method-assign]  # as a killed process
        with pytest.raises(Killed):
            remove()
        assert [*memory.bodies] == [name]
        memory.delete, memory.written = delete, clock() - timedelta(days=2)  # type: ignore[method-assign]  # as a killed process
        if erased:
            remove()  # the next call finishes the interrupted one
        else:
            maintain(store)
        assert memory.bodies == {}


@pytest.mark.parametrize("place", ["inside", "folder", "bucket"])
def test_a_damaged_body_is_written_anew_by_whoever_puts_it_again(
    open_store: Callable[..., Any], database_url: str, raw: Raw, tmp_path: Path, place: str
) -> None:
    folder = FolderBlobStore(tmp_path / "bodies")
    bodies = {"inside": None, "folder": folder, "bucket": FsspecBlobStore(f"local://{(tmp_path / 'bodies').as_posix()}")}[place]
    damages: dict[str, Callable[[bytes], bytes]] = {
        "cut off": lambda content: content[:-1],
        "changed": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    }

    def damage(name: str, size: int, change: Callable[[bytes], bytes]) -> None:
        if place != "inside":
            (path,) = [path for path in files_in(folder) if path.name == name]
            path.write_bytes(change(path.read_bytes()))
            return
        table, last = ("blobs", 0) if size <= INLINE else ("blob_pieces", (size - 1) // PIECE)
        where = f"sha256 = '{name}'" + ("" if size <= INLINE else f" AND position = {last}")
        content = bytes(raw.value(f"SELECT body FROM {table} WHERE {where}"))
        literal = f"x'{change(content).hex()}'" if raw.is_sqlite else f"decode('{change(content).hex()}', 'hex')"
        raw.rows(f"UPDATE {table} SET body = {literal} WHERE {where}")

    with open_store(blobs=bodies) as store:
        for size in (9, INLINE + 7, PIECE + 5):
            content = body(size)
            name = store.blobs.put(content).sha256
            for how, change in damages.items():
                damage(name, size, change)
                with pytest.raises(BlobUnreadable, match=name):
                    store.blobs.read(name)
                if size == INLINE + 7 and (place == "inside" or how == "cut off"):
                    with Store.open(database_url, blobs=bodies) as looked:
                        (found,) = [one for one in doctor(looked) if one.code == "blob_damaged"]
                        assert found.subject == f"blob {name}"
                        assert "repair=True" in found.message
                if how == "changed" and (place != "inside" or size > INLINE):
                    store.blobs.put(content, repair=True)
                else:
                    store.blobs.put(content)
                assert store.blobs.read(name) == content


@pytest.mark.parametrize("outside", [False, True])
def test_a_message_with_the_same_file_mends_a_damaged_body(
    open_store: Callable[..., Any], raw: Raw, tmp_path: Path, *, outside: bool
) -> None:
    folder = FolderBlobStore(tmp_path / "bodies")
    zero = "x'00'" if raw.is_sqlite else "decode('00', 'hex')"

    def damage(name: str, how: str) -> None:
        if outside:
            (path,) = [path for path in files_in(folder) if path.name == name]
            path.unlink() if how == "gone" else path.write_bytes(b"0")
        elif how == "gone":
            raw.rows("DELETE FROM blob_pieces WHERE position = 0 AND sha256 = ?", name)
        else:
            raw.rows(f"UPDATE blob_pieces SET body = {zero} WHERE sha256 = ?", name)

    with open_store(blobs=folder if outside else None) as store:
        for size in (CAP + 1, PIECE * 2):
            append(store, create(store), file(size))
            for how in ("cut off", "gone"):
                damage(digest(file_body(size)), how)
                session = create(store)
                append(store, session, file(size))
                assert store.chat.messages.list(session)[0]["parts"] == [file(size)]


def test_a_body_that_another_program_made_text_is_mended(sqlite_store: Any, raw: Raw) -> None:
    for size in (0, 9, INLINE + 7):
        name = sqlite_store.blobs.put(body(size)).sha256
        for table in ("blobs", "blob_pieces"):
            raw.rows(f"UPDATE {table} SET body = 'text' WHERE sha256 = ? AND body IS NOT NULL", name)
        assert sqlite_store.blobs.put(body(size), repair=True).size == size
        assert sqlite_store.blobs.read(name) == body(size)
