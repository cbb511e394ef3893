"""Small commits on the event loop's own thread, where a commit costs less than handing it to the writer thread.

A small commit to a WAL file at synchronous=NORMAL copies a few pages into the system's cache: some ten microseconds, less
than waking a thread and being woken by it. Anything that could take long is left to the writer thread: a lock that is
held elsewhere, a checkpoint, a statement that fails.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from persist.db.group_commit.pinned_connection import PinnedConnection
from persist.db.group_commit.tasks import SingleRowInsert, WriteTask

MAX = 128
"""Most rows in one inline commit, so that it does not block the loop for long."""


class InlineConnection(PinnedConnection):
    """A pinned connection that commits on the event loop and never waits for a lock."""

    _able = False

    def prepare(self) -> None:
        """Open the connection, on the writer thread since that may block. Never on a caller's engine: its pool would lose one."""
        dialect = self.runtime.dialect
        if dialect.one_file and not dialect.in_memory and self.runtime.owns_engine and not self._able:
            with self.mutex:
                self._ready()
                self._able = self._restore is not None
            if not self._able:
                self.close()

    def write(self, tasks: Sequence[WriteTask[Any]]) -> bool:
        """Write every row of a group durably, here and now. False: nothing was written, and the writer thread must try."""
        runtime = self.runtime
        if not self._able or len(tasks) > MAX or runtime.log is not None:
            return False
        rows = [task for task in tasks if isinstance(task, SingleRowInsert)]
        if len(rows) != len(tasks) or not runtime.lock.take(threading.get_ident()):
            return False
        try:
            with self.mutex:
                written = not runtime.closed and self._write(rows)  # the connection is closed for good only after the store is
                if written:
                    self.tally.commits += 1
                    self.tally.group(len(rows))
                return written
        except Exception:  # the writer thread tries again, and reports the error if there still is one
            return False
        finally:
            runtime.lock.release()

    def _write(self, rows: Sequence[SingleRowInsert]) -> bool:
        if self._driver is None:
            self._ready()
        self._rewire()
        try:
            if len(rows) == 1:
                return self.runtime.prepared[rows[0].prepared].run(self._runner, rows[0].values) == 1
            self._runner.execute("BEGIN IMMEDIATE")
            if not self._write_rows(rows):
                self._undo()
                return False
            self._runner.execute("COMMIT")
        except BaseException:
            self._undo()
            raise
        return True

    def _prepare(self, driver: Any) -> Callable[[], None] | None:
        return self.runtime.connections.prepare_inline(driver)
