"""Values too large for a row: files in the run's own directory, written whole before the row that names them.

A row never names a file that is not there in full; a file that no row names is what a rollback or a crash leaves behind.
"""

import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path

from persist.db.escape import utf8_size
from persist.db.folders import private, sync_folder
from persist.db.paths import files, typed
from persist.db.work import Work
from persist.errors import InvalidValue, NotFound, PayloadTooLarge

log = logging.getLogger("persist")

KIND = "attachment"
REPLACED = "programs.attachment_replaced"
"""The topic of files that a committed transaction made superfluous."""


def directory_of(work: Work, run_id: str) -> Path | None:
    """Where the run's attachments live: beside its own file; None where it has none, and values stay in their rows."""
    path = work.runtime.dialect.path
    if path is None or work.runtime.scopes.get("run_id") != run_id:
        return None
    return Path(os.path.abspath(path)).parent


def is_large(work: Work, value: str) -> bool:
    """Whether the value is over the size that a row keeps."""
    return utf8_size(value) > work.runtime.settings.attachment_bytes


def check_inline(work: Work, value: str) -> None:
    """PayloadTooLarge for what no row takes."""
    size, limit = utf8_size(value), work.runtime.settings.max_json_bytes
    if size > limit:
        raise PayloadTooLarge("value", size, limit, advice="A run file of its own keeps large values as attachments.")


def write(directory: Path, path: str, value: str) -> None:
    """Write the file, durably and all at once: a temporary one beside it, fsync, rename."""
    target = inside(directory, path)
    temporary = target.with_name(f".{secrets.token_hex(8)}.part")
    with files(target):
        target.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            with open(temporary, "wb", opener=private) as file:
                file.write(value.encode("utf-8", "surrogatepass"))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)


def read(directory: Path, path: str) -> str:
    """The text of an attachment. InvalidValue for a path out of the directory, NotFound without the file."""
    target = inside(directory, path)
    try:
        return target.read_bytes().decode("utf-8", "surrogatepass")
    except (FileNotFoundError, IsADirectoryError):
        raise NotFound(KIND, path) from None
    except UnicodeDecodeError:
        raise InvalidValue("attachment_path", f"{path!r} is not text in UTF-8.") from None
    except OSError as error:
        raise typed(error, target) from error


def inside(directory: Path, path: str) -> Path:
    """The real file behind a stored path; InvalidValue if that leads out of the directory, by links too."""
    if "\x00" in path or os.path.isabs(path):
        raise InvalidValue("attachment_path", f"{path!r} is not relative to the run's directory.")
    home = Path(os.path.realpath(directory))
    real = Path(os.path.realpath(home / path))
    if real == home or not real.is_relative_to(home):
        raise InvalidValue("attachment_path", f"{path!r} leads out of the run's directory.")
    return real


def forget(work: Work, directory: Path, path: str) -> None:
    """Remove a file once the transaction that no longer names it has committed."""
    observers = work.runtime.observers
    if not observers.wanted(REPLACED):
        observers.add(REPLACED, _remove)
    work.announce(REPLACED, (directory, path))


def _remove(replaced: tuple[Path, str]) -> None:
    directory, path = replaced
    try:
        inside(directory, path).unlink(missing_ok=True)
    except (OSError, InvalidValue) as error:
        log.warning("an attachment that is no longer used stays: %s", error)
