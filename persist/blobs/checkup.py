"""Findings of `persist doctor` in blobs: bodies that are missing, or that have another digest than their name."""

from collections.abc import Iterator

from sqlalchemy import false, func, select, true

from persist.blobs.bodies import ADVICE
from persist.blobs.models import blobs
from persist.blobs.pruning import GRACE, is_orphan, orphans
from persist.blobs.reader import BlobReader
from persist.blobs.repository import BLOB
from persist.blobs.sharing import SharedBlobStore
from persist.db.dialects.findings import Problem, Severity
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import BlobUnreadable, PersistError

_B = blobs.c
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
    """What is to be said of the place of bodies: that it is shared, or which bodies in it have no row."""
    why = store.why_kept()
    if why is not None:
        advice = "`persist blobs databases` lists them, and forgets one that is gone; else give each database a place of its own."
        yield Problem("blobs_kept", Severity.INFO, f"bodies in {store!r}", f"none is removed: {why}. {advice}")
    found = sum(is_orphan(work, digest) for digest in orphans(store, work.now() - GRACE))
    if found:
        yield Problem(
            "blobs_orphaned", Severity.INFO, f"bodies in {store!r}", f"{found:,} have no row: `persist maintain` removes them."
        )
