"""A consistent copy of a store, made while others write."""

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
    """Where the copy is, and its size."""

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
    """Copy the store, as it is now, into a file that opens as a store; `progress(done, total)` counts pages.

    Writers of every process continue; rows they commit during the copy are not in it, and their WAL is reset only afterwards.
    The file appears whole and checked, readable by its owner alone, or not at all. Conflict if it is there already, unless
    `overwrite`; StoreInUse if that one is open; NotFound without its folder; StoreFull, StoreCorrupt. UnsupportedEngine on a
    server, with the command that makes its backups. Files beside the database, such as attachments, are not in it.
    """
    target = check_path("path", path)
    if not target.name:
        raise InvalidValue("path", "expected the path of a file.")
    runtime = store.runtime
    runtime.check_usable()
    runtime.refuse_inside_transaction("backup()")
    with translated(store):
        pages, size = operations_of(runtime.dialect).backup(target, progress=progress, overwrite=overwrite)
    return BackupReport(target, pages, size)
