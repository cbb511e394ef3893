"""One append to a log: whole batches at its end, also beside other processes, and after one of them was killed.

The file is opened for every append, so nothing is held between two of them: a file that was removed is made again, and
a forked child shares nothing. On local file systems a write in append mode is not interleaved with another, except on Windows,
where it looks for the end first: there writers take turns.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from persist.db.folders import make_private, private, sync_file
from persist.db.paths import typed

if sys.platform == "win32":
    import msvcrt

_LOOKS = 5
_PAUSE = 0.002  # seconds; a write that another process has begun ends sooner
_LOCKED = 2**31 - 2


def append(path: Path, data: bytes, *, sync: bool) -> None:
    """Append the bytes, in one write unless the system takes fewer; with `sync` they are on the disk when this returns.

    A file whose last line is torn, because its writer was killed, gets a line break first, so that the torn half swallows
    no line of ours. Raises a PersistError.
    """
    try:
        with _opened(path) as file, _alone(file):
            is_new = os.fstat(file.fileno()).st_size == 0
            if not is_new and not _ends_with_a_line(file):
                data = b"\n" + data
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            if sync:
                sync_file(file.fileno())
        if sync and is_new:
            _sync_folders(path)
    except OSError as error:
        raise typed(error, path, "session log") from error


def sync(path: Path) -> None:
    """Bring what was appended to the disk. Raises a PersistError."""
    try:
        with open(path, "r+b", buffering=0) as file:
            sync_file(file.fileno())
        _sync_folders(path)
    except OSError as error:
        raise typed(error, path, "session log") from error


def _opened(path: Path) -> FileIO:
    try:
        return open(path, "a+b", buffering=0, opener=private)
    except FileNotFoundError:
        make_private(path.parent)
        return open(path, "a+b", buffering=0, opener=private)


@contextmanager
def _alone(file: FileIO) -> Iterator[None]:
    """On Windows the lock of this log: on a byte that no log comes to, since what is locked there nobody can read."""
    if sys.platform == "win32":
        _lock(file)
        try:
            yield
        finally:
            file.seek(_LOCKED)
            msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
    else:
        yield


def _lock(file: FileIO) -> None:
    """Another writer holds it for one append; a dead one holds nothing."""
    if sys.platform == "win32":
        file.seek(_LOCKED)
        while True:
            with suppress(PermissionError):
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                return
            time.sleep(_PAUSE)


def _ends_with_a_line(file: FileIO) -> bool:
    """Whether the last byte is a line break; where it is not, another process may be in the middle of its write."""
    for _ in range(_LOOKS):
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
    """The names of a new file and of its folders; Windows cannot, and need not."""
    if sys.platform == "win32":
        return
    for folder in list(path.parents)[:3]:
        with suppress(PermissionError):  # one may write into a folder that one may not open
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                sync_file(descriptor)
            finally:
                os.close(descriptor)
