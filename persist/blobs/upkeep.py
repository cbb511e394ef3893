"""Upkeep of blobs: those that no row of any table names go with their bodies, so pruning and erasing take blobs last."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Select, Table, false, func, or_, select, true, update

from persist.blobs.body_stores import BlobStore
from persist.blobs.content import ADVICE, INLINE, PIECE
from persist.blobs.models import blobs, pieces
from persist.blobs.repository import BLOB, WHERE, BlobReader, is_named, naming, outside_of, remove_body
from persist.blobs.sharing import SharedBlobStore
from persist.db.dialects.interface import Problem, Severity
from persist.db.operations.bounded_deletion import Condition, DependentRows, may_be_hidden
from persist.db.operations.erasing import Erasable, Erased, Key
from persist.db.operations.pruning import AgedRows, Cut, Pruning, Removed
from persist.db.operations.upkeep import Upkeep
from persist.db.statements.prepared import Row
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import BlobUnreadable, InvalidValue, PersistError

_B = blobs.c
GRACE = timedelta(days=1)
"""How long after its last put a blob stays that messages named and none names any more."""


class UnnamedBlobs(AgedRows):
    """Blobs that nothing names, with their bodies; `only`: which blobs count."""

    rows = 32  # pieces of a MiB

    def __init__(self, tables: Sequence[Table], only: Condition | None = None) -> None:
        # what is left of a large one is the beginning of a put that was not completed, with which a later put continues
        below = (DependentRows(pieces, lambda ids: pieces.c.sha256.in_(ids), order=(pieces.c.position.desc(),)),)
        mark = update(blobs).values(complete=False)
        self._naming = naming(tables)
        super().__init__(blobs, _B.put_at, _B.sha256, only=only, may_go=~is_named(tables), below=below, mark=mark)

    def unsure(self, work: UnitOfWork) -> bool:
        """Whether row security may hide rows that name a blob, so that none is known to be unnamed."""
        return may_be_hidden(work, self._naming)

    def next_candidates(self, work: UnitOfWork, cut: Cut, after: Row | None) -> list[Row]:
        return [] if self.unsure(work) else super().next_candidates(work, cut, after)

    def tally(self, work: UnitOfWork, cut: Cut, earlier: Sequence[Pruning]) -> Removed | None:
        return Removed() if self.unsure(work) else super().tally(work, cut, earlier)

    def remove(self, work: UnitOfWork, cut: Cut, found: Sequence[Row]) -> Removed:
        if self.unsure(work):
            return Removed()
        store: BlobStore | None = None if cut.trial else work.runtime.blob_store
        digests = [row[1] for row in found]
        outside = select(_B.sha256).where(_B.sha256.in_(digests), _B.outside.is_(true()))
        before = [] if store is None else [row[0] for row in work.found(outside, unreadable=OnUnreadable.LEAVE_OUT)]
        removed = super().remove(work, cut, found)
        if before:
            left = {row[0] for row in work.found(select(_B.sha256).where(_B.sha256.in_(before)))}
            removed.followers += [digest for digest in before if digest not in left]
        return removed

    def follow(self, work: UnitOfWork, followers: Sequence[Any]) -> Removed:
        remove_bodies(work, followers)
        return Removed()


def remove_bodies(work: UnitOfWork, digests: Iterable[str]) -> None:
    """Remove the bodies outside of the database that have no row any more, once the deletion of their rows is committed."""
    store: BlobStore | None = work.runtime.blob_store
    if store is not None:
        for digest in sorted(digests):
            remove_body(work, store, digest)


def garbage(tables: Sequence[Table]) -> Pruning:
    """The pruning of blobs that rows once named, and of partial blobs: what a host put stays until a prune asks."""
    return UnnamedBlobs(tables, only=or_(_B.named.is_(true()), _B.complete.is_(false())))


def orphans(store: SharedBlobStore, before: datetime) -> Iterable[str]:
    """The digests of which the store has had a body, or a part of one, since before an instant. None where all have to stay."""
    return [] if store.why_kept() is not None else (digest for digest, written in store.stored() if written < before)


def is_orphan(work: UnitOfWork, digest: str) -> bool:
    """Whether no row is for the body with this digest."""
    return work.row(WHERE, digest=digest) is None


class ErasableBlobs(Erasable):
    """Blobs that erased rows named, with their bodies, wherever these are. `trial`: bodies outside of the database stay."""

    table = blobs
    key = ("sha256",)
    own_streams = False
    has_files = True

    def __init__(self, tables: Sequence[Table], *, trial: bool) -> None:
        self._unnamed = UnnamedBlobs(tables)
        self._trial = trial

    def check(self, work: UnitOfWork, keys: Sequence[Key]) -> None:
        if work.runtime.blob_store is not None:
            return
        if work.found(self._outside(keys).limit(1), unreadable=OnUnreadable.LEAVE_OUT):
            reason = "files of what is erased are outside of the database: say where, by PERSIST_BLOBS or Store.open(blobs=…)."
            raise InvalidValue("blobs", reason)

    def erase(self, work: UnitOfWork, keys: Sequence[Key]) -> Erased:
        self.check(work, keys)
        erased, digests = Erased(), [digest for (digest,) in keys]
        # whatever the clock says now: that of who put a blob may have been ahead
        cut = Cut(datetime.max.replace(tzinfo=UTC), trial=self._trial)
        outside = len(work.found(self._outside(keys), unreadable=OnUnreadable.LEAVE_OUT))
        erased.rows = self._unnamed.remove(work, cut, [(None, digest) for digest in digests]).rows
        store: SharedBlobStore | None = work.runtime.blob_store
        if outside and store is not None and store.why_kept() is not None:
            erased.kept["blobs: bodies stay where they are, since another database may name them"] = outside
        left = len(work.found(select(_B.sha256).where(_B.sha256.in_(digests)), unreadable=OnUnreadable.LEAVE_OUT))
        if left:
            hidden = self._unnamed.unsure(work)
            erased.kept[f"blobs: {'row security may hide rows that name them' if hidden else 'rows of others name them'}"] = left
        return erased

    @staticmethod
    def _outside(keys: Sequence[Key]) -> Select[Any]:
        return select(_B.sha256).where(_B.sha256.in_([digest for (digest,) in keys]), _B.outside.is_(true()))

    def delete_files(self, work: UnitOfWork, keys: Sequence[Key]) -> None:
        if not self._trial:
            remove_bodies(work, [digest for (digest,) in keys])


_SOME = 500


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each blob whose body is not there or damaged. Bodies outside of the database are only looked for."""
    store: SharedBlobStore | None = work.runtime.blob_store
    outside = select(func.count()).select_from(blobs).where(_B.complete.is_(true()), _B.outside.is_(true()))
    unseen = 0 if store is not None else work.select(outside).scalar_one()
    if unseen:
        message = f"{unseen:,} bodies are outside of the database, and were not looked for: PERSIST_BLOBS does not say where."
        yield Problem("blobs_outside", Severity.INFO, "table blobs", message)
    if store is not None:
        yield from _of_place(work, store)
    last = ""
    while rows := work.found(
        select(*BLOB.columns, _B.outside)
        .where(_B.complete.is_(true()), _B.sha256 > last, true() if store is not None else _B.outside.is_(false()))
        .order_by(_B.sha256)
        .limit(_SOME),
        unreadable=OnUnreadable.LEAVE_OUT,
    ):
        for *columns, is_outside in rows:
            blob = BLOB(columns)
            last = blob.sha256
            try:
                if is_outside and store is not None:
                    if not store.has(blob.sha256, blob.size):
                        raise BlobUnreadable(blob.sha256, f"its body is missing in {store!r}, or has another size")
                else:
                    for _ in BlobReader(work, blob, 0, blob.size, outlives=False):
                        pass
            except PersistError as error:
                reason = error.reason if isinstance(error, BlobUnreadable) else str(error)
                said = reason if ADVICE in reason else f"{reason}: {ADVICE}"
                yield Problem("blob_damaged", Severity.ERROR, f"blob {blob.sha256}", f"{said}.")


