"""Pruning of blobs: those that nothing names, and that were not put for some time."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Table, false, or_, select, true, update

from persist.blobs.bodies import WHERE, remove_body
from persist.blobs.body_stores import BlobStore
from persist.blobs.models import blobs, pieces
from persist.blobs.repository import is_named, naming
from persist.blobs.sharing import SharedBlobStore
from persist.db.operations.bounded_deletion import Below, Condition
from persist.db.operations.hidden_rows import may_be_hidden
from persist.db.operations.pruning import AgedRows, Cut, Pruning, Removed
from persist.db.statements.prepared import Row
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

_B = blobs.c
GRACE = timedelta(days=1)
"""How long after its last put a blob stays that messages named and none names any more."""


class UnnamedBlobs(AgedRows):
    """Blobs that nothing names, with their bodies; `only`: which blobs count."""

    rows = 32  # pieces of a MiB

    def __init__(self, tables: Sequence[Table], only: Condition | None = None) -> None:
        # what is left of a large one is the beginning of a put that was not completed, with which a later put continues
        below = (Below(pieces, lambda ids: pieces.c.sha256.in_(ids), order=(pieces.c.position.desc(),)),)
        mark = update(blobs).values(complete=False)
        self._naming = naming(tables)
        super().__init__(blobs, _B.put_at, _B.sha256, only=only, may_go=~is_named(tables), below=below, mark=mark)

    def unsure(self, work: UnitOfWork) -> bool:
        """Whether row security may hide rows that name a blob, so that none is known to be unnamed."""
        return may_be_hidden(work, self._naming)

    def look(self, work: UnitOfWork, cut: Cut, after: Row | None) -> list[Row]:
        return [] if self.unsure(work) else super().look(work, cut, after)

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


def prunings(tables: Sequence[Table]) -> tuple[Pruning, ...]:
    """The prunings of blobs, where these are all the tables whose rows may name one."""
    return (UnnamedBlobs(tables),)


def garbage(tables: Sequence[Table]) -> Pruning:
    """The pruning of blobs that rows of persist named, and of what was put in part: what a host put stays until a prune asks."""
    return UnnamedBlobs(tables, only=or_(_B.named.is_(true()), _B.complete.is_(false())))


def orphans(store: SharedBlobStore, before: datetime) -> Iterable[str]:
    """The digests of which the store has had a body, or a part of one, since before an instant. None where all have to stay."""
    return [] if store.why_kept() is not None else (digest for digest, written in store.stored() if written < before)


def is_orphan(work: UnitOfWork, digest: str) -> bool:
    """Whether no row is for the body with this digest."""
    return work.row(WHERE, digest=digest) is None
