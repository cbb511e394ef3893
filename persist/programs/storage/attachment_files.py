"""Files below a folder that untrusted programs write to as well: follows no links and opens only regular files.

Where the system supports it, every step starts from the handle of the folder before, and a file is opened before it is
checked, so that no other program can swap it in between. A database file is never opened here: closing it under any of its
names would drop the locks that this process has on it.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

from persist.db.files.private_files import replace, sync_file, sync_folder
from persist.errors import InvalidValue

Identity: TypeAlias = tuple[int, int]
"""The device and inode of a file, the same for all of its names (hard links)."""

Own: TypeAlias = Callable[[], Collection[Identity]]
"""Returns the files that are never opened under any name: databases of this process."""

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_EACH = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | _NO_LINK
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _EACH
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _EACH
_HOLD = getattr(os, "O_PATH", 0) | _EACH
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_HANDLES = hasattr(os, "O_DIRECTORY") and {os.open, os.stat, os.mkdir, os.rename, os.unlink} <= os.supports_dir_fd
_HELD = "/proc/self/fd"


class NotOpened(InvalidValue):
    """A file that is not opened. `why`: what it is or what became of it, without its name, which an untrusted program chose."""

    def __init__(self, name: str, why: str) -> None:
        self.why = why
        super().__init__("attachment_path", f"{name!r} {why}.")


class Folder:
    """An opened folder, whose files are accessed by name."""

    __slots__ = ("_handle", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, _FOLDER) if _HANDLES else None

    def close(self) -> None:
        """Close the folder's handle."""
        if self._handle is not None:
            os.close(self._handle)

    def names(self) -> list[str]:
        """The names of all entries, sorted."""
        return sorted(os.listdir(self._path if self._handle is None else self._handle))

    def make(self, name: str) -> None:
        """Create a folder in this one, accessible to its owner alone, unless something of that name exists."""
        with suppress(FileExistsError):
            os.mkdir(self._at(name), 0o700, dir_fd=self._handle)
            self._sync()

    def enter(self, name: str) -> None:
        """Descend into the folder of that name. NotADirectoryError for anything else, a link to a folder included."""
        if self._handle is None:
            status = os.lstat(self._at(name))
            if not stat.S_ISDIR(status.st_mode) or _is_junction(status):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self._at(name))
        else:
            inner = os.open(name, _FOLDER | _NO_LINK, dir_fd=self._handle)
            os.close(self._handle)
            self._handle = inner
        self._path = self._path / name

    def check(self, name: str, own: Own, *, shared: bool = False) -> os.stat_result:
        """The `os.stat_result` of a file, which is not opened. Raises InvalidValue if it must not be opened, as files in `own`.

        `shared`: allow a file that has other names (hard links).
        """
        return _checked(name, os.stat(self._at(name), dir_fd=self._handle, follow_symlinks=False), own, shared)

    def open(self, name: str, own: Own, *, shared: bool = False) -> BinaryIO:
        """Open a file for reading. InvalidValue as in `check`."""
        return open(self._opened(name, own, shared), "rb")

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file durably and atomically: temporary file beside it, fsync, rename."""
        temporary = f".{secrets.token_hex(8)}.part"
        try:
            with open(os.open(self._at(temporary), _WRITE, 0o600, dir_fd=self._handle), "wb") as file:
                for piece in content:
                    file.write(piece)
                file.flush()
                sync_file(file.fileno())
            replace(self._at(temporary), self._at(name), folder=self._handle)
        except BaseException:
            with suppress(OSError):
                self.remove(temporary)
            raise
        self._sync()

    def remove(self, name: str) -> None:
        """Remove the name; the target of a link stays. A missing name is no error."""
        with suppress(FileNotFoundError):
            os.unlink(self._at(name), dir_fd=self._handle)

    def _at(self, name: str) -> str:
        return name if self._handle is not None else str(self._path / name)

    def _opened(self, name: str, own: Own, shared: bool) -> int:
        if _HANDLES and hasattr(os, "O_PATH"):
            held = os.open(name, _HOLD, dir_fd=self._handle)  # O_PATH opens no file: closing it drops no locks
            try:
                _checked(name, os.fstat(held), own, shared)
                if os.path.isdir(_HELD):
                    return os.open(f"{_HELD}/{held}", _READ & ~_NO_LINK)
            finally:
                os.close(held)
        seen = self.check(name, own, shared=shared)
        handle = os.open(self._at(name), _READ, dir_fd=self._handle)
        if os.path.samestat(seen, os.fstat(handle)):
            return handle
        os.close(handle)
        raise NotOpened(name, "was replaced while it was opened")

    def _sync(self) -> None:
        if self._handle is None:
            sync_folder(self._path)
        else:
            with suppress(OSError):
                sync_file(self._handle)


@contextmanager
def opened(home: Path, below: Sequence[str], *, make: bool = False) -> Iterator[Folder]:
    """Open the folder at `below`, a path from `home`; `make` creates missing folders. OSError if one is no folder."""
    folder = Folder(home)
    try:
        for name in below:
            if make:
                folder.make(name)
            folder.enter(name)
        yield folder
    finally:
        folder.close()


def _checked(name: str, status: os.stat_result, own: Own, shared: bool) -> os.stat_result:
    if not stat.S_ISREG(status.st_mode):
        what = "a symbolic link, which is not followed" if stat.S_ISLNK(status.st_mode) else "no regular file"
    elif (status.st_dev, status.st_ino) in own():
        what = "a database that is in use, which is not opened as a file"
    elif status.st_nlink > 1 and not shared:
        what = "a file with other names (hard links), which may be anybody's; a copy of it can be read"
    else:
        return status
    raise NotOpened(name, f"is {what}")


def _is_junction(status: os.stat_result) -> bool:
    """Whether it is a Windows junction."""
    return getattr(status, "st_reparse_tag", 0) == getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", -1)
