"""Connections to a file, and what becomes of them in a forked child: it closes those that were at rest before it connects.

SQLite tracks the locks on a file per process. A forked child inherits these records but not the locks. A new connection of the
child would rely on locks that it does not hold. Another process could then delete the log that the child writes to.

SQLite also has mutexes, one for each connection and some for the whole process. A child inherits those that another thread of its
parent held as held for ever: to close such a connection, or to free a byte, would hang. So what was in use is kept and refused.
"""

import os
import sqlite3
import threading
import weakref
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from persist.db.concurrency.fork_count import in_each_child
from persist.errors import StoreForked

_PATIENCE = 2.0
_ADVICE = "fork when no thread uses a store, or start the child as a new process."


class FileConnection(sqlite3.Connection):
    """A connection that knows its file (device and inode)."""

    file: tuple[int, int] | None
    at_rest = False
    """Whether no thread is inside of the connection, as far as its user has said so."""

    def __init__(self, path: Path, database: str, **options: Any) -> None:
        self.file = _identity(path)
        _made[id(self)] = self
        super().__init__(database, **options)
        self.file = _identity(path)

    def close(self) -> None:
        self.at_rest = False
        super().close()
        _made.pop(id(self), None)


_made: "weakref.WeakValueDictionary[int, FileConnection]" = weakref.WeakValueDictionary()


class _Inherited:
    """The connections of this process's parents, referred to so that nothing here frees them."""

    def __init__(self) -> None:
        self.connections: dict[int, FileConnection] = {}
        self.lock = threading.Lock()
        self.library_works: bool | None = True
        """Whether SQLite can be used in this process; None if that was not tried since the fork."""

    def after_fork(self) -> None:
        """In a new child, keep what its parent had open."""
        self.connections.update(_made)
        self.lock = threading.Lock()
        self.library_works = None

    def close(self, path: Path, uri: str) -> None:
        """Close what the parent had open of a file, so that this process can connect to it. The parent keeps its locks."""
        if not self.connections and self.library_works:
            return
        with self.lock:
            file = _identity(path)
            inherited = {id: one for id, one in self.connections.items() if one.file == file}
            if not all(one.at_rest and not one.in_transaction for one in inherited.values()):
                raise StoreForked(
                    "This process was forked while its parent was inside of a transaction on this file, or used it on another "
                    f"thread, and cannot open it; {_ADVICE}"
                )
            if self.library_works is None:
                self.library_works = self._library_works(uri)
            if not self.library_works:
                raise StoreForked(f"This process was forked while another thread was inside SQLite, which hangs here; {_ADVICE}")
            for id, connection in inherited.items():
                connection.close()
                del self.connections[id]

    def _library_works(self, uri: str) -> bool:
        """Whether no mutex of SQLite's own was held at the fork: each is needed here once, on a thread that may hang alone."""

        def use(_: object) -> None:
            with suppress(sqlite3.Error):
                sqlite3.connect(uri, uri=True).close()
                with closing(sqlite3.connect(":memory:")) as memory:
                    memory.execute("CREATE TABLE filled AS SELECT randomblob(10000)")
            used.set()

        used = threading.Event()
        # a thread that hangs keeps its arguments for ever, so that the end of the interpreter closes no connection
        threading.Thread(target=use, args=(self.connections,), name="persist-after-fork", daemon=True).start()
        return used.wait(_PATIENCE)


_inherited = _Inherited()
in_each_child(_inherited.after_fork)


def connect(path: Path, uri: str, **options: Any) -> FileConnection:
    """Open a connection of this process. StoreForked in a child that was forked while its parent used the file."""
    _inherited.close(path, uri)
    factory: Any = partial(FileConnection, path)  # called as the class would be
    connection: FileConnection = sqlite3.connect(uri, uri=True, factory=factory, **options)  # which tools that trace replace
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
