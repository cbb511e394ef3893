"""Removing a SQLite file together with what belongs to it."""

import sqlite3
from contextlib import closing
from pathlib import Path

from persist.errors import NotPermitted, StoreInUse

_BESIDE = ("-wal", "-shm")


def remove_file(path: Path) -> None:
    """Delete it, its -wal and its -shm, if they are there. StoreInUse while anybody has it open, NotPermitted."""
    try:
        if path.exists():
            _refuse_if_open(path)
        for name in (path.name, *(path.name + suffix for suffix in _BESIDE)):
            path.with_name(name).unlink(missing_ok=True)
    except OSError as error:
        raise NotPermitted(f"{error.filename or path}: {error.strerror or error}") from error


def _refuse_if_open(path: Path) -> None:
    """Leaving WAL takes every lock there is, so it fails while another connection is open."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=0)) as raw:
            raw.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.OperationalError as error:
        if (getattr(error, "sqlite_errorname", "") or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StoreInUse(f"{path} is still open; close it first.") from error
        raise NotPermitted(f"{path}: {error}") from error
    except sqlite3.DatabaseError:
        return  # no database any more: nobody can have it open
