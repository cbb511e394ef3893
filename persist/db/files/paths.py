"""Checks of paths that callers pass, and translation of OSError into PersistError."""

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
# Windows error codes, more exact than errno: 32 and 33 for a file that is open, 123 and 206 for an impossible name.
_IN_USE, _IMPOSSIBLE = {32, 33}, {123, 206}


def check_path(name: str, value: Any, *, reachable: bool = True) -> Path:
    """The value as a Path.

    Raises InvalidValue if no file can have that path: not text, a NUL, a lone surrogate half, too long a name.

    `reachable`: also raise NotPermitted if this process may not access the path.
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
