"""Files that values are bound from: read piece by piece, in full or not at all.

A file is held while it is read, and looked at again at the end: one that others write to meanwhile is refused.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from persist.db.dialects.files import identities_in_use
from persist.db.paths import check_path, typed
from persist.errors import InvalidValue, NotFound, PayloadTooLarge, PersistError
from persist.programs import attachment_files

_PIECE = 2**20


def check_source(path: object) -> Path:
    """A path of what may be a file. InvalidValue, NotPermitted."""
    checked = check_path("path", path)
    if checked.name in ("", ".."):
        raise InvalidValue("path", f"{str(checked)!r} is a folder.")
    return checked


def pieces(path: Path) -> Generator[bytes, None, None]:
    """The content of a regular file, a megabyte at a time. NotFound without it, and where it vanishes meanwhile.

    InvalidValue for anything else, a link included, for a database that this process has open, and at the end for a file that
    changed while it was read.
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
    """The content of a file as text in UTF-8. PayloadTooLarge, without reading all of it, if it is more bytes than that."""
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
    """What the system refuses, and what is said of attachments, as errors about the path."""
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
