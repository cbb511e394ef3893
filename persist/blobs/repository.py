"""`tx.blobs`: putting, reading, listing and deleting blobs."""

import asyncio
from collections.abc import AsyncIterable, Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Table, delete, exists, or_, select, true

from persist.blobs.bodies import (
    ADD_PIECE,
    PUT,
    REWRITE,
    REWRITE_PIECE,
    SIZE_OF_PIECES,
    STAGE,
    BlobReader,
    outside_of,
    remove_body_afterwards,
    row_of,
)
from persist.blobs.content import INLINE, PIECE, Content, Source, checked_digest, content_of, gathered, kept_open
from persist.blobs.models import blobs, pieces
from persist.blobs.schemas import Blob
from persist.blobs.sharing import SharedBlobStore
from persist.db.operations.bounded_deletion import Keyset
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import AsyncRun, F, Repository, TransactionPerVerb, calls_verbs, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_count, check_flag, optional_count
from persist.db.values.json import utf8_size
from persist.db.values.pages import Page
from persist.errors import Conflict, PayloadTooLarge

List = list
OCTETS = "application/octet-stream"
_MEDIA_TYPE = 255
_STAGED = 8
"""How many pieces one transaction stores."""
_B = blobs.c
BLOB = Values(Blob, blobs)
_NEWEST = Keyset("blobs", BLOB, (_B.put_at, _B.sha256), where=[_B.complete.is_(true())])
_this = param("digest")

_is_this = (_B.sha256 == _this, _B.complete.is_(true()))
_GET = Statement(select(*BLOB.columns).where(*_is_this))
_LOCK = Statement(select(_B.outside).where(_B.sha256 == _this).with_for_update())


def is_named(tables: Sequence[Table]) -> ColumnElement[bool]:
    """Whether a row of any of the tables names the blob: those that have a foreign key to blobs, but for its pieces."""
    links = [key.parent for table in naming(tables) for key in table.foreign_keys if key.column is _B.sha256]
    return or_(*(exists().where(link == _B.sha256) for link in links))


def naming(tables: Sequence[Table]) -> list[Table]:
    """The tables, among these, whose rows may name a blob."""
    return [table for table in tables if table is not pieces and any(key.column is _B.sha256 for key in table.foreign_keys)]


@cache
def _named(tables: tuple[Table, ...]) -> Statement:
    return Statement(select(_B.sha256).where(_B.sha256 == _this, is_named(tables)))


@cache
def _deleting(tables: tuple[Table, ...]) -> Statement:
    """The pieces go with the row, by their foreign key."""
    return Statement(delete(blobs).where(*_is_this, ~is_named(tables)))


Staged = tuple[bool, SharedBlobStore | None]
"""Whether a body is complete, and the store that it belongs in."""


@dataclass(frozen=True, slots=True)
class Step:
    """The first step of a put, before its last transaction: in a separate transaction or in none."""

    do: "Callable[[Any], Any]"
    transaction: bool = True


def next_step(steps: Generator[Step, Any, None], result: Any) -> Step | None:
    """The step that follows the one with this result; None if that was the last one."""
    try:
        return steps.send(result)
    except StopIteration:
        return None


def keep_outside(store: SharedBlobStore, content: Content, *, anew: bool = False) -> None:
    """Write a body that is not there yet, or has another size than it has to have; `anew`: in any case."""
    if anew or not store.has(content.sha256, content.size):
        store.put(content.sha256, content.pieces())


def staging(content: Content, media_type: str) -> Generator[Step, Any, None]:
    """The steps that store a large body in short transactions, each of which a driver runs; the put that follows completes it.

    So other writers wait for no more than some pieces, and what a put leaves that dies half-way is seen by nobody.
    """
    if content.size <= _STAGED * PIECE:
        return
    complete, store = yield Step(lambda own: own._stage(content, media_type, 0, ()))
    if complete:
        return
    if store is not None:
        yield Step(lambda _: keep_outside(store, content), transaction=False)
        return
    pieces, position = content.pieces(), 0
    while some := list(islice(pieces, _STAGED)):
        yield Step(partial(_stage, content, media_type, position, some))
        position += len(some)


def _stage(content: Content, media_type: str, position: int, some: Sequence[bytes], own: "Blobs") -> Staged:
    return own._stage(content, media_type, position, some)


async def _made_ready(run: AsyncRun | None, source: Any, media_type: str = OCTETS, **more: Any) -> tuple[Any, dict[str, Any]]:
    """Read an asynchronous source: a large body in short transactions of `run`, unless inside one. The put's arguments."""
    if isinstance(source, AsyncIterable):
        source = await gathered(source)
    if run is not None:
        source = await asyncio.to_thread(kept_open, source)
        steps, result = staging(source, media_type), None
        while (step := await asyncio.to_thread(next_step, steps, result)) is not None:
            if step.transaction:
                result = await run(lambda unit, do=step.do: do(Blobs(unit)), True)  # type: ignore[misc]  # a bound default
            else:
                result = await asyncio.to_thread(step.do, None)
    return (source, media_type), more


