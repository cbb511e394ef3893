"""Makes a consistent copy of a store while other connections write."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from persist.db.concurrency.ownership import Owner
from persist.db.dialects.backends import operations_of
from persist.db.files import check_path
from persist.errors import InvalidValue, PersistError, ReadOnlyTransaction, shown
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


# Rewrites a file after an erasure, so that its free pages and its write-ahead log hold nothing of what was erased.

_BUSY = "the write-ahead log: a reader keeps older pages of it, run `persist checkpoint` when it is gone"
_NOT_REWRITTEN = "the file: erased bytes were overwritten, but it could not be rewritten, run `persist vacuum`"


def rewrite(store: Store) -> dict[str, int]:
    """Rewrite the file, and return what could not be done, as EraseReport.kept says it. A server does this by itself."""
    if not operations_of(store.runtime.dialect).rewrites:
        return {}
    try:
        vacuum(store)
    except PersistError:
        return {_NOT_REWRITTEN: 1, **empty_log(store)}
    return empty_log(store)


def empty_log(store: Store) -> dict[str, int]:
    """Empty the write-ahead log of the file, and return what could not be done, as `rewrite` does."""
    if not operations_of(store.runtime.dialect).rewrites:
        return {}
    try:
        busy, _, _ = checkpoint(store, "TRUNCATE")
    except PersistError:
        busy = 1
    return {_BUSY: 1} if busy else {}


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The path of the copy and its size."""

    path: Path
    pages: int
    bytes: int


def backup(
    store: Store, path: str | Path, *, progress: Callable[[int, int], object] | None = None, overwrite: bool = False
) -> BackupReport:
    """Copy the store's current state into a file that opens as a store; `progress(done, total)` counts pages.

    Writers of every process continue. The copy leaves out rows committed during the copy, and the WAL is reset only afterwards.
    The file appears only when it is complete and checked, and only its owner may read it. Raises Conflict if the file exists,
    unless `overwrite`. Raises StoreInUse if the existing file is open, NotFound if its folder is missing. Raises StoreFull,
    StoreCorrupt. UnsupportedEngine on a server names its backup command. Attachments and other files are not copied.
    """
    target = check_path("path", path)
    if not target.name:
        raise InvalidValue("path", "expected the path of a file.")
    runtime = store.runtime
    runtime.check_outside("backup()")
    with translated(store):
        pages, size = operations_of(runtime.dialect).backup(target, progress=progress, overwrite=overwrite)
    return BackupReport(target, pages, size)
