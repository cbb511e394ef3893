"""Erasing blobs: the files of what was erased, unless something else names them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, Table, select, true

from persist.blobs.models import blobs
from persist.blobs.pruning import UnnamedBlobs, remove_bodies
from persist.blobs.sharing import SharedBlobStore
from persist.db.operations.erasing import Erasable, Erased
from persist.db.operations.erasing_ways import Key
from persist.db.operations.pruning import Cut
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import InvalidValue

_B = blobs.c


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
        cut = Cut(work.now() + timedelta(milliseconds=1), trial=self._trial)
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
