"""Paths that callers give, and what the file system refuses, as errors of ours."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from persist.errors import InvalidValue, NotFound, NotPermitted, PersistError, StoreFull, StoreInUse, Unavailable
from persist.quoting import named

_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR}
_NO_NAME = {errno.ENAMETOOLONG, errno.ELOOP}
# Windows says more than the number that other systems have: of an open file 32 and 33, of an impossible name 123 and 206.
_IN_USE, _IMPOSSIBLE = {32, 33}, {123, 206}


def check_path(name: str, value: Any, *, reachable: bool = True) -> Path:
    """As a Path; InvalidValue if no file can have it: no text, a NUL, half a character, too long a name.

    `reachable`: NotPermitted if nobody may look there.
    """
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
    """The error to raise, or to keep, instead of the system's; one of ours stays what it is."""
    if isinstance(error, PersistError):
        return error
    if error.errno in _FULL:
        return StoreFull(str(path))
    said = error.strerror or str(error)
    code = getattr(error, "winerror", None)
    if code in _IN_USE:
        return StoreInUse(f"{path} is open in some program; close it there first.")
    if error.errno in _NO_NAME or code in _IMPOSSIBLE:
        return InvalidValue("path", f"{path}: {said}.")
    if error.errno in _FORBIDDEN:
        return NotPermitted(f"{path}: {said}.")
    if error.errno == errno.ENOENT:
        return NotFound(kind, str(path))
    return Unavailable(f"{path}: {said}")


def file_uri(path: Path, options: str) -> str:
    """The URI of a file for SQLite, which takes options in it."""
    return uri_for_sqlite(Path(os.path.abspath(path)).as_uri(), options)


def uri_for_sqlite(uri: str, options: str) -> str:
    """A file's URI with options. SQLite knows no other machines, but paths that begin with the name of one."""
    return f"{uri if uri.startswith('file:///') else uri.replace('file:', 'file://', 1)}?{options}"


@contextmanager
def files(path: Path, kind: str = "file") -> Iterator[None]:
    """What the system refuses in the block is an error of ours, about `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, PersistError):
            raise
        raise typed(error, path, kind) from error