def _of_place(work: UnitOfWork, store: SharedBlobStore) -> Iterator[Problem]:
    """Problems of the place of bodies: why its bodies are kept, and how many have no row."""
    why = store.why_kept()
    if why is not None:
        advice = "`persist blobs databases` lists them, and forgets one that is gone; else give each database a place of its own."
        yield Problem("blobs_kept", Severity.INFO, f"bodies in {store!r}", f"none is removed: {why}. {advice}")
    found = sum(is_orphan(work, digest) for digest in orphans(store, work.now() - GRACE))
    if found:
        yield Problem(
            "blobs_orphaned", Severity.INFO, f"bodies in {store!r}", f"{found:,} have no row: `persist maintain` removes them."
        )


_PLACE = {column.name: index for index, column in enumerate(blobs.columns)}
_Row = tuple[Any, ...]


def brought_in(runtime: Runtime, rows: Sequence[_Row]) -> tuple[list[_Row], Iterator[_Row]]:
    """Rows of blobs in the published form, no body outside, and rows of their pieces. Raises BlobUnreadable for a lost body."""
    found: list[_Row] = []
    large: list[str] = []
    for row in rows:
        if not row[_PLACE["outside"]] or not row[_PLACE["complete"]]:
            found.append(row)
            continue
        digest, size = row[_PLACE["sha256"]], row[_PLACE["size"]]
        inside = dict(zip(_PLACE, row, strict=True)) | {"outside": type(row[_PLACE["outside"]])(False)}
        if size <= INLINE:
            inside["body"] = b"".join(outside_of(runtime, digest).open(digest))
        else:
            large.append(digest)
        found.append(tuple(inside.values()))
    return found, _pieces(runtime, large)


def _pieces(runtime: Runtime, digests: Sequence[str]) -> Iterator[_Row]:
    for digest in digests:
        for position, piece in enumerate(_even(outside_of(runtime, digest).open(digest))):
            yield digest, position, piece


def _even(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes in pieces of one size, but for the last: a store may yield them in pieces of its own."""
    waiting = b""
    for chunk in chunks:
        waiting += chunk
        while len(waiting) >= PIECE:
            yield waiting[:PIECE]
            waiting = waiting[PIECE:]
    if waiting:
        yield waiting


UPKEEP = Upkeep(checkup=checkup)
