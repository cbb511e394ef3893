"""SQLite's part in the event log: an SQL function that guard triggers call, and polling the file for new events."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from persist.db.dialects.event_log import EVENTS, TURNS, EventLogSupport
from persist.db.dialects.sqlite.event_guards import FUNCTION
from persist.db.dialects.wakeups import Wakeups
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.dialects.sqlite import wakeups as sqlite_wakeups
else:
    sqlite_wakeups = lazy_module("persist.db.dialects.sqlite.wakeups")


class SqliteEventLog(EventLogSupport):
    """The event log in the file `path`, or in `:memory:` if it is None."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._unkept: set[int] = set()

    def say_whether_kept(self, driver: Any) -> Any:
        """Define the SQL function that tells guard triggers whether the connection records events.

        The returned value must be awaited if the connection is asynchronous.
        """
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
        return sqlite_wakeups.FileWakeups(self._path, sqlite_wakeups.SELDOM_IDLE if topic == TURNS else sqlite_wakeups.IDLE)
