"""The locks of a SQLite file: WAL mode, how the write lock is waited for, and connections that never wait.

SQLite's own wait asks ten times a second once it has lasted 0.3 seconds. Beside processes that commit one short transaction
after the other, it may last for ever. So connections that write leave to SQLite the first moment of a wait alone. The rest is
waited for here, and asked for more often towards its end, so that who waits longest is let in before others.
"""

import logging
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persist.db.concurrency.writer_lock import SHORT, Cancelled, Waiting
from persist.db.dialects.sqlite.errors import error_name

if TYPE_CHECKING:
    from persist.settings import Settings

log = logging.getLogger("persist")

_TRIES = 200
_PATIENCE = 10.0

OWN_WAIT_MS = 10
"""Milliseconds that SQLite waits by itself on a connection that writes, in four steps."""

_LONGEST, _SHORTEST = 0.01, 0.001
_SHARE = 200
"""A wait is this part of what is left of the timeout, between the longest and the shortest: with 2 seconds left it shrinks."""


def begin(driver: Any, timeout: float, waiting: Waiting | None = None) -> None:
    """BEGIN IMMEDIATE within `timeout` seconds, less those that were waited for already. A free lock costs this statement alone.

    Raises the driver's error once the time is over, and Cancelled.
    """
    asked = time.monotonic()
    since, cancelled = waiting or (asked, None)
    if cancelled is not None and cancelled():
        raise Cancelled
    try:
        driver.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if not _is_busy(error):
            raise
        # for locks that are held briefly a moment is left, however long another thread of the process was waited for
        _poll(driver, max(since + timeout, asked + min(timeout, SHORT)), cancelled, error)


def begin_patiently(driver: Any, waiting: Waiting | None = None) -> None:
    """As `begin`, on a connection that somebody else has set up: its own timeout is taken, and given back."""
    with waiting_inside(driver, OWN_WAIT_MS) as before:
        begin(driver, before / 1000, waiting)


@contextmanager
def waiting_inside(driver: Any, milliseconds: int) -> Iterator[int]:
    """Let SQLite wait as long as this by itself, as for a checkpoint, which begins no transaction. Gives what it was before."""
    before = int(driver.execute("PRAGMA busy_timeout").fetchone()[0])
    driver.execute(f"PRAGMA busy_timeout={milliseconds}")
    try:
        yield before
    finally:
        driver.execute(f"PRAGMA busy_timeout={before}")


def wait_briefly(driver: Any, milliseconds: int) -> None:
    """Leave to SQLite only the first moment of a wait; a timeout of fewer milliseconds is kept."""
    driver.execute(f"PRAGMA busy_timeout={min(OWN_WAIT_MS, milliseconds)}")


def pause(left: float, chance: Callable[[], float] = random.random) -> float:
    """Seconds until the lock is asked for again, with so many left: fewer towards the end, and never the same for two waiters."""
    return min(left, max(_SHORTEST, min(_LONGEST, left / _SHARE)) * (1 + chance()) / 2)


def _poll(driver: Any, deadline: float, cancelled: Callable[[], bool] | None, error: sqlite3.OperationalError) -> None:
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(pause(left))
        if cancelled is not None and cancelled():
            raise Cancelled
        try:
            driver.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as again:
            if not _is_busy(again):
                raise
            error = again
    raise error


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error_name(error).startswith("SQLITE_BUSY")


def use_wal(connection: sqlite3.Connection, path: Path) -> bool:
    """Switch a file to WAL, with retries while others open it: that ignores busy_timeout. False: it cannot be switched."""
    deadline = time.monotonic() + _PATIENCE  # reading the mode of a file that was replaced while open would block
    for attempt in range(_TRIES):
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                return True
            if connection.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal":
                return True
        except sqlite3.OperationalError as error:
            busy = error_name(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
            if not busy or attempt == _TRIES - 1 or time.monotonic() > deadline:
                raise
        time.sleep(0.01)
    log.warning("%s cannot be switched to WAL; readers and the writer will block each other", path)
    return False


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
        wait_briefly(driver, settings.busy_timeout_ms)
        driver.execute(f"PRAGMA wal_autocheckpoint={settings.wal_autocheckpoint}")

    return restore
