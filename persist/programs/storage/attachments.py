"""Values too large for a row: files in the run's own directory, written whole before the row that names them.

A row that this library writes never names an incomplete file; a rollback or crash can leave a file that no row names. Every
value has a file of its own, whose name is never reused. Raw writers write into the folder and the rows, too: a file that they
name is read if it is a regular file below attachments/, and never removed.
"""

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from persist.db.concurrency.observers import AFTERWARDS, UNDO
from persist.db.dialects.database_files import identities
from persist.db.files.paths import check_path, files, typed
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.escaping import utf8_size
from persist.errors import InvalidValue, NotFound, PayloadTooLarge
from persist.programs import names
from persist.programs.storage import attachment_files

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
        with files(self.home / path), attachment_files.opened(self.home, below, make=True) as folder:
            folder.write(file, content)
        return path

    def open(self, path: str) -> BinaryIO:
        """Open an attachment for reading.

        Raises NotFound without the file, InvalidValue unless a regular file below attachments/.
        """
        with self._folder_of(path) as (folder, file):
            return folder.open(file, self._own)

    def read(self, path: str, limit: int) -> str:
        """The text of an attachment. Errors as `open`. Raises PayloadTooLarge for more than `limit` bytes."""
        with self.open(path) as file, files(self.home / path):
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
            with attachment_files.opened(self.home, [names.ATTACHMENTS]) as folder:
                return folder.names()
        except FileNotFoundError:
            return []

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        with suppress(NotFound), self._folder_of(path) as (folder, file):
            folder.remove(file)

    @contextmanager
    def _folder_of(self, path: str) -> Iterator[tuple[attachment_files.Folder, str]]:
        *below, file = names.attachment_parts(path)
        try:
            with attachment_files.opened(self.home, below) as folder:
                yield folder, file
        except FileNotFoundError:
            raise NotFound(KIND, path) from None
        except NotADirectoryError:
            raise InvalidValue("attachment_path", f"{path!r} leads through something that is no folder.") from None
        except OSError as error:
            raise typed(error, self.home / path) from error

    def _own(self) -> frozenset[attachment_files.Identity]:
        return identities(self.database)


def folder_of(work: UnitOfWork, run_id: str) -> RunFolder | None:
    """The folder of the run's attachments; None if the run has no file of its own, and all values stay in rows."""
    path = work.runtime.dialect.path
    if path is None or work.runtime.scopes.get("run_id") != run_id:
        return None
    return RunFolder(Path(os.path.abspath(path)))


def checked_folder(folder: object) -> Path:
    """The absolute path of a folder that a caller names. Raises NotFound unless it is one."""
    path = Path(os.path.abspath(check_path("folder", folder)))
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