class Blobs(Repository[F]):
    """`tx.blobs`. A blob is found by the SHA-256 of its bytes; the same bytes are stored once."""

    @calls_verbs(ready=_made_ready)
    def put(self, source: Source, media_type: str = OCTETS, *, repair: bool = False) -> Blob:
        """Store bytes, a file, or an iterable of bytes, in constant memory. Of equal bytes the first media type stays.

        `source`: bytes, a path, a binary file from its place on, or an iterable; with AsyncStore also an asynchronous one.
        Outside of a transaction it is read to its end before one begins, and a large body is stored in several short ones.
        A body that is there is written anew if it is damaged, as far as its size or its few bytes tell; `repair`: in any case.
        """
        with content_of(source) as content:
            if isinstance(self._work, TransactionPerVerb):
                steps, result = staging(content, media_type), None
                while (step := next_step(steps, result)) is not None:
                    result = step.do(self)
            return self._put(content, media_type, check_flag("repair", repair))

    @writes
    def _put(self, content: Content, media_type: str, repair: bool) -> Blob:
        work = self._work
        store: SharedBlobStore | None = work.runtime.blob_store
        body = content.read_all() if content.size <= INLINE and store is None else None
        with work.batch(last=body is not None) as batch:
            found = batch.returned(PUT, **self._row(content, media_type, body))
        assert found.result is not None, "an existing row is merged into and returned"
        *known, outside, stored = found.result
        if outside:  # the row is locked: nobody deletes the body at this moment
            keep_outside(outside_of(work.runtime, content.sha256), content, anew=repair)
        elif content.size <= INLINE:
            if stored != (whole := content.read_all()):
                work.go_on()
                work.run(REWRITE, digest=content.sha256, content=whole)
        else:
            found_size = work.row(SIZE_OF_PIECES, digest=content.sha256)
            if repair or found_size is None or found_size[0] != content.size:
                for position, piece in enumerate(content.pieces()):
                    if not work.run(ADD_PIECE, sha256=content.sha256, position=position, body=piece):
                        work.run(REWRITE_PIECE, digest=content.sha256, place=position, content=piece)
        return BLOB((content.sha256, *known))

    @writes
    def _stage(self, content: Content, media_type: str, position: int, some: Sequence[bytes]) -> Staged:
        """Store some pieces of a body that is not complete yet, from this position on."""
        work = self._work
        found = work.returned(STAGE, **self._row(content, media_type, None, complete=False))
        assert found is not None, "an existing row is merged into and returned"
        complete, outside = found
        for place, piece in enumerate(some, position):
            work.run(ADD_PIECE, sha256=content.sha256, position=place, body=piece)
        return complete, outside_of(work.runtime, content.sha256) if outside else None

    def _row(self, content: Content, media_type: str, body: bytes | None, *, complete: bool = True) -> dict[str, Any]:
        work = self._work
        label = work.label("media_type", media_type)
        if (size := utf8_size(label)) > _MEDIA_TYPE:
            raise PayloadTooLarge("media_type", size, _MEDIA_TYPE)
        outside = work.runtime.blob_store is not None
        return row_of(content.sha256, label, content.size, work.now(), body, complete=complete, outside=outside)

    @reads
    def get(self, sha256: str) -> Blob:
        """What is known of a blob, without its bytes. Raises NotFound."""
        return found_blob(self._work, checked_digest("sha256", sha256))

    @reads
    def read(self, sha256: str, *, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a blob from `start` up to `end`, exclusive. Raises NotFound, or BlobUnreadable for damaged bytes."""
        return b"".join(self._reader(sha256, start, end, outlives=False))

    @reads
    def open(self, sha256: str, *, start: int = 0, end: int | None = None) -> BlobReader:
        """An iterator over the bytes of `read` in pieces, in constant memory: `for` or `async for`. Raises NotFound."""
        return self._reader(sha256, start, end)

    @reads
    def list(self, *, limit: int = 20, after: str | None = None) -> Page[Blob]:
        """Blobs, the one put last first. Pass a page's `cursor` as `after` for the next page."""
        return _NEWEST.page(self._work, limit, after)

    @writes
    def delete(self, sha256: str) -> bool:
        """Delete a blob; False for an unknown one. Raises Conflict while a row names it."""
        work = self._work
        digest, tables = checked_digest("sha256", sha256), tuple(work.runtime.tables())
        store: SharedBlobStore | None = work.runtime.blob_store
        with work.batch(last=True) as batch:
            locked = batch.row(_LOCK, digest=digest)  # what others are about to name is named by then, or put anew
            named = batch.row(_named(tables), digest=digest)
            deleted = batch.run(_deleting(tables), digest=digest)
        if named.result is not None:
            raise Conflict(f"The blob {digest} is named by a part of a message or another row, and stays as long as it is.")
        if deleted.result and locked.result is not None and locked.result[0] and store is not None:
            remove_body_afterwards(work, store, digest)
        return deleted.result == 1

    def _reader(self, sha256: str, start: int, end: int | None, *, outlives: bool = True) -> BlobReader:
        first, last = check_count("start", start), optional_count("end", end)
        blob = found_blob(self._work, checked_digest("sha256", sha256))
        upto = blob.size if last is None else min(last, blob.size)
        return BlobReader(self._work, blob, min(first, upto), upto, outlives=outlives)


def found_blob(work: UnitOfWork, digest: str) -> Blob:
    """The blob. Raises NotFound."""
    return BLOB.found(work.row(_GET, digest=digest), "blob", digest)
