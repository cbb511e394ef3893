"""Rows that several threads write at once into a file: one statement, which commits by itself, for all who wait their turn."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from persist.db.group_commit.pinned_connection import PinnedConnection
from persist.db.statements.prepared import MAX_ROWS, Statement

Rows = Sequence[Mapping[str, Any]]


class _Given:
    """The rows of one call. Its thread is woken when they are settled, or to write them and those of others."""

    __slots__ = ("error", "rows", "settled", "woken", "written")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.settled = self.written = False
        self.error: BaseException | None = None
        self.woken = threading.Lock()
        self.woken.acquire()


class SharedRows:
    """Writes rows by one INSERT, which may find a row there already. The first thread that comes writes for all that wait."""

    def __init__(self, held: PinnedConnection, prepared: Statement) -> None:
        self._held, self._prepared = held, prepared
        self._mutex = threading.Lock()
        self._waiting: deque[_Given] = deque()
        self._led = False
        """Whether a thread writes, or was woken to write."""

    def write(self, rows: Rows, *, what: str) -> bool:
        """Write the rows durably. False: none of them was written, and the caller has to do so in a transaction.

        That is so with a log of events, on a caller's engine, on a server, and if a row of the group breaks a constraint.
        """
        held = self._held
        if not held.writes_at_once or len(rows) > MAX_ROWS:
            return False
        held.runtime.check_may_write(what)
        given = _Given(rows)
        with self._mutex:
            self._waiting.append(given)
            led, self._led = self._led, True
        if led:
            self._wait(given)
        if not given.settled:
            try:
                self._lead(what)
            finally:
                self._pass_on()
        if given.error is not None:
            raise given.error
        return given.written

    def _wait(self, given: _Given) -> None:
        try:
            given.woken.acquire()
        except BaseException:  # KeyboardInterrupt
            with self._mutex:
                waits = given in self._waiting
                if waits:
                    self._waiting.remove(given)
                leads = not given.woken.locked() and not given.settled
            if leads:
                self._pass_on()
            raise

    def _lead(self, what: str) -> None:
        """Write what waits, the first of which is this thread's own."""
        taken: list[_Given] = []

        def write(driver: Any) -> None:
            taken.extend(self._taken())
            compiled = self._held.runtime.prepared[self._prepared]
            compiled.run_many(driver, [row for given in taken for row in given.rows])

        error: BaseException | None = None
        written = False
        try:
            written = self._held.write_at_once(write, what=what)
        except Exception as failed:
            error = failed
        finally:  # after KeyboardInterrupt, too: then the others write alone
            for given in taken or self._taken():
                given.error, given.written, given.settled = error, written, True
                given.woken.release()

    def _taken(self) -> list[_Given]:
        with self._mutex:
            taken = [self._waiting.popleft()]
            count = len(taken[0].rows)
            while self._waiting and (count := count + len(self._waiting[0].rows)) <= MAX_ROWS:
                taken.append(self._waiting.popleft())
            return taken

    def _pass_on(self) -> None:
        with self._mutex:
            self._led = bool(self._waiting)
            if self._led:
                self._waiting[0].woken.release()
