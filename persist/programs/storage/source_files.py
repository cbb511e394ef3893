"""Reading the files that values are bound from: piece by piece, completely or not at all.

A file stays open while it is read, and is checked again at the end: one that changed while it was read is refused.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from persist.db.dialects.database_files import identities_in_use
from persist.db.files.paths import check_path, typed
from persist.errors import InvalidValue, NotFound, PayloadTooLarge, PersistError
from persist.programs.storage import attachment_files

_PIECE = 2**20


def check_source(path: object) -> Path:
    """The path, checked to name a file. Raises InvalidValue for a folder. Also NotPermitted, from `check_path`."""
    checked = check_path("path", path)
    if checked.name in ("", ".."):
        raise InvalidValue("path", f"{str(checked)!r} is a folder.")
    return checked


def pieces(path: Path) -> Generator[bytes, None, None]:
    """Yield the content of a regular file, a megabyte at a time. Raises NotFound without it, or if it vanishes while it is read.

    Raises InvalidValue for anything else, a link included, for a database that this process has open, and at the end for a file
    that changed while it was read.
    """
    with _refusals(path), attachment_files.opened(path.parent, []) as folder:
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
        raise typed(error, path) from error
