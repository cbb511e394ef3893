"""Folders and files that only their owner may read, since they hold conversations, and that survive a power cut."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from persist.errors import NotPermitted, StoreInUse

if sys.platform == "darwin":
    import fcntl

_IN_USE = (5, 32, 33)
"""Windows error codes for a file that is open: access denied, sharing violation, lock violation."""
_TRIES = 20
_PAUSE = 0.05  # seconds; virus scanners and indexers, which open every new file, need less than all tries together


def sync_file(handle: int) -> None:
    """Write an open file through to the disk. On macOS fsync stops at the drive's cache, hence F_FULLFSYNC."""
    if sys.platform == "darwin":
        with suppress(OSError):  # network drives do not support it
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            return
    os.fsync(handle)


def replace(source: str | Path, target: str | Path, *, folder: int | None = None) -> None:
    """`os.replace`, with names relative to the folder descriptor if one is given.

    Raises StoreInUse if Windows refuses because a program has the target open, after trying for about a second.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            os.replace(source, target, src_dir_fd=folder, dst_dir_fd=folder)
            return
        except PermissionError as error:
            if getattr(error, "winerror", None) not in _IN_USE:
                raise
            if not tries_left:
                raise StoreInUse(
                    f"{target} cannot be replaced: on Windows no file is while a program has it open; close it first."
                ) from error
            time.sleep(_PAUSE)


def sync_folder(folder: Path) -> None:
    """Write a folder through to the disk, so that a new name in it survives a power cut.

    Where the system cannot open folders (Windows) this does nothing.
    """
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            sync_file(handle)
        finally:
            os.close(handle)


def private_opener(path: str, flags: int) -> int:
    """An `opener` for `open()` that creates files for their owner alone (mode 0600). An existing file keeps its mode."""
    return os.open(path, flags, 0o600)


def create_private(path: str | os.PathLike[str]) -> None:
    """Create an empty file for its owner alone. OSError, such as FileExistsError, is passed on."""
    os.close(private_opener(os.fspath(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents, for their owner alone (mode 0700). Existing folders keep their mode.

    Raises NotPermitted where a file stands in the way.
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        if folder.parent == folder:
            break
        folder = folder.parent
    for missing_folder in reversed(missing):
        try:
            missing_folder.mkdir(mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise NotPermitted(f"{missing_folder}: {error.strerror}.") from error
