"""Appending whole batches to a log, safely with other processes that append too or were killed while appending.

The file is opened for each append, so no handle stays open: a removed file is created again, and a forked child shares nothing.
On local file systems writes in append mode are not interleaved. On Windows they can be, because they seek to the end first, so
there writers use a lock.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from persist.db.files.paths import typed
from persist.db.files.private_files import make_private, private_opener, sync_file

if sys.platform == "win32":
    import msvcrt

_TRIES = 5
_PAUSE = 0.002  # seconds, more than another process's write takes
_LOCK_POSITION = 2**31 - 2


def append(path: Path, data: bytes, *, sync: bool) -> None:
    """Append the bytes, in one write unless the system accepts fewer. With `sync` they are on the disk when this returns.

    If the last line has no line break, because its writer was killed, one is written first, so that the new line is not joined
    to the torn one. Raises a PersistError.
    """
    try:
        with _opened(path) as file, _windows_lock(file):
            is_new = os.fstat(file.fileno()).st_size == 0
            if not is_new and not _ends_with_a_line(file):
                data = b"\n" + data
            unwritten = memoryview(data)
            while unwritten:
                unwritten = unwritten[file.write(unwritten) :]
            if sync:
                sync_file(file.fileno())
        if sync and is_new:
            _sync_folders(path)
    except OSError as error:
        raise typed(error, path, "session log") from error


def sync(path: Path) -> None:
    """Fsync the file and its folders. Raises a PersistError."""
    try:
        with open(path, "r+b", buffering=0) as file:
            sync_file(file.fileno())
        _sync_folders(path)
    except OSError as error:
        raise typed(error, path, "session log") from error


def _opened(path: Path) -> FileIO:
    try:
        return open(path, "a+b", buffering=0, opener=private_opener)
    except FileNotFoundError:
        make_private(path.parent)
        return open(path, "a+b", buffering=0, opener=private_opener)


@contextmanager
def _windows_lock(file: FileIO) -> Iterator[None]:
    """Hold the log's lock on Windows. It is on a byte past the end of any log, because locked bytes cannot be read."""
    if sys.platform == "win32":
        _lock(file)
        try:
            yield
        finally:
            file.seek(_LOCK_POSITION)
            msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
    else:
        yield


def _lock(file: FileIO) -> None:
    """Wait for the lock on Windows. Other writers hold it for one append; a process that dies releases it."""
    if sys.platform == "win32":
        file.seek(_LOCK_POSITION)
        while True:
            with suppress(PermissionError):
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                return
            time.sleep(_PAUSE)


def _ends_with_a_line(file: FileIO) -> bool:
    """Whether the file ends with a line break. If not, another process may be writing: retry while the file grows."""
    for _ in range(_TRIES):
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return True
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return True
        time.sleep(_PAUSE)
        if os.fstat(file.fileno()).st_size == size:
            return False
    return False


def _sync_folders(path: Path) -> None:
    """Fsync the folders of a new file, so that its name is durable. Windows cannot and need not do this."""
    if sys.platform == "win32":
        return
    for folder in list(path.parents)[:3]:
        with suppress(PermissionError):  # a folder can be writable without being readable
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                sync_file(descriptor)
            finally:
                os.close(descriptor)
