"""`tx.blobs`: putting, reading, listing and deleting blobs; their bodies also for recorders and domains that name blobs."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from hashlib import sha256
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Table, delete, exists, func, or_, select, true, update

from persist.blobs.body_stores import BlobStore
from persist.blobs.content import ADVICE, INLINE, PIECE, Content, Source, checked_digest, content_of, gathered, kept_open
from persist.blobs.models import blobs, pieces
from persist.blobs.schemas import Blob
from persist.blobs.sharing import SharedBlobStore
from persist.db.changes.batch import Batch, Pending, StatementRunner
from persist.db.concurrency.observers import AFTERWARDS
from persist.db.expressions.upsert import Rule, insert_missing, merge, upsert
from persist.db.operations.keyset import Keyset
from persist.db.schema.column_types import among_labels
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import AsyncRun, F, Repository, TransactionPerVerb, calls_verbs, reads, writes
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_snapshot, in_transaction
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.db.values.arguments import check_count, check_flag, optional_count
from persist.db.values.escaping import utf8_size
from persist.db.values.pages import Page
from persist.errors import BlobUnreadable, Conflict, PayloadTooLarge

_B, _P = blobs.c, pieces.c
_this = param("digest")

_KNOWN = (_B.media_type, _B.size, _B.created_at, _B.put_at, _B.outside)
# What a put left that died half-way is completed where bodies belong today; a complete body stays where it is.
_PUTTING: dict[str, Rule] = {"put_at": "latest", "complete": "new", "outside": "until_complete", "body": "new_inside"}
PUT = Statement(merge(blobs, "sha256", **_PUTTING).returning(*_KNOWN))
_PUT_NAMED = Statement(merge(blobs, "sha256", named="new", **_PUTTING).returning(_B.outside))
STAGE = Statement(merge(blobs, "sha256", put_at="latest", outside="until_complete").returning(_B.complete, _B.outside))
ADD_PIECE = Statement(upsert(pieces, "sha256", "position", where="blob_pieces.body <> excluded.body"))
"""Adds a piece, or writes a damaged one anew."""
SIZE_OF_PIECES = Statement(select(func.coalesce(func.sum(func.length(_P.body)), 0)).where(_P.sha256 == _this))
REWRITE = Statement(update(blobs).where(_B.sha256 == _this).values(body=param("content")))
WHERE = Statement(select(_B.outside, _B.body).where(_B.sha256 == _this))
_CLAIM = Statement(insert_missing(blobs, "sha256"))
_UNCLAIM = Statement(delete(blobs).where(_B.sha256 == _this))
PIECE_AT = Statement(select(_P.body).where(_P.sha256 == _this, _P.position == param("position")))
_SOME = Statement(select(_B.sha256, _B.outside, _B.body).where(among_labels(_B.sha256, "digests")))
_PIECES = Statement(select(_P.sha256, _P.body).where(among_labels(_P.sha256, "digests")).order_by(_P.sha256, _P.position))


@dataclass(frozen=True, slots=True)
class NewBlob:
    """Bytes in memory, to be stored as a blob that a row of the same transaction names; `store` None: in the database."""

    sha256: str
    media_type: str
    body: bytes
    store: SharedBlobStore | None

    @classmethod
    def of(cls, body: bytes, media_type: str, store: SharedBlobStore | None) -> "NewBlob":
        return cls(sha256(body).hexdigest(), media_type, body, store)


def row_of(digest: str, media_type: str, size: int, now: datetime, body: bytes | None, **more: bool) -> dict[str, Any]:
    """The parameters of PUT for a blob, whose body is given if it is small enough to stand in its row."""
    flags = {"complete": True, "named": False, "outside": False, **more}
    return {"sha256": digest, "media_type": media_type, "size": size, "created_at": now, "put_at": now, **flags, "body": body}


Added = list[tuple[NewBlob, Pending[Row | None]]]
"""Blobs that a batch stores, with where their bodies belong."""


def add_named(batch: Batch, new: Iterable[NewBlob], now: datetime) -> Added:
    """Store blobs in the order of digests, so that writers cannot deadlock. Bodies outside are left to `add_outside`."""
    added: Added = []
    for digest, blob in sorted({blob.sha256: blob for blob in new}.items()):
        size, outside = len(blob.body), blob.store is not None
        body = blob.body if size <= INLINE and not outside else None
        row = row_of(digest, blob.media_type, size, now, body, named=True, outside=outside)
        added.append((blob, batch.returned(_PUT_NAMED, **row)))
        if body is None and not outside:
            places = enumerate(range(0, size, PIECE))
            batch.run_many(
                ADD_PIECE, [{"sha256": digest, "position": place, "body": blob.body[at : at + PIECE]} for place, at in places]
            )
    return added


def add_outside(added: Added) -> None:
    """Write the bodies that belong outside of the database. Locked rows keep other transactions from deleting them."""
    for blob, row in added:
        if (
            blob.store is not None
            and row.result is not None
            and row.result[0]
            and not blob.store.has(blob.sha256, len(blob.body))
        ):
            blob.store.put(blob.sha256, [blob.body])


def remove_body(work: UnitOfWork, store: BlobStore, digest: str) -> bool:
    """Remove a body whose row is gone; False if it has one. Another put of the same bytes waits, and writes them anew."""
    claimed = row_of(digest, "", 0, work.now(), None, complete=False, outside=True)
    if not work.run(_CLAIM, **claimed):  # waits for a transaction that adds the row
        return False
    store.delete(digest)
    work.run(_UNCLAIM, digest=digest)
    return True


def remove_body_afterwards(work: UnitOfWork, store: BlobStore, digest: str) -> None:
    """Remove the body after the commit that deletes its row. If the process dies before, `maintain` finds an orphan."""

    def remove(own: UnitOfWork) -> bool:
        with Verb(own, "Blobs.delete", writes=True):
            return remove_body(own, store, digest)

    if not work.joined:  # else the caller commits, and `maintain` removes it
        work.announcements.append((AFTERWARDS, lambda: in_transaction(work.runtime, remove)))


def outside_of(runtime: Runtime, digest: str) -> SharedBlobStore:
    """The store with the body of a blob that is outside of the database."""
    store: SharedBlobStore | None = runtime.blob_store
    if store is None:
        raise BlobUnreadable(digest, "its body is kept outside of the database; open the store with the same `blobs`")
    return store


def read_bodies(db: StatementRunner, runtime: Runtime, digests: Iterable[str]) -> dict[str, bytes]:
    """The bodies of several blobs. Raises BlobUnreadable for a missing or damaged body."""
    wanted = sorted(set(digests))
    with db.batch() as batch:
        rows = batch.rows(_SOME, digests=wanted)
        more = batch.rows(_PIECES, digests=wanted)
    kept = {digest: (outside, body) for digest, outside, body in rows.result}
    pieces_of: dict[str, list[bytes]] = {}
    for digest, piece in more.result:
        pieces_of.setdefault(digest, []).append(stored_bytes(digest, piece))
    found = {}
    for digest in wanted:
        if digest not in kept:
            raise BlobUnreadable(digest, "there is no such blob")
        outside, body = kept[digest]
        if outside:
            found[digest] = b"".join(outside_of(runtime, digest).open(digest))
        else:
            found[digest] = b"".join(pieces_of.get(digest, ())) if body is None else stored_bytes(digest, body)
        check_digest(digest, sha256(found[digest]).hexdigest())
    return found


def stored_bytes(digest: str, stored: Any) -> bytes:
    """The bytes of a stored body or piece. Raises BlobUnreadable for what another program put there."""
    if not isinstance(stored, bytes | bytearray | memoryview):
        raise BlobUnreadable(digest, f"its stored body is not made of bytes; {ADVICE}")
    return bytes(stored)


def check_digest(digest: str, found: str) -> None:
    """Raise BlobUnreadable unless the bytes that were read have the digest by which they were found."""
    if found != digest:
        raise BlobUnreadable(digest, f"the stored bytes have another digest; {ADVICE}")


def ranges(start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(position, from, to) of the parts of pieces that make up a range of a body."""
    while start < end:
        position, offset = divmod(start, PIECE)
        upto = min(PIECE, offset + end - start)
        yield position, offset, upto
        start += upto - offset


