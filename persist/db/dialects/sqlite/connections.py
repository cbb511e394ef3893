"""Connections to a file, and whose process made them: those that a fork left behind go before the child makes its own.

SQLite remembers for the whole process which locks it holds on a file, and a forked child has that memory without the locks. A
connection of its own would rely on them: the process that seems to close the file last deletes the log that the child writes to.
"""

import os
import sqlite3
import weakref
from pathlib import Path
from typing import Any

from persist.errors import StoreForked


class FileConnection(sqlite3.Connection):
    """One that can be found again."""

    made_by: int
    file: tuple[int, int] | None

    def close(self) -> None:
        _made.pop(id(self), None)
        super().close()


_made: "weakref.WeakValueDictionary[int, FileConnection]" = weakref.WeakValueDictionary()


def connect(path: Path, uri: str, **options: Any) -> FileConnection:
    """A connection of this process. StoreForked in a child that was forked while its parent was inside of a transaction."""
    _close_inherited(_identity(path))
    connection: FileConnection = sqlite3.connect(uri, uri=True, factory=FileConnection, **options)
    connection.made_by, connection.file = os.getpid(), _identity(path)
    _made[id(connection)] = connection
    return connection


def _close_inherited(file: tuple[int, int] | None) -> None:
    """The parent keeps its locks: what a child closes gives up none of them."""
    here = os.getpid()
    known = [ref() for ref in _made.valuerefs()]  # a list made at once: other threads may connect while it is read
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
