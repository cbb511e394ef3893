"""Checkpoints of the write-ahead log, and VACUUM, to free disk space."""

from collections.abc import Iterator
from contextlib import contextmanager

from persist.db.concurrency.ownership import Owner
from persist.db.dialects.backends import operations_of
from persist.errors import InvalidValue, ReadOnlyTransaction, shown
from persist.maintenance.transactions import translated
from persist.schema.metadata import metadata
from persist.store.store import Store

MODES = ("PASSIVE", "FULL", "RESTART", "TRUNCATE")


def checkpoint(store: Store, mode: str = "TRUNCATE") -> tuple[int, int, int]:
    """Move the write-ahead log into the file. Return (busy, pages in the log, pages moved).

    `busy` is 1 if another connection prevented a complete checkpoint. The counts are -1 without a write-ahead log. `mode`, in
    upper or lower case: PASSIVE does not wait, FULL waits for writers, RESTART waits for readers too, and TRUNCATE also empties
    the log file. Raises UnsupportedEngine on a server, which makes its own checkpoints. Raises TransactionOpen inside the
    caller's own transaction.
    """
    word = str(mode).upper()
    if word not in MODES:
        raise InvalidValue("mode", f"{shown(mode)} is none of {', '.join(MODES)}.")
    with _alone(store, "checkpoint()"), translated(store):
        return operations_of(store.runtime.dialect).checkpoint(word)


def vacuum(store: Store) -> None:
    """Rewrite the file without its free pages. On a server, free the space of dead rows and update statistics, table by table.

    A file is locked during the rewrite, so other writers wait and may get StoreBusy. The rewrite needs free disk space of the
    file's size. Raises TransactionOpen inside the caller's own transaction, NotPermitted if a table belongs to another role.
    """
    upkeep = operations_of(store.runtime.dialect)
    with _alone(store, "vacuum()"):
        store.runtime.retrying_lock(lambda: upkeep.vacuum(metadata.sorted_tables))


@contextmanager
def _alone(store: Store, what: str) -> Iterator[None]:
    """Register as a writer of this store, and wait for its lock on a file, as a write transaction does."""
    runtime, owner = store.runtime, Owner()
    runtime.check_usable()
    if runtime.read_only:
        raise ReadOnlyTransaction(what)
    runtime.enter_write(owner, what)
    try:
        yield
    finally:
        runtime.leave_write(owner)
