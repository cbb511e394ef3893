"""The write-ahead log of a file: switching to it, and commits that wait for nothing."""

import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persist.db.dialects.sqlite.errors import error_name

if TYPE_CHECKING:
    from persist.settings import Settings

log = logging.getLogger("persist")

_TRIES = 200
_PATIENCE = 10.0


def use_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Changing the journal mode ignores busy_timeout: read it first, and try again while others open the file."""
    deadline = time.monotonic() + _PATIENCE  # reading it does wait: of a file that was replaced under others, in vain
    for attempt in range(_TRIES):
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                return
            if connection.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal":
                return
        except sqlite3.OperationalError as error:
            busy = error_name(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
            if not busy or attempt == _TRIES - 1 or time.monotonic() > deadline:
                raise
        time.sleep(0.01)
    log.warning("%s cannot be switched to WAL; readers and the writer will block each other", path)


def never_waiting(driver: Any, settings: "Settings") -> Callable[[], None] | None:
    """Let a connection fail where it would wait for a lock, and leave checkpoints, which wait for the disk, to the others.

    What is returned undoes it. None without a write-ahead log, and at synchronous=FULL: each commit waits for the disk then.
    """
    if settings.synchronous != "normal" or driver.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        return None
    driver.execute("PRAGMA busy_timeout=0")
    driver.execute("PRAGMA wal_autocheckpoint=0")

    def restore() -> None:
        driver.execute(f"PRAGMA busy_timeout={settings.busy_timeout_ms}")
        driver.execute(f"PRAGMA wal_autocheckpoint={settings.wal_autocheckpoint}")

    return restore
