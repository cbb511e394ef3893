"""Bytes are stored once under their digest, read back whole or in part, and stay as long as something names them."""

import io
from array import array
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from persist.blobs.content import INLINE, PIECE
from persist.errors import BlobUnreadable, Conflict, InvalidValue, NotFound, PayloadTooLarge
from persist.testing import FrozenClock
from tests.contract.conftest import Raw, pages_of
from tests.contract.faces import every_way

SIZES = [0, 1, INLINE, INLINE + 1, PIECE, PIECE + 1, 3 * PIECE - 1]


def body(size: int) -> bytes:
    """Bytes of which no two pieces are alike."""
    numbers = array("I", range(size // 4 + 1))
    return numbers.tobytes()[:size]


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def in_parts(content: bytes, size: int = 70_001) -> Iterator[bytes]:
    yield from (content[at : at + size] for at in range(0, len(content), size))


class Pipe(io.RawIOBase):
    """A file that cannot go back, and returns less than it is asked for."""

    def __init__(self, content: bytes) -> None:
        self._inner = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._inner.read(min(len(buffer), 1000))
        buffer[: len(found)] = found
        return len(found)


@pytest.mark.parametrize("size", SIZES)
def test_what_was_put_is_read_back(store: Any, size: int) -> None:
    content = body(size)
    with store.begin() as tx:
        blob = tx.blobs.put(content, "image/png")
        assert (blob.sha256, blob.size, blob.media_type) == (digest(content), size, "image/png")
        assert b"".join(tx.blobs.open(blob.sha256)) == content  # before the commit, too
    assert store.blobs.get(blob.sha256) == blob
    assert store.blobs.read(blob.sha256) == content
    assert store.blobs.read(blob.sha256) == content
    pieces = list(store.blobs.open(blob.sha256))
    assert b"".join(pieces) == content
    assert max(map(len, pieces), default=0) <= PIECE


@pytest.mark.parametrize("size", [0, 5, 2 * PIECE + 7])
def test_every_kind_of_source_gives_the_same_blob(store: Any, tmp_path: Path, size: int) -> None:
    content = body(size)
    path = tmp_path / "file"
    path.write_bytes(content)
    sources: list[Any] = [
        bytearray(content),
        memoryview(content),
        path,
        in_parts(content),
        list(in_parts(content)),
        Pipe(content),
    ]
    blobs = [store.blobs.put(source) for source in sources]
    with open(path, "rb") as file:
        blobs.append(store.blobs.put(file))
    assert {blob.sha256 for blob in blobs} == {digest(content)}
    assert store.blobs.read(digest(content)) == content


def test_a_file_is_read_from_its_place_on(store: Any) -> None:
    file = io.BytesIO(b"head and body")
    file.read(9)
    assert store.blobs.read(store.blobs.put(file).sha256) == b"body"


@every_way
def test_an_asynchronous_iterable(store: Any, face: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for chunk in in_parts(body(2 * PIECE)):
            yield chunk

    async def spoilt() -> AsyncIterator[Any]:
        yield b"a"
        yield "no bytes"

    async def failing() -> AsyncIterator[bytes]:
        yield b"a"
        raise RuntimeError("the client went away")

    if face == "sync":
        with pytest.raises(InvalidValue, match="AsyncStore"):
            store.blobs.put(chunks())
        return
    assert store.blobs.read(store.blobs.put(chunks()).sha256) == body(2 * PIECE)
    assert store.blobs.put(source=chunks(), media_type="a/b").size == 2 * PIECE
    with pytest.raises(InvalidValue, match="expected bytes, got str"):
        store.blobs.put(spoilt())
    with pytest.raises(RuntimeError, match="went away"):
        store.blobs.put(failing())
    assert len(store.blobs.list().items) == 1


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, None), (0, 0), (5, 5), (7, 3), (1, PIECE), (PIECE - 1, PIECE + 1), (PIECE, None), (0, 9 * PIECE), (9 * PIECE, None)],
)
def test_a_range(store: Any, start: int, end: int | None) -> None:
    content = body(2 * PIECE + 3)
    blob = store.blobs.put(content)
    assert store.blobs.read(blob.sha256, start=start, end=end) == content[start:end]
    assert b"".join(store.blobs.open(blob.sha256, start=start, end=end)) == content[start:end]
    small = store.blobs.put(b"small")
    assert store.blobs.read(small.sha256, start=start, end=end) == b"small"[start:end]


