"""Translates errors of SQLite into PersistErrors."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from persist.db.dialects.errors import public_text, refused_write
from persist.db.dialects.event_guards import MESSAGE
from persist.db.dialects.sqlite.event_guards import FUNCTION
from persist.db.dialects.sqlite.foreign_files import REFUSED
from persist.db.schema.row_guards import guarded_column
from persist.errors import (
    EventLogSwitched,
    InvalidValue,
    NotPermitted,
    PersistError,
    ReadOnlyTransaction,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    Unavailable,
)

if TYPE_CHECKING:
    from persist.settings import Settings


def translation(path: Path | None, settings: "Settings", *, read_only: bool) -> Callable[[BaseException], PersistError | None]:
    """The function that translates the driver's errors for the file `path`, or for `:memory:` if it is None."""

    def translate(error: BaseException) -> PersistError | None:
        if not isinstance(error, sqlite3.Error):
            return None
        return translate_error(error, str(path or ":memory:"), settings.busy_timeout_ms / 1000, read_only=read_only)

    return translate


def retryable(error: PersistError) -> bool:
    """Whether a retry of the whole transaction may succeed."""
    return isinstance(error, StoreBusy)


def tells_rollback(error: BaseException) -> bool:
    """Whether an error that COMMIT met says that nothing was committed: a page could not be written, such as beyond a limit."""
    return error_name(getattr(error, "orig", None) or error) in ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE")


def error_name(error: BaseException) -> str:
    """The symbolic name of an error's extended result code, such as SQLITE_BUSY_SNAPSHOT; '' without one."""
    return getattr(error, "sqlite_errorname", "") or ""


def translate_error(error: sqlite3.Error, where: str, waited: float, *, read_only: bool) -> PersistError:
    """The PersistError for an error of SQLite; `where` is the file, `waited` the lock timeout in seconds."""
    name, text = error_name(error), public_text(str(error))
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(waited)
    if name == "SQLITE_CONSTRAINT_TRIGGER" and MESSAGE in text:
        return EventLogSwitched()
    if name == "SQLITE_ERROR" and FUNCTION in text:  # a host's connection without the function: the log was switched on since
        return EventLogSwitched()
    if name == "SQLITE_CONSTRAINT_TRIGGER" and text == REFUSED:
        name = "SQLITE_CONSTRAINT_FOREIGNKEY"  # as where the database itself has checked
    if name.startswith("SQLITE_CONSTRAINT"):
        constraint = text.partition("failed: ")[2] or guarded_column(text) or name
        return refused_write(text, constraint)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or text.startswith("Could not decode to UTF-8"):
        return StoreCorrupt(where, text)
    if name == "SQLITE_FULL":
        return StoreFull(where)
    if name == "SQLITE_READONLY_DIRECTORY" and read_only:
        return NotPermitted(f"{where}: its log is read through files beside it, and no file can be made in its folder.")
    if name.startswith("SQLITE_READONLY") and "readonly database" in text and not read_only:
        return NotPermitted(f"{where}: {text}")
    if name.startswith("SQLITE_READONLY"):
        return ReadOnlyTransaction("the statement")
    if name.startswith(("SQLITE_PERM", "SQLITE_AUTH", "SQLITE_CANTOPEN")):
        return NotPermitted(f"{where}: {text}")
    if name == "SQLITE_TOOBIG":
        return InvalidValue("value", "larger than SQLite can store.")
    if name.startswith(("SQLITE_IOERR", "SQLITE_INTERRUPT", "SQLITE_PROTOCOL")):
        return Unavailable(f"{where}: {text}")
    return StoreError(f"{where}: {text}")
