"""The bytes to put: with their size and digest known, and readable piece by piece as often as needed."""

import asyncio
import tempfile
import weakref
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Table

from persist.blobs.models import blobs, pieces
from persist.db.files import check_path, files
from persist.errors import Conflict, InvalidValue

# An import takes the bytes themselves and names of these alone, or a file could name somebody else's by their digest.


class HeldBodies:
    """The blobs whose bytes the lines of a file held so far."""

    def __init__(self, tables: Iterable[Table]) -> None:
        """`tables`: those whose rows may name a blob, among others."""
        self._links = {
            table: key.parent.name
            for table in tables
            for key in table.foreign_keys
            if table is not pieces and key.column is blobs.c.sha256
        }
        self._held: set[str | None] = set()
        self._growing: dict[str | None, Any] = {}
        """What was hashed of bodies in pieces, by the digests that they are to have."""

    def wrong_with(self, table: Table, row: Mapping[str, Any]) -> str | None:
        """What is wrong with this row, in the order of the file; None if nothing is."""
        digest = row.get("sha256")
        if table is blobs and row.get("complete", True):
            if row.get("body") is None:
                self._growing[digest] = sha256()
            elif sha256(row["body"]).hexdigest() != digest:
                return _other_bytes(digest)
            else:
                self._held.add(digest)
        elif table is pieces and digest in self._growing:
            self._growing[digest].update(row.get("body") or b"")
        elif table in self._links and not self._holds(named := row.get(self._links[table])):
            return f"the bytes of the blob {named} are not in the file."
        return None

    def wrong_at_end(self) -> str | None:
        """What is wrong with a body in pieces, once all lines were read."""
        return next((_other_bytes(digest) for digest in [*self._growing] if not self._holds(digest)), None)

    def _holds(self, digest: str | None) -> bool:
        if digest in self._growing and self._growing[digest].hexdigest() == digest:
            self._held.add(digest)
            del self._growing[digest]
        return digest in self._held


def _other_bytes(digest: str | None) -> str:
    return f"the bytes of the blob {digest} are missing or have another digest."


ADVICE = "put the same bytes again with repair=True, or restore a backup"
"""What to do about a damaged body."""
INLINE = 2**14
"""The largest body, in bytes, that stands in the row of its blob."""
PIECE = 2**20
"""The size of a piece in bytes. No larger part of a body is in memory at a time."""

Source = bytes | bytearray | memoryview | PathLike[str] | IO[bytes] | Iterable[bytes] | AsyncIterable[bytes]
"""Bytes, a path, a binary file from its place on, or an iterable of bytes; with AsyncStore an asynchronous iterable, too."""

_HEX = frozenset("0123456789abcdef")
_BYTES = (bytes, bytearray, memoryview)


class Content:
    """Bytes in a file that can be read again, with their digest."""

    def __init__(self, file: IO[bytes], *, ours: bool = True) -> None:
        """`ours`: nobody else changes the file."""
        self._file, self._start, self._ours = file, file.tell(), ours
        self.sha256, self.size = "", 0
        digest = sha256()
        for piece in self._read():
            digest.update(piece)
            self.size += len(piece)
        self.sha256 = digest.hexdigest()

    def pieces(self) -> Iterator[bytes]:
        """The bytes in pieces of one size, but for the last. Raises Conflict if a file was changed since it was first read."""
        digest, left = sha256(), self.size
        self._file.seek(self._start)
        while left:
            piece = self._filled(min(PIECE, left))
            if not piece:
                break
            if not self._ours:
                digest.update(piece)
            left -= len(piece)
            yield piece
        if left or not (self._ours or digest.hexdigest() == self.sha256):
            raise Conflict("The file was changed while it was being stored; nothing was written.")

    def read_all(self) -> bytes:
        return b"".join(self.pieces())

    def _read(self) -> Iterator[bytes]:
        while piece := self._filled(PIECE):
            yield piece

    def _filled(self, size: int) -> bytes:
        """So many bytes, or fewer at the end: a file may return less than it is asked for."""
        found = checked_bytes(self._file.read(size))
        while len(found) < size and (more := checked_bytes(self._file.read(size - len(found)))):
            found += more
        return found


class Spool:
    """Bytes that come once, kept until they are stored: in memory as long as they are few, then in a temporary file."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=PIECE)  # noqa: SIM115  # closed by whoever made this

    def add(self, *chunks: Any) -> None:
        """Add bytes at the end. Raises InvalidValue for anything else."""
        with files(Path(tempfile.gettempdir())):
            for chunk in chunks:
                self.file.write(checked_bytes(chunk))

    def content(self) -> Content:
        self.file.seek(0)
        return Content(self.file)


def checked_bytes(value: object) -> bytes:
    """The bytes. Raises InvalidValue for anything else, such as text."""
    if not isinstance(value, _BYTES):
        raise InvalidValue("source", f"expected bytes, got {type(value).__name__}.")
    return bytes(value)


@contextmanager
def content_of(source: object) -> Iterator[Content]:
    """The content of a source, as long as the block lasts. What has been made ready before is left open."""
    chunks: Iterable[Any]
    if isinstance(source, Content):
        yield source
        return
    if isinstance(source, _BYTES):
        yield Content(BytesIO(source))
        return
    if isinstance(source, PathLike):
        path = check_path("source", source)
        with files(path), open(path, "rb") as file:
            yield Content(file, ours=False)
        return
    if callable(getattr(source, "read", None)):
        given: Any = source
        if given.seekable():
            yield Content(given, ours=False)
            return
        chunks = iter(lambda: checked_bytes(given.read(PIECE)), b"")
    elif isinstance(source, Iterable) and not isinstance(source, str | Mapping):
        chunks = source
    else:
        advice = "; an asynchronous iterable needs AsyncStore" if isinstance(source, AsyncIterable) else ""
        expected = "bytes, a Path, a binary file or an iterable of bytes"
        raise InvalidValue("source", f"expected {expected}, got {type(source).__name__}{advice}.")
    spool = Spool()
    with spool.file:
        for chunk in chunks:
            spool.add(chunk)
        yield spool.content()


def kept_open(source: object) -> Content:
    """The content of a source, which is closed when the content is no longer referenced."""
    if isinstance(source, Content):
        return source
    stack = ExitStack()
    content = stack.enter_context(content_of(source))
    weakref.finalize(content, stack.close)
    return content


async def gathered(source: AsyncIterable[Any]) -> Content:
    """The content of an asynchronous iterable, read to its end."""
    spool = Spool()
    try:
        waiting: list[bytes] = []
        size = 0
        async for chunk in source:
            waiting.append(checked_bytes(chunk))
            size += len(waiting[-1])
            if size >= PIECE:
                await asyncio.to_thread(spool.add, *waiting)
                waiting, size = [], 0
        spool.add(*waiting)
        content = await asyncio.to_thread(spool.content)
    except BaseException:
        spool.file.close()
        raise
    weakref.finalize(content, spool.file.close)
    return content


def checked_digest(path: str, value: object) -> str:
    """The SHA-256 of a blob: 64 hex digits. Raises InvalidValue for any other text, which may be hostile."""
    if not isinstance(value, str) or len(value) != 64 or not _HEX.issuperset(value):
        raise InvalidValue(path, "expected a SHA-256 as 64 hex digits in lower case.")
    return value if type(value) is str else str.__str__(value)
