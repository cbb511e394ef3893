"""Waiting for a commit to a SQLite file by any process: `PRAGMA data_version` changes with every commit."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from persist.db.dialects.interface import EVENTS, TURNS, EventLogSupport, Wakeups
from persist.db.dialects.sqlite.connections import FileConnection, connect
from persist.db.dialects.sqlite.event_guards import FUNCTION
from persist.db.files import file_uri


class SqliteEventLog(EventLogSupport):
    """The event log in the file `path`, or in `:memory:` if it is None."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._unkept: set[int] = set()

    def say_whether_kept(self, driver: Any) -> Any:
        """Define the SQL function that says whether the connection records events. Await the result if it is asynchronous."""
        key = id(driver)
        return driver.create_function(FUNCTION, 0, lambda: self.kept and key not in self._unkept)

    @contextmanager
    def leave_to_database(self, driver: Any) -> Iterator[None]:
        self._unkept.add(id(driver))
        try:
            yield
        finally:
            self._unkept.discard(id(driver))

    def wakeups(self, listen_url: str | None, topic: str = EVENTS) -> Wakeups:
        if self._path is None:
            return Wakeups()
        return FileWakeups(self._path, SELDOM_IDLE if topic == TURNS else IDLE)


_BUSY = 0.001
"""Seconds between two polls right after a commit. One poll takes some microseconds."""
IDLE = 0.018
"""Seconds between two polls when nothing was committed for a while."""
SELDOM_IDLE = 0.032
"""Seconds between two polls on behalf of those who follow running turns: many of them wait for long."""

_SLOWER = 1.2
_BROKEN = 1.0


class FileWakeups(Wakeups):
    """Polls the file's data_version, on a separate connection that holds no transaction."""

    def __init__(self, path: Path, idle: float = IDLE) -> None:
        super().__init__()
        self._path, self._idle = path, idle
        self._uri = file_uri(path, "mode=ro")
        self._connection: FileConnection | None = None
        self._seen = -1
        self._interval = _BUSY

    def wait(self, timeout: float) -> set[str] | None:
        try:
            return None if self._changed(monotonic() + timeout) else set()
        except sqlite3.Error:  # the reader's next query of the log raises the error
            self.close()
            self.pause(min(timeout, _BROKEN))
            return None

    def _changed(self, deadline: float) -> bool:
        """Wait for a commit; False if none came before the deadline, or if the reader was told to go on."""
        told = False
        while True:
            version = self._version()
            if version != self._seen:
                self._seen, self._interval = version, _BUSY
                return True
            left = deadline - monotonic()
            if told or left <= 0:
                return False
            told = self.pause(min(self._interval, left))
            self._interval = min(self._interval * _SLOWER, self._idle)

    def _version(self) -> int:
        if self._connection is None:
            self._connection = connect(self._path, self._uri, isolation_level=None, check_same_thread=False, cached_statements=1)
            self._seen = -1
        self._connection.at_rest = False
        version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        self._connection.at_rest = True
        return version

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
