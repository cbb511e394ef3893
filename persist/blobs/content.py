"""The bytes to put: with their size and digest known, and readable piece by piece as often as needed."""

import asyncio
import tempfile
import weakref
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import IO, Any

from persist.db.files.paths import check_path, files
from persist.errors import Conflict, InvalidValue

INLINE = 2**14
"""The largest body, in bytes, that stands in the row of its blob."""
PIECE = 2**20
"""The size of a piece in bytes. No larger part of a body is in memory at a time."""

Source = bytes | bytearray | memoryview | PathLike[str] | IO[bytes] | Iterable[bytes]
"""Bytes, a path, a binary file from its place on, or an iterable of bytes; with AsyncStore an asynchronous iterable, too."""

_BYTES = (bytes, bytearray, memoryview)


class Content:
    """Bytes in a file that can be read again, with their digest."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._start = file, file.tell()
        self.sha256, self.size = "", 0
        digest = sha256()
        for piece in self._read():
            digest.update(piece)
            self.size += len(piece)
        self.sha256 = digest.hexdigest()

    def pieces(self) -> Iterator[bytes]:
        """The bytes in pieces of one size, the last one may be smaller. Raises Conflict if a file was changed since it was first read."""
        digest, left = sha256(), self.size
        self._file.seek(self._start)
        while left:
            piece = self._filled(min(PIECE, left))
            if not piece:
                break
            digest.update(piece)
            left -= len(piece)
            yield piece
        if left or digest.hexdigest() != self.sha256:
            raise Conflict("The file was changed while it was being stored; nothing was written.")

    def whole(self) -> bytes:
        """All of the bytes."""
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
        """What was added."""
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
    if isinstance(source, Content):
        yield source
    elif isinstance(source, _BYTES):
        yield Content(BytesIO(source))
    elif isinstance(source, PathLike):
        path = check_path("source", source)
        with files(path), open(path, "rb") as file:
            yield Content(file)
    elif callable(getattr(source, "read", None)):
        given: Any = source
        if given.seekable():
            yield Content(given)
        else:
            with _spooled(iter(lambda: checked_bytes(given.read(PIECE)), b"")) as content:
                yield content
    elif isinstance(source, Iterable) and not isinstance(source, str | Mapping):
        with _spooled(source) as content:
            yield content
    else:
        advice = "; an asynchronous iterable needs AsyncStore" if isinstance(source, AsyncIterable) else ""
        expected = "bytes, a Path, a binary file or an iterable of bytes"
        raise InvalidValue("source", f"expected {expected}, got {type(source).__name__}{advice}.")


@contextmanager
def _spooled(chunks: Iterable[Any]) -> Iterator[Content]:
    spool = Spool()
    with spool.file:
        for chunk in chunks:
            spool.add(chunk)
        yield spool.content()


async def made_ready(source: Any, *rest: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a put, with an asynchronous iterable read to its end before the transaction begins."""
    if not isinstance(source, AsyncIterable):
        return (source, *rest), named
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
    return (content, *rest), named
