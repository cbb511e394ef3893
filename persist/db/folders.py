"""Folders and files that hold what people said to agents: for their owner alone, and there after a power cut."""

import os
from contextlib import suppress
from pathlib import Path

from persist.errors import NotPermitted


def sync_folder(folder: Path) -> None:
    """So that the new name survives a power cut too; where folders cannot be opened it is as durable as the system makes it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
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
