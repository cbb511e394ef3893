"""Folders and files that hold what people said to agents: for their owner alone, and there after a power cut."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from persist.errors import NotPermitted, StoreInUse

if sys.platform == "darwin":
    import fcntl

_IN_USE = (5, 32, 33)
"""What Windows says where a file is open: access denied, and two that name the reason."""
_TRIES = 20
_PAUSE = 0.05  # seconds; scanners and indexers, which open every new file, are done sooner than all of these


def sync_file(handle: int) -> None:
    """Bring an open file to the disk. A Mac's fsync only brings it to the drive, which may keep it in memory."""
    if sys.platform == "darwin":
        with suppress(OSError):  # network drives have no such call
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            return
    os.fsync(handle)


def replace(source: str | Path, target: str | Path, *, folder: int | None = None) -> None:
    """`os.replace`, of names in `folder` if that is given. StoreInUse where Windows refuses it since the target is open."""
    for left in reversed(range(_TRIES)):
        try:
            os.replace(source, target, src_dir_fd=folder, dst_dir_fd=folder)
            return
        except PermissionError as error:
            if getattr(error, "winerror", None) not in _IN_USE:
                raise
            if not left:
                raise StoreInUse(
                    f"{target} cannot be replaced: on Windows no file is while a program has it open; close it first."
                ) from error
            time.sleep(_PAUSE)


def sync_folder(folder: Path) -> None:
    """So that the new name survives a power cut too; where folders cannot be opened it is as durable as the system makes it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            sync_file(handle)
        finally:
            os.close(handle)


def private(path: str, flags: int) -> int:
    """The `opener` of `open` for files that are their owner's alone from the first moment; one that is there keeps its mode."""
    return os.open(path, flags, 0o600)


def create_private(path: str | os.PathLike[str]) -> None:
    """An empty file for its owner alone; FileExistsError, like every other error of the system, is the caller's."""
    os.close(private(os.fspath(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def make_private(folder: Path) -> None:
    """Make it, and what is missing above it, for its owner alone; those that are there stay as they are. NotPermitted."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        if folder.parent == folder:
            break
        folder = folder.parent
    for one in reversed(missing):
        try:
            one.mkdir(mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise NotPermitted(f"{one}: {error.strerror}.") from error
