"""Makes a consistent copy of a store while other connections write."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from persist.db.dialects.backends import operations_of
from persist.db.files.paths import check_path
from persist.errors import InvalidValue
from persist.maintenance.snapshots import translated
from persist.store.store import Store


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The path of the copy and its size."""

    path: Path
    pages: int
    bytes: int


def backup(
    store: Store,
    path: str | Path,
    *,
    progress: Callable[[int, int], object] | None = None,
    overwrite: bool = False,
) -> BackupReport:
    """Copy the store's current state into a file that opens as a store; `progress(done, total)` counts pages.

    Writers of every process continue. The copy leaves out rows committed during the copy, and the WAL is reset only afterwards.
    The file appears only when it is complete and checked, and only its owner may read it. Raises Conflict if the file exists,
    unless `overwrite`. Raises StoreInUse if the existing file is open, NotFound if its folder is missing. Raises StoreFull,
    StoreCorrupt. Raises UnsupportedEngine on a server; the message has the server's backup command. Files beside the database,
    such as attachments, are not copied.
    """
    target = check_path("path", path)
    if not target.name:
        raise InvalidValue("path", "expected the path of a file.")
    runtime = store.runtime
    runtime.check_outside("backup()")
    with translated(store):
        pages, size = operations_of(runtime.dialect).backup(target, progress=progress, overwrite=overwrite)
    return BackupReport(target, pages, size)
