"""Reading a blob piece by piece, in a loop of either kind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import sha256
from typing import TypeVar

from persist.blobs.bodies import PIECE_AT, WHERE, check_digest, outside_of, ranges, stored_bytes
from persist.blobs.schemas import Blob
from persist.db.transactions.snapshots import in_snapshot
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.errors import BlobUnreadable

T = TypeVar("T")


class BlobReader:
    """Iterates over the bytes of a blob, or a range of them, in pieces of at most a mebibyte: `for` or `async for`.

    One that a store made reads each piece in a snapshot of its own, so that none stays open while the caller handles a piece.
    One of a transaction is used inside of it. Raises BlobUnreadable where the bytes are missing, or at the end of a whole body
    that does not have its digest.
    """

    def __init__(self, work: UnitOfWork, blob: Blob, start: int, end: int, *, outlives: bool = True) -> None:
        """`outlives`: the reader is used after the verb that made it."""
        self.blob, self.start, self.end = blob, start, end
        self._runtime = work.runtime
        self._work = None if outlives and work.is_alone else work

    def __repr__(self) -> str:
        return f"BlobReader({self.blob.sha256!r}, {self.start}, {self.end})"

    def __iter__(self) -> Iterator[bytes]:
        """The pieces, in order."""
        digest = sha256() if (self.start, self.end) == (0, self.blob.size) else None
        for piece in self._pieces():
            if digest is not None:
                digest.update(piece)
            yield piece
        if digest is not None:
            check_digest(self.blob.sha256, digest.hexdigest())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces, in order, each read on another thread."""
        found = iter(self)
        while (piece := await asyncio.to_thread(next, found, None)) is not None:
            yield piece

    def _pieces(self) -> Iterator[bytes]:
        key = self.blob.sha256
        row = self._read(lambda work: work.row(WHERE, digest=key))
        if row is None:
            raise BlobUnreadable(key, "it was deleted")
        outside, body = row
        if outside:
            yield from outside_of(self._runtime, key).open(key, self.start, self.end)
            return
        if body is not None:
            if part := stored_bytes(key, body)[self.start : self.end]:
                yield part
            return
        for position, begin, end in ranges(self.start, self.end):
            row = self._read(lambda work, at=position: work.row(PIECE_AT, digest=key, position=at))  # type: ignore[misc]  # a bound default
            piece = b"" if row is None else stored_bytes(key, row[0])
            if len(piece) < end:
                raise BlobUnreadable(key, f"piece {position} of its body is missing")
            yield piece[begin:end]

    def _read(self, read: Callable[[UnitOfWork], T]) -> T:
        def framed(work: UnitOfWork) -> T:
            with Verb(work, "Blobs.open", writes=False):
                return read(work)

        return in_snapshot(self._runtime, framed, holds_store=True) if self._work is None else framed(self._work)
