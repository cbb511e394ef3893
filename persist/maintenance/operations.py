"""Checkpoints and vacuuming: giving space back."""

from collections.abc import Iterator
from contextlib import contextmanager

from persist.db.concurrency.ownership import Owner
from persist.db.dialects.backends import operations_of
from persist.errors import InvalidValue, ReadOnlyTransaction
from persist.maintenance.snapshots import translated
from persist.quoting import shown
from persist.schema.metadata import metadata
from persist.store.store import Store

MODES = ("PASSIVE", "FULL", "RESTART", "TRUNCATE")


def checkpoint(store: Store, mode: str = "TRUNCATE") -> tuple[int, int, int]:
    """Move the write-ahead log into the file: (busy, pages in the log, pages moved). `busy` 1: somebody was in the way.

    `mode` in any case: PASSIVE waits for nobody, FULL waits for writers, RESTART for readers too, and TRUNCATE then empties the
    log file. UnsupportedEngine on a server, which does it itself; TransactionOpen inside one's own transaction. Without such a
    log the counts are -1.
    """
    word = str(mode).upper()
    if word not in MODES:
        raise InvalidValue("mode", f"{shown(mode)} is none of {', '.join(MODES)}.")
    with _alone(store, "checkpoint()"), translated(store):
        return operations_of(store.runtime.dialect).checkpoint(word)


def vacuum(store: Store) -> None:
    """Rewrite the file without its free pages; on a server make the space of dead rows usable and count anew, table by table.

    A file is locked during the rewrite: other writers wait, and may get StoreBusy; it needs its own size again on the disk.
    TransactionOpen inside one's own transaction. NotPermitted where a table belongs to another role.
    """
    upkeep = operations_of(store.runtime.dialect)
    with _alone(store, "vacuum()"):
        store.runtime.retrying_lock(lambda: upkeep.vacuum(metadata.sorted_tables))


@contextmanager
def _alone(store: Store, what: str) -> Iterator[None]:
    """Before the other writers of this store, as a transaction would be."""
    runtime, owner = store.runtime, Owner()
    runtime.check_usable()
    if runtime.read_only:
        raise ReadOnlyTransaction(what)
    runtime.enter_write(owner, what)
    try:
        yield
    finally:
        runtime.leave_write(owner)
