"""Connections to a file and the process that opened each: a forked child closes inherited ones before it connects.

SQLite tracks the locks on a file per process. A forked child inherits these records but not the locks. A new connection of the
child would rely on locks that it does not hold. Another process could then delete the log that the child writes to.
"""

import os
import sqlite3
import weakref
from pathlib import Path
from typing import Any

from persist.errors import StoreForked


class FileConnection(sqlite3.Connection):
    """A connection that records the process and the file (device and inode) for which it was opened."""

    made_by: int
    file: tuple[int, int] | None

    def close(self) -> None:
        _made.pop(id(self), None)
        super().close()


_made: "weakref.WeakValueDictionary[int, FileConnection]" = weakref.WeakValueDictionary()


def connect(path: Path, uri: str, **options: Any) -> FileConnection:
    """Open a connection of this process. StoreForked in a child that was forked during a transaction of its parent."""
    _close_inherited(_identity(path))
    connection: FileConnection = sqlite3.connect(uri, uri=True, factory=FileConnection, **options)
    connection.made_by, connection.file = os.getpid(), _identity(path)
    _made[id(connection)] = connection
    return connection


def _close_inherited(file: tuple[int, int] | None) -> None:
    """Close the connections that were inherited from the parent. The parent keeps its locks."""
    here = os.getpid()
    known = [ref() for ref in _made.valuerefs()]  # copied in one step: other threads may connect during the loop
    inherited = [one for one in known if one is not None and one.made_by != here and one.file == file]
    if any(connection.in_transaction for connection in inherited):
        raise StoreForked(
            "This process was forked while its parent was inside of a transaction on this file, and cannot open it; "
            "fork when none is open, or start the child as a new process."
        )
    for connection in inherited:
        connection.close()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
