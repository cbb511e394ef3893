"""Values too large for a row: files in the run's directory, written whole before their row. Names are never reused."""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from persist.db import files
from persist.db.concurrency.observers import AFTERWARDS, UNDO
from persist.db.dialects.untrusted_files import identities, identities_in_use
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.escaping import utf8_size
from persist.errors import InvalidValue, NotFound, PayloadTooLarge, PersistError
from persist.programs import names

# Follows no links and opens only regular files: each step starts from the folder's handle where the system can, and a file is
# opened before it is checked. A database file is never opened: closing it would drop this process's locks on it.

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
    """A file that is not opened. `why`: the reason, without the file's name, which an untrusted program chose."""

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
        if self._handle is not None:
            os.close(self._handle)

    def names(self) -> list[str]:
        return sorted(os.listdir(self._path if self._handle is None else self._handle))

    def make(self, name: str) -> None:
        """Create a folder in this folder, accessible to its owner alone, unless the name is taken."""
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
        """The `os.stat_result` of an unopened file. Raises InvalidValue if it must not be opened. `shared`: hard links may be."""
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
                files.sync_file(file.fileno())
            files.replace(self._at(temporary), self._at(name), folder=self._handle)
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
            files.sync_folder(self._path)
        else:
            with suppress(OSError):
                files.sync_file(self._handle)


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
    return getattr(status, "st_reparse_tag", 0) == getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", -1)


KIND = "attachment"
_ADVICE = "`bindings.open_file` gives it as a stream of bytes."


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of a run's attachments, beside the run's own file."""

    database: Path

    @property
    def home(self) -> Path:
        """The run's directory, which stored paths are relative to."""
        return self.database.parent

    def write(self, name: str, execution_id: int | None, content: Iterable[bytes]) -> str:
        """Write a value to a new file; return its path, which no row has named before."""
        path = names.attachment_path(name, execution_id, secrets.token_hex(16))
        *below, file = names.attachment_parts(path)
        with files.files(self.home / path), opened(self.home, below, make=True) as folder:
            folder.write(file, content)
        return path

    def open(self, path: str) -> BinaryIO:
        """Open an attachment for reading. Raises NotFound, or InvalidValue unless it is a regular file below attachments/."""
        with self._folder_of(path) as (folder, file):
            return folder.open(file, self._own)

    def read(self, path: str, limit: int) -> str:
        """The text of an attachment. Errors as `open`. Raises PayloadTooLarge for more than `limit` bytes."""
        with self.open(path) as file, files.files(self.home / path):
            size = os.fstat(file.fileno()).st_size
            content = file.read(limit + 1) if size <= limit else b""
            if max(size, len(content)) > limit:
                raise PayloadTooLarge("attachment_path", max(size, len(content)), limit, advice=_ADVICE)
        try:
            return content.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise InvalidValue("attachment_path", f"{path!r} is not text in UTF-8. {_ADVICE}") from None

    def check(self, path: str) -> None:
        """Raise what `open` would raise, without opening the file."""
        with self._folder_of(path) as (folder, file):
            folder.check(file, self._own)

    def names(self) -> list[str]:
        """The names of all entries of attachments/. OSError if that is no folder, a link to one included."""
        try:
            with opened(self.home, [names.ATTACHMENTS]) as folder:
                return folder.names()
        except FileNotFoundError:
            return []

    def remove(self, path: str) -> None:
        with suppress(NotFound), self._folder_of(path) as (folder, file):
            folder.remove(file)

    @contextmanager
    def _folder_of(self, path: str) -> Iterator[tuple[Folder, str]]:
        *below, file = names.attachment_parts(path)
        try:
            with opened(self.home, below) as folder:
                yield folder, file
        except FileNotFoundError:
            raise NotFound(KIND, path) from None
        except NotADirectoryError:
            raise InvalidValue("attachment_path", f"{path!r} leads through something that is no folder.") from None
        except OSError as error:
            raise files.typed(error, self.home / path) from error

    def _own(self) -> frozenset[Identity]:
        return identities(self.database)


