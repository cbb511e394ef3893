"""`tx.blobs`: putting, reading, listing and deleting blobs."""

from collections.abc import Sequence
from functools import cache

from sqlalchemy import ColumnElement, Table, bindparam, delete, exists, or_, select, tuple_

from persist.blobs.bodies import ADD_PIECE, COUNT_PIECES, PUT, row_of
from persist.blobs.content import INLINE, PIECE, Content, Source, content_of, made_ready
from persist.blobs.models import blobs, pieces
from persist.blobs.reader import BlobReader
from persist.blobs.schemas import Blob
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.repository import Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_count, optional_count
from persist.db.values.clock import epoch_ms
from persist.db.values.escaping import utf8_size
from persist.db.values.frozen import construct
from persist.db.values.pages import Page, check_limit, values_after
from persist.errors import Conflict, InvalidValue, NotFound, PayloadTooLarge

List = list
_LIST = "blobs"
_HEX = frozenset("0123456789abcdef")
_MEDIA_TYPE = 255
_B = blobs.c
_FIELDS = tuple(Blob.model_fields)
COLUMNS = tuple(_B[name] for name in _FIELDS)
_this = param("digest")

_GET = Statement(select(*COLUMNS).where(_B.sha256 == _this))
_LOCK = Statement(select(_B.outside).where(_B.sha256 == _this).with_for_update())


@cache
def _listing(after: bool) -> Statement:
    query = select(*COLUMNS).order_by(_B.put_at.desc(), _B.sha256.desc()).limit(LIMIT)
    if after:
        after_key = tuple_(bindparam("after_at", type_=_B.put_at.type), bindparam("after_id", type_=_B.sha256.type))
        query = query.where(tuple_(_B.put_at, _B.sha256) < after_key)
    return Statement(query)


def is_named(tables: Sequence[Table]) -> ColumnElement[bool]:
    """Whether a row of any of the tables names the blob: those that have a foreign key to blobs, but for its pieces."""
    links = [key.parent for table in tables if table is not pieces for key in table.foreign_keys if key.column is _B.sha256]
    return or_(*(exists().where(link == _B.sha256) for link in links))


@cache
def _named(tables: tuple[Table, ...]) -> Statement:
    return Statement(select(_B.sha256).where(_B.sha256 == _this, is_named(tables)))


@cache
def _deleting(tables: tuple[Table, ...]) -> Statement:
    """The pieces go with the row, by their foreign key."""
    return Statement(delete(blobs).where(_B.sha256 == _this, ~is_named(tables)))


class Blobs(Repository):
    """`tx.blobs`. A blob is found by the SHA-256 of its bytes; the same bytes are stored once."""

    def put(self, source: Source, media_type: str = "application/octet-stream") -> Blob:
        """Store bytes, a file, or an iterable of bytes, in constant memory. Of equal bytes the first media type stays.

        `source`: bytes, a path, a binary file from its place on, or an iterable; with AsyncStore also an asynchronous one. It is
        read to its end before the transaction begins, unless the caller has begun one.
        """
        with content_of(source) as content:
            return self._put(content, media_type)

    put.writes = True  # type: ignore[attr-defined]  # read by async_transactions
    put.ready = made_ready  # type: ignore[attr-defined]  # as above

    @writes
    def _put(self, content: Content, media_type: str) -> Blob:
        work = self._work
        media_type = work.label("media_type", media_type)
        if (size := utf8_size(media_type)) > _MEDIA_TYPE:
            raise PayloadTooLarge("media_type", size, _MEDIA_TYPE)
        body = content.whole() if content.size <= INLINE else None
        new = row_of(content.sha256, media_type, content.size, work.now(), body)
        with work.batch(last=body is not None) as batch:
            found = batch.returned(PUT, **new)
        assert found.result is not None, "an existing row is merged into and returned"
        *known, outside = found.result
        if body is None and not outside:
            counted = work.row(COUNT_PIECES, digest=content.sha256)
            if counted is None or counted[0] * PIECE < content.size:
                for position, piece in enumerate(content.pieces()):
                    work.run(ADD_PIECE, sha256=content.sha256, position=position, body=piece)
        return blob_value((content.sha256, *known))

    @reads
    def get(self, sha256: str) -> Blob:
        """What is known of a blob, without its bytes. Raises NotFound."""
        return found_blob(self._work, checked_digest("sha256", sha256))

    @reads
    def read(self, sha256: str, *, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a blob, or those from `start` up to but not including `end`.

        Raises NotFound, and BlobUnreadable if the bytes are missing or do not have the digest.
        """
        return b"".join(self._reader(sha256, start, end, outlives=False))

    @reads
    def open(self, sha256: str, *, start: int = 0, end: int | None = None) -> BlobReader:
        """An iterator over the bytes of `read` in pieces, in constant memory: `for` or `async for`. Raises NotFound."""
        return self._reader(sha256, start, end)

    @reads
    def list(self, *, limit: int = 20, after: str | None = None) -> Page[Blob]:
        """Blobs, the one put last first. Pass a page's `cursor` as `after` for the next page."""
        work = self._work
        limit = check_limit(limit)
        after_key = values_after(after, _LIST, {})
        rows = work.rows(_listing(bool(after_key)), **after_key, limit=limit + 1)
        return Page.of(rows, limit, blob_value, name=_LIST, filters={}, key=lambda _, item: [epoch_ms(item.put_at), item.sha256])

    @writes
    def delete(self, sha256: str) -> bool:
        """Delete a blob; False for an unknown one. Raises Conflict while a row names it."""
        work = self._work
        digest, tables = checked_digest("sha256", sha256), tuple(work.runtime.tables())
        with work.batch(last=True) as batch:
            batch.lock(_LOCK, digest=digest)  # what others are about to name is named by then, or put anew
            named = batch.row(_named(tables), digest=digest)
            deleted = batch.run(_deleting(tables), digest=digest)
        if named.result is not None:
            raise Conflict(f"The blob {digest} is named by a part of a message or another row, and stays as long as it is.")
        return deleted.result == 1

    def _reader(self, sha256: str, start: int, end: int | None, *, outlives: bool = True) -> BlobReader:
        first, last = check_count("start", start), optional_count("end", end)
        blob = found_blob(self._work, checked_digest("sha256", sha256))
        upto = blob.size if last is None else min(last, blob.size)
        return BlobReader(self._work, blob, min(first, upto), upto, outlives=outlives)


def found_blob(work: UnitOfWork, digest: str) -> Blob:
    """The blob. Raises NotFound."""
    row = work.row(_GET, digest=digest)
    if row is None:
        raise NotFound("blob", digest)
    return blob_value(row)


def checked_digest(path: str, value: object) -> str:
    """The SHA-256 of a blob: 64 hex digits. Raises InvalidValue for any other text, which may be hostile."""
    if not isinstance(value, str) or len(value) != 64 or not _HEX.issuperset(value):
        raise InvalidValue(path, "expected a SHA-256 as 64 hex digits in lower case.")
    return value if type(value) is str else str.__str__(value)


def blob_value(row: Row) -> Blob:
    """The Blob of a row of COLUMNS."""
    return construct(Blob, dict(zip(_FIELDS, row, strict=True)))
