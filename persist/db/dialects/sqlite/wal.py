"""The write-ahead log of a SQLite file: switching to WAL mode, and connections that never wait."""

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
    """Switch a file to WAL, with retries while others open it: changing the journal mode ignores busy_timeout."""
    deadline = time.monotonic() + _PATIENCE  # reading the mode of a file that was replaced while open would block
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
    """Make a connection raise instead of waiting for a lock, and leave checkpoints, which wait for the disk, to others.

    Returns a function that restores the connection. Returns None without WAL or unless synchronous is `normal`: every commit
    may wait for the disk then.
    """
    if settings.synchronous != "normal" or driver.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        return None
    driver.execute("PRAGMA busy_timeout=0")
    driver.execute("PRAGMA wal_autocheckpoint=0")

    def restore() -> None:
        driver.execute(f"PRAGMA busy_timeout={settings.busy_timeout_ms}")
        driver.execute(f"PRAGMA wal_autocheckpoint={settings.wal_autocheckpoint}")

    return restore