def test_equal_bytes_are_stored_once(store: Any, raw: Raw, clock: FrozenClock) -> None:
    content = body(PIECE + 1)
    first = store.blobs.put(content, "image/png")
    clock.advance(seconds=5)
    second = store.blobs.put(in_parts(content), "image/jpeg")
    assert second == first.model_copy(update={"put_at": second.put_at})
    assert second.put_at > first.put_at
    assert (raw.count("blobs"), raw.count("blob_pieces")) == (1, 2)


def test_a_put_that_fails_leaves_nothing(store: Any, raw: Raw) -> None:
    def failing() -> Iterator[bytes]:
        yield body(2 * PIECE)
        raise RuntimeError("the client went away")

    for source, error in [(failing(), RuntimeError), ([b"a", "b"], InvalidValue), (["a"], InvalidValue), ([1], InvalidValue)]:
        with pytest.raises(error):
            store.blobs.put(source)

    def undone() -> None:
        with store.begin() as tx:
            tx.blobs.put(body(2 * PIECE))
            tx.blobs.get("a" * 64)

    with pytest.raises(NotFound):
        undone()
    assert (raw.count("blobs"), raw.count("blob_pieces")) == (0, 0)


def test_a_file_that_changes_while_it_is_stored_is_refused(store: Any, raw: Raw) -> None:
    class Changing(io.BytesIO):
        def seek(self, *place: int) -> int:
            self.getbuffer()[:1] = b"!"
            return super().seek(*place)

    for size in (10, 2 * PIECE):
        with pytest.raises(Conflict, match="changed"):
            store.blobs.put(Changing(body(size)))
    assert raw.count("blobs") == 0


@pytest.mark.parametrize("source", ["text", None, 5, {"a": b"b"}, io.StringIO("text"), object()])
def test_no_bytes_are_refused(store: Any, source: Any) -> None:
    with pytest.raises(InvalidValue, match="source"):
        store.blobs.put(source)


def test_bad_arguments_are_refused(store: Any, tmp_path: Path) -> None:
    for bad in ("", "a" * 63, "A" * 64, "g" * 64, "../" + "a" * 61, None, 5):
        for verb in (store.blobs.get, store.blobs.read, store.blobs.open, store.blobs.delete):
            with pytest.raises(InvalidValue, match="sha256"):
                verb(bad)
    with pytest.raises(PayloadTooLarge):
        store.blobs.put(b"b", "a" * 256)
    with pytest.raises(NotFound):
        store.blobs.put(tmp_path / "missing")
    for verb in (store.blobs.get, store.blobs.read, store.blobs.open):
        with pytest.raises(NotFound, match="blob"):
            verb("a" * 64)


def test_deleting(store: Any, raw: Raw) -> None:
    blob = store.blobs.put(body(PIECE + 1))
    assert store.blobs.delete(blob.sha256)
    assert not store.blobs.delete(blob.sha256)
    assert (raw.count("blobs"), raw.count("blob_pieces")) == (0, 0)
    with pytest.raises(NotFound):
        store.blobs.get(blob.sha256)


def test_lists_page_by_page(store: Any, clock: FrozenClock) -> None:
    put = []
    for number in range(5):
        put.append(store.blobs.put(bytes([number])).sha256)
        clock.advance(seconds=1)
    put.append(store.blobs.put(b"\x00").sha256)  # again, so that it is the newest
    assert [blob.sha256 for page in pages_of(store.blobs.list, limit=2) for blob in page] == put[:0:-1]


@pytest.mark.parametrize("size", [10, INLINE + 1, 2 * PIECE])
def test_bytes_that_were_damaged_are_not_returned(store: Any, raw: Raw, size: int) -> None:
    blob = store.blobs.put(body(size))
    table = "blobs" if size <= INLINE else "blob_pieces"
    raw.rows(f"UPDATE {table} SET body = ?", b"!" * min(size, PIECE))
    with pytest.raises(BlobUnreadable, match=blob.sha256):
        store.blobs.read(blob.sha256)
    with pytest.raises(BlobUnreadable, match="another digest"):
        list(store.blobs.open(blob.sha256))
    if size > INLINE:
        raw.rows("DELETE FROM blob_pieces WHERE position = 0")
        with pytest.raises(BlobUnreadable, match="missing"):
            store.blobs.read(blob.sha256)
    assert store.blobs.get(blob.sha256) == blob
