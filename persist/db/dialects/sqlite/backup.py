"""Copies a SQLite file with the online backup API, while other connections write.

The source connection holds a read snapshot during the copy. Without a snapshot, the API would restart whenever another
connection commits, and never finish under constant load. With a snapshot, the write-ahead log cannot be reset, and grows.
"""

import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from persist.db.dialects.database_files import refuse_if_open
from persist.db.files.paths import file_uri, files
from persist.db.files.private_files import create_private, replace, sync_file, sync_folder
from persist.errors import Conflict, InvalidValue, NotFound, StoreCorrupt, StoreFull

_PAGES_PER_STEP = 500
_BESIDE = ("-wal", "-shm", "-journal")
_FULL = ("SQLITE_FULL",)


def check_target(source: Path | None, target: Path, *, overwrite: bool) -> None:
    """Refuse a target that is the source, a folder, in a missing folder, an existing file (unless `overwrite`), or open."""
    if target.is_dir():
        raise InvalidValue("path", f"{target} is a folder.")
    if not target.parent.is_dir():
        raise NotFound("folder", str(target.parent))
    if source is not None and target.exists() and source.exists() and os.path.samefile(source, target):
        raise InvalidValue("path", f"{target} is the database itself.")
    there = [path for path in (target, *(_beside(target))) if path.exists()]
    if there and not overwrite:
        raise Conflict(f"{there[0]} is there already; it is overwritten with overwrite=True, --force on the command line.")
    if target.exists():
        refuse_if_open(target)


def backup(source: Any, target: Path, *, progress: Callable[[int, int], object] | None, overwrite: bool) -> tuple[int, int]:
    """Copy the current snapshot of `source`; return (pages, bytes). The target appears complete, or not at all."""
    temporary = target.with_name(f".backup-{secrets.token_hex(8)}.part")
    with files(target):
        create_private(temporary)
        try:
            pages = _copy(source, temporary, target, progress)
            _check(temporary, target)
            with temporary.open("r+b") as file:  # Windows syncs only files opened for writing
                sync_file(file.fileno())
            size = temporary.stat().st_size
            check_target(None, target, overwrite=overwrite)  # checked again: another process may have created it
            for path in _beside(target):
                path.unlink(missing_ok=True)  # the replaced file's log must not be applied to the copy
            replace(temporary, target)
        finally:
            for path in (temporary, *_beside(temporary)):
                with suppress(OSError):
                    path.unlink(missing_ok=True)
        sync_folder(target.parent)
    return pages, size


def _copy(source: Any, temporary: Path, target: Path, progress: Callable[[int, int], object] | None) -> int:
    pages = 0

    def step(status: int, remaining: int, total: int) -> None:
        nonlocal pages
        pages = total
        if progress is not None:
            progress(total - remaining, total)

    ours = not source.in_transaction
    if ours:
        source.execute("BEGIN")
    try:
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # a snapshot begins with the first read
        with closing(sqlite3.connect(temporary, isolation_level=None)) as copy:
            copy.execute("PRAGMA synchronous=OFF")  # the complete copy is synced once
            try:
                source.backup(copy, pages=_PAGES_PER_STEP, progress=step)
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorname", "") in _FULL:
                    raise StoreFull(str(target)) from error
                raise
    finally:
        if ours:
            source.execute("ROLLBACK")
    return pages


def _check(temporary: Path, target: Path) -> None:
    """Raise StoreCorrupt if the copy is damaged; `immutable` keeps SQLite from creating a log next to it."""
    with closing(sqlite3.connect(file_uri(temporary, "mode=ro&immutable=1"), uri=True)) as copy:
        line = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if line != "ok":
        raise StoreCorrupt(str(target), f"the copy is damaged, as the database is: {line.splitlines()[-1]}")


def _beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _BESIDE]
