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
    """The caller cancelled its wait for the lock; never seen outside the package."""


class Waiting(NamedTuple):
    """A wait for a lock: since when (time.monotonic()), and a function that tells whether the caller has cancelled it."""

    since: float
    cancelled: Callable[[], bool] | None = None


SHORT = 0.1
"""Seconds of a wait that count as none: less of them is not worth telling the database of."""


class WriterLock:
    """A lock that is handed to the longest waiter, so that no thread starves behind a busy recorder."""

    __slots__ = ("_mutex", "_owner", "_waiters")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._owner: Owner | None = None
        self._waiters: deque[tuple[threading.Lock, Owner]] = deque()

    @property
    def owner(self) -> Owner | None:
        return self._owner

    def acquire(self, owner: Owner, *, what: str = "begin()", cancelled: Callable[[], bool] | None = None) -> None:
        """Wait up to `PATIENCE` seconds for the lock. Raises StoreBusy, TransactionOpen if the owner has it, or Cancelled."""
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
        """Take the lock if it is free, without waiting; True if taken."""
        with self._mutex:
            if self._owner is not None:
                return False
            self._owner = owner
            return True

    def release(self) -> None:
        with self._mutex:
            if self._waiters:
                gate, self._owner = self._waiters.popleft()
                gate.release()
            else:
                self._owner = None

    def _wait(self, gate: threading.Lock, owner: Owner, cancelled: Callable[[], bool] | None) -> None:
        started = time.monotonic()
        while not gate.acquire(timeout=_SLICE if cancelled else PATIENCE):
            is_cancelled = cancelled is not None and cancelled()
            waited = time.monotonic() - started
            if not is_cancelled and waited < PATIENCE:
                continue
            with self._mutex:
                if gate.acquire(blocking=False):  # handed over between the timeout and here
                    break
                self._waiters.remove((gate, owner))
            if is_cancelled:
                raise Cancelled
            raise StoreBusy(waited, "another thread of this process holds the store's write lock")
