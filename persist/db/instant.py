"""Commits on the event loop's own thread, where one costs less than handing it to another and nothing has to be waited for.

A small commit to a WAL file at synchronous=NORMAL copies a few pages into the system's cache: some ten microseconds, less
than waking a thread and being woken by it. What could take long is left to the writer thread: a lock that somebody holds,
a checkpoint, whatever fails.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from persist.db.changes import COMMITTED
from persist.db.held import HeldConnection
from persist.db.jobs import OneRow, Task

MOST = 128
"""Rows in one commit, so that none takes long."""


class InstantConnection(HeldConnection):
    """A connection that never waits."""

    _able = False

    def prepare(self) -> None:
        """On the writer thread: connecting may take a while. Of a pool of the caller's nothing is taken for this."""
        dialect = self.runtime.dialect
        if dialect.one_file and not dialect.in_memory and self.runtime.owns_engine and not self._able:
            with self.mutex:
                self._ready()
                self._able = self._restore is not None
            if not self._able:
                self.close()

    def write(self, tasks: Sequence[Task[Any]]) -> bool:
        """Write every row of a group durably, at once; False: nothing was written, and the writer thread shall try."""
        runtime = self.runtime
        if not self._able or len(tasks) > MOST or runtime.log is not None or runtime.observers.wanted(COMMITTED):
            return False
        rows = [task for task in tasks if isinstance(task, OneRow)]
        if len(rows) != len(tasks) or not runtime.lock.take(threading.get_ident()):
            return False
        try:
            with self.mutex:
                runtime.check_usable()  # whoever closes it for good comes after the store's end
                return self._write(rows)
        except Exception:  # in the thread's hands it fails with the right words, or does not
            return False
        finally:
            runtime.lock.release()

    def _write(self, rows: Sequence[OneRow]) -> bool:
        driver, statements = self._ready(), self._statements
        try:
            if len(rows) == 1:
                return statements.write(rows[0].hot, rows[0].values) == 1
            driver.execute("BEGIN IMMEDIATE")
            if not self._write_rows(driver, rows):
                self._undo(driver)
                return False
            driver.execute("COMMIT")
        except BaseException:
            self._undo(driver)
            raise
        return True

    def _prepare(self, driver: Any) -> Callable[[], None] | None:
        return self.runtime.dialect.prepare_instant(driver)