T = TypeVar("T")


class BlobReader:
    """Iterates over the bytes of a blob, or a range of them, in pieces of at most a mebibyte: `for` or `async for`.

    A store's reader reads each piece in a new snapshot, so that no snapshot stays open while the caller handles a piece. A
    transaction's reader is used inside the transaction. Raises BlobUnreadable where the bytes are missing, or at the end of a
    whole body that does not have its digest.
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
                raise BlobUnreadable(key, f"piece {position} of its body is missing; {ADVICE}")
            yield piece[begin:end]

    def _read(self, read: Callable[[UnitOfWork], T]) -> T:
        def framed(work: UnitOfWork) -> T:
            with Verb(work, "Blobs.open", writes=False):
                return read(work)

        return in_snapshot(self._runtime, framed, holds_store=True) if self._work is None else framed(self._work)


List = list
OCTETS = "application/octet-stream"
_MEDIA_TYPE = 255
_STAGED = 8
"""How many pieces one transaction stores."""
BLOB = Values(Blob, blobs)
_NEWEST = Keyset("blobs", BLOB, (_B.put_at, _B.sha256), where=[_B.complete.is_(true())])

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
    """The steps that store a large body in short transactions, so that writers wait little; the put that follows completes it."""
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
        *known, outside = found.result
        if outside:  # the row is locked: nobody deletes the body at this moment
            keep_outside(outside_of(work.runtime, content.sha256), content, anew=repair)
        elif content.size <= INLINE:
            if body is None:  # bodies belong outside by now, and this one stays where it is
                work.run(REWRITE, digest=content.sha256, content=content.read_all())
        elif repair or self._size_of_pieces(content.sha256) != content.size:
            for position, piece in enumerate(content.pieces()):
                work.run(ADD_PIECE, sha256=content.sha256, position=position, body=piece)
        return BLOB((content.sha256, *known))

    def _size_of_pieces(self, digest: str) -> int:
        row = self._work.row(SIZE_OF_PIECES, digest=digest)
        assert row is not None, "a sum has a row"
        return int(row[0])

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
