"""Paths that callers pass, and files that only their owner may read, since they hold conversations."""

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from persist.errors import Conflict, InvalidValue, NotFound, NotPermitted, PersistError, StoreFull, StoreInUse, Unavailable, named

_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR}
_NO_NAME = {errno.ENAMETOOLONG, errno.ELOOP}
# Windows error codes, more exact than errno: 32 and 33 for a file that is open, 123 and 206 for an impossible name.
_IN_USE = {32, 33}
_IMPOSSIBLE = {123, 206}


def beside(path: Path) -> list[Path]:
    """The files that SQLite keeps beside a database's own."""
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]


def check_new_file(database: Path | None, target: Path, *, overwrite: bool, is_database: bool = False) -> None:
    """Refuse to write a file that is the database's own, a folder, in a missing folder, or there already."""
    if target.is_dir():
        raise InvalidValue("path", f"{target} is a folder.")
    if not target.parent.is_dir():
        raise NotFound("folder", str(target.parent))
    own = [] if database is None else [database, *beside(database)]
    if any(target.exists() and path.exists() and os.path.samefile(path, target) for path in own):
        raise InvalidValue("path", f"{target} is the database itself.")
    for path in [target, *(beside(target) if is_database else ())]:
        if path.exists() and not overwrite:
            raise Conflict(f"{path} is there already; it is overwritten with overwrite=True, --force on the command line.")


def check_path(name: str, value: Any, *, reachable: bool = True) -> Path:
    """The value as a Path. Raises InvalidValue if no file can have it, and NotPermitted unless it is `reachable`, if asked."""
    try:
        path = Path(value)
        encoded = os.fsencode(path)
    except (TypeError, ValueError) as error:
        raise InvalidValue(name, f"{named(value)} is not a path ({error}).") from None
    if b"\0" in encoded:
        raise InvalidValue(name, f"{named(value)} holds a NUL.")
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno in _NO_NAME or (reachable and error.errno in _FORBIDDEN):
            raise typed(error, path) from None
    return path


def typed(error: OSError, path: Path, kind: str = "file") -> PersistError:
    """The PersistError for an OSError about `path`, which is a `kind`; a PersistError is returned unchanged."""
    if isinstance(error, PersistError):
        return error
    if error.errno in _FULL:
        return StoreFull(str(path))
    reason = error.strerror or str(error)
    code = getattr(error, "winerror", None)
    if code in _IN_USE:
        return StoreInUse(f"{path} is open in some program; close it there first.")
    if error.errno in _NO_NAME or code in _IMPOSSIBLE:
        return InvalidValue("path", f"{path}: {reason}.")
    if error.errno in _FORBIDDEN:
        return NotPermitted(f"{path}: {reason}.")
    if error.errno == errno.ENOENT:
        return NotFound(kind, str(path))
    return Unavailable(f"{path}: {reason}")


def file_uri(path: Path, options: str) -> str:
    """The `file:` URI under which SQLite opens a file, with options in its query."""
    return uri_for_sqlite(Path(os.path.abspath(path)).as_uri(), options)


def uri_for_sqlite(uri: str, options: str) -> str:
    """A file's URI with options. SQLite accepts no host in a URI, so the host of a network path becomes part of the path."""
    return f"{uri if uri.startswith('file:///') else uri.replace('file:', 'file://', 1)}?{options}"


@contextmanager
def files(path: Path, kind: str = "file") -> Iterator[None]:
    """Translate every OSError in the block into a PersistError about `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, PersistError):
            raise
        raise typed(error, path, kind) from error


if sys.platform == "darwin":
    import fcntl

_HELD_BY_ANOTHER = (5, 32, 33)
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
    """`os.replace`, relative to a folder descriptor if given. Raises StoreInUse if Windows refuses for about a second."""
    for tries_left in reversed(range(_TRIES)):
        try:
            os.replace(source, target, src_dir_fd=folder, dst_dir_fd=folder)
            return
        except PermissionError as error:
            if getattr(error, "winerror", None) not in _HELD_BY_ANOTHER:
                raise
            if not tries_left:
                raise StoreInUse(
                    f"{target} cannot be replaced: on Windows no file is while a program has it open; close it first."
                ) from error
            time.sleep(_PAUSE)


def sync_folder(folder: Path) -> None:
    """Write a folder to the disk, so that a new name survives a power cut. Does nothing where folders cannot be opened."""
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


@contextmanager
def written_whole(part: Path, settle: Callable[[Path], object]) -> Iterator[IO[bytes]]:
    """A new file for its owner alone, which `settle` gives its name once it is on the disk. After an error it is gone."""
    try:
        with open(part, "xb", opener=private_opener) as file:
            yield file
            file.flush()
            sync_file(file.fileno())
        settle(part)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700. Raises NotPermitted where a file stands in the way."""
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
