"""Makes a consistent copy of a store while other connections write."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from persist.db.dialects.backends import operations_of
from persist.db.files import check_path
from persist.errors import InvalidValue, PersistError
from persist.maintenance.operations import checkpoint, vacuum
from persist.maintenance.transactions import translated
from persist.store.store import Store

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
