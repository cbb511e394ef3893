"""What the file system refuses, as errors of ours."""

import errno
from pathlib import Path

from persist.errors import InvalidValue, NotFound, NotPermitted, PersistError, StoreFull, Unavailable

_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def typed(error: OSError, path: Path) -> PersistError:
    """The error to raise, or to keep, instead of the system's."""
    if error.errno in _FULL:
        return StoreFull(str(path))
    said = error.strerror or str(error)
    if error.errno in _FORBIDDEN:
        return NotPermitted(f"{path}: {said}.")
    if error.errno == errno.ENOENT:
        return NotFound("session log", str(path))
    if error.errno == errno.ENAMETOOLONG:
        return InvalidValue("path", f"{path}: {said}.")
    return Unavailable(f"{path}: {said}")