def folder_of(work: UnitOfWork, run_id: str) -> RunFolder | None:
    """The folder of the run's attachments; None if the run has no file of its own, and all values stay in rows."""
    path = work.runtime.dialect.path
    if path is None or work.runtime.scopes.get("run_id") != run_id:
        return None
    return RunFolder(Path(os.path.abspath(path)))


def checked_folder(folder: object) -> Path:
    """The absolute path of a folder that a caller names. Raises NotFound unless it is one."""
    path = Path(os.path.abspath(files.check_path("folder", folder)))
    if not path.is_dir():
        raise NotFound("folder", str(path))
    return path


def is_large(work: UnitOfWork, value: str) -> bool:
    """Whether the value is over `Settings.attachment_bytes`."""
    return utf8_size(value) > work.runtime.settings.attachment_bytes


def check_inline(work: UnitOfWork, value: str) -> None:
    """Raises PayloadTooLarge for a value over `max_json_bytes`."""
    size, limit = utf8_size(value), work.runtime.settings.max_json_bytes
    if size > limit:
        raise PayloadTooLarge("value", size, limit, advice="A run file of its own keeps large values as attachments.")


def remove_unless_committed(work: UnitOfWork, folder: RunFolder, path: str) -> None:
    """Remove a new file if its transaction rolls back; if persist joined the caller's transaction, the file stays."""
    if not work.joined:
        work.announcements.append((UNDO, lambda: folder.remove(path)))


def forget(work: UnitOfWork, folder: RunFolder, path: str) -> None:
    """Remove a file after the commit of the transaction that removed its last name. No row will name it again."""
    if not work.joined:
        work.announcements.append((AFTERWARDS, lambda: folder.remove(path)))


# A file that values are bound from stays open while it is read, and is refused if it changed in that time.

_PIECE = 2**20


def check_source(path: object) -> Path:
    """The path, checked to name a file. Raises InvalidValue for a folder. Also NotPermitted, from `check_path`."""
    checked = files.check_path("path", path)
    if checked.name in ("", ".."):
        raise InvalidValue("path", f"{str(checked)!r} is a folder.")
    return checked


def pieces(path: Path) -> Generator[bytes, None, None]:
    """Yield a regular file, a megabyte at a time. Raises NotFound if it is gone, InvalidValue for anything else or a change."""
    with _refusals(path), opened(path.parent, []) as folder:
        with folder.open(path.name, identities_in_use, shared=True) as file:
            before, size = os.fstat(file.fileno()), 0
            while piece := file.read(_PIECE):
                size += len(piece)
                yield piece
            same = _is_as_it_was(file, before) and size == before.st_size
        there = folder.check(path.name, identities_in_use, shared=True)
        if not same or not os.path.samestat(before, there):
            raise InvalidValue("path", f"{str(path)!r} was changed while it was read; try again when nobody writes to it.")


def whole_text(path: Path, limit: int) -> str:
    """The content of a file as UTF-8 text. Raises PayloadTooLarge, without reading all of it, for more than `limit` bytes."""
    content = bytearray()
    with closing(pieces(path)) as reading:
        for piece in reading:
            content += piece
            if len(content) > limit:
                size = max(len(content), path.stat().st_size)
                raise PayloadTooLarge("path", size, limit, advice="A run file of its own keeps large values as attachments.")
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        advice = "A run file of its own keeps such a value as an attachment."
        raise InvalidValue("path", f"{str(path)!r} is not text in UTF-8, which is what a row takes. {advice}") from None


def _is_as_it_was(file: BinaryIO, before: os.stat_result) -> bool:
    after = os.fstat(file.fileno())
    return (after.st_size, after.st_mtime_ns, after.st_ctime_ns) == (before.st_size, before.st_mtime_ns, before.st_ctime_ns)


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Translate errors of the system, and InvalidValue about an attachment, to errors about the path."""
    try:
        yield
    except InvalidValue as error:
        raise error if error.path == "path" else InvalidValue("path", error.reason) from None
    except NotADirectoryError:
        raise NotFound("file", str(path)) from None
    except OSError as error:
        if isinstance(error, PersistError):
            raise
        raise files.typed(error, path) from error
