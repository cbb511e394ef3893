"""The writer lock of a SQLite store: first come, first served."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from persist.errors import StoreBusy, TransactionOpen

PATIENCE = 15.0
_SLICE = 0.05

Owner = object


class Cancelled(BaseException):
    """The wait was called off by whoever asked for it; never seen outside the package."""


class Waiting(NamedTuple):
    """Since when, by time.monotonic(), somebody wants a lock, and how to learn that nobody does any more."""

    since: float | None = None
    cancelled: Callable[[], bool] | None = None


class WriterLock:
    """Hands itself to the longest waiter, so that no thread starves behind a busy recorder."""

    __slots__ = ("_mutex", "_owner", "_waiters")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._owner: Owner | None = None
        self._waiters: deque[tuple[threading.Lock, Owner]] = deque()

    @property
    def owner(self) -> Owner | None:
        """Who holds it now."""
        return self._owner

    def acquire(self, owner: Owner, *, what: str = "begin()", cancelled: Callable[[], bool] | None = None) -> None:
        """Wait for the lock, at most `PATIENCE` seconds (StoreBusy). The same owner asking again is TransactionOpen."""
        with self._mutex:
            if self._owner == owner:
                raise TransactionOpen(what)
            if self._owner is None:
                self._owner = owner
                return
            gate = threading.Lock()
            gate.acquire()
            self._waiters.append((gate, owner))
        self._wait(gate, owner, cancelled)

    def take(self, owner: Owner) -> bool:
        """The lock if it is free this moment."""
        with self._mutex:
            if self._owner is not None:
                return False
            self._owner = owner
            return True

    def release(self) -> None:
        """Give the lock to the next in line."""
        with self._mutex:
            if self._waiters:
                gate, self._owner = self._waiters.popleft()
                gate.release()
            else:
                self._owner = None

    def _wait(self, gate: threading.Lock, owner: Owner, cancelled: Callable[[], bool] | None) -> None:
        started = time.monotonic()
        while not gate.acquire(timeout=_SLICE if cancelled else PATIENCE):
            called_off = cancelled is not None and cancelled()
            waited = time.monotonic() - started
            if not called_off and waited < PATIENCE:
                continue
            with self._mutex:
                if gate.acquire(blocking=False):  # handed over in this very moment
                    break
                self._waiters.remove((gate, owner))
            if called_off:
                raise Cancelled
            raise StoreBusy(waited, "another thread of this process holds the store's write lock")
