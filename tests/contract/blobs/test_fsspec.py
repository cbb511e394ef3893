"""Bodies wherever fsspec reaches, tried with its file systems in memory and on the disk."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from persist import Settings
from persist.blobs import BlobStore, FsspecBlobStore
from persist.blobs.content import PIECE
from persist.errors import BlobUnreadable, InvalidValue, PersistError
from tests.contract.blobs.test_body_stores import UNKNOWN, body, digest
from tests.contract.chat.scenes import create
from tests.contract.chat.test_files import append, everything, file
from tests.contract.conftest import Raw


@pytest.fixture(params=["memory", "local"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://bodies-{secrets.token_hex(8)}" if request.param == "memory" else f"local://{tmp_path.as_posix()}/bodies"


@pytest.mark.parametrize("size", [0, 5, 2 * PIECE + 3])
def test_it_keeps_what_is_put(url: str, size: int) -> None:
    store, content = FsspecBlobStore(url), body(size)
    name = digest(content)
    assert isinstance(store, BlobStore)
    assert list(store.stored()) == []
    assert not store.exists(name)
    for _ in range(2):
        store.put(name, [content[: size // 2], content[size // 2 :]])
    assert store.exists(name)
    assert b"".join(store.open(name)) == content
    assert b"".join(store.open(name, 3, size - 1)) == content[3 : max(size - 1, 3)]
    ((stored, written),) = store.stored()
    assert stored == name
    assert written.tzinfo is not None
    store.delete(name)
    store.delete(name)
    assert not store.exists(name)


def test_a_put_that_is_interrupted_leaves_nothing(url: str) -> None:
    def failing() -> Iterator[bytes]:
        yield b"a"
        raise BlobUnreadable(UNKNOWN, "the source is gone")

    store = FsspecBlobStore(url)
    with pytest.raises(BlobUnreadable):
        store.put(UNKNOWN, failing())
    assert not store.exists(UNKNOWN)


def test_names_and_missing_bodies(url: str) -> None:
    store = FsspecBlobStore(url)
    for bad in ("", "../a", "a" * 63, None):
        with pytest.raises(InvalidValue):
            store.put(bad, [b"a"])  # type: ignore[arg-type]  # refused
    with pytest.raises(BlobUnreadable, match=UNKNOWN):
        list(store.open(UNKNOWN))


def test_a_store_over_it(open_store: Callable[..., Any], raw: Raw, url: str) -> None:
    with open_store(settings=Settings(blobs=url)) as store:
        session = create(store)
        append(store, session, file(), file(2 * PIECE))
        assert all(read == [file(), file(2 * PIECE)] for read in everything(store, session))
        assert raw.rows("SELECT count(*) FROM blobs WHERE body IS NOT NULL") == [(0,)]
        blob = store.blobs.put(body(PIECE + 1))
        assert b"".join(store.blobs.open(blob.sha256, start=5)) == body(PIECE + 1)[5:]


def test_an_unknown_protocol_and_what_cannot_be_reached_are_said_without_secrets() -> None:
    with pytest.raises(InvalidValue, match="blobs") as caught:
        FsspecBlobStore("unheard-of://user:secret@host/a?key=secret")
    assert "secret" not in str(caught.value)
    with pytest.raises(PersistError) as failed:
        FsspecBlobStore("local:///proc/nowhere").put(UNKNOWN, [b"a"])
    assert "/proc/nowhere" in str(failed.value)
