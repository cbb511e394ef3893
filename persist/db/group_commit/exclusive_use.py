"""The right to use a store's pinned connection, one caller at a time."""

import threading
import time
from typing import Protocol

from persist.db.concurrency.fork_count import PROCESS
from persist.db.observation.counters import ConnectionTally
from persist.db.transactions.runtime import Runtime
from persist.errors import Closed, StoreForked


class Held(Protocol):
    """A pinned connection of a store."""

    runtime: Runtime
    mutex: "threading.RLock"
    tally: ConnectionTally

    def give_back(self) -> None:
        """Let other stores use the connection until the next write."""


class ExclusiveUse:
    """Holds the open store's writer lock (on a one-writer database) and the connection's mutex."""

    __slots__ = ("_held", "_lock", "_mutex", "_runtime", "_shares", "_what")

    def __init__(self, held: Held, what: str) -> None:
        self._held, self._runtime, self._mutex, self._what = held, held.runtime, held.mutex, what
        self._shares = held.runtime.dialect.one_of_many
        self._lock = held.runtime.lock if held.runtime.dialect.one_writer else None

    def __enter__(self) -> None:
        if self._runtime.forks != PROCESS.forks:
            raise StoreForked
        lock = self._lock
        if lock is not None and not lock.take(threading.get_ident()):
            started = time.monotonic()
            lock.acquire(threading.get_ident(), what=self._what)
            self._waited(started)
        if not self._mutex.acquire(False):
            started = time.monotonic()
            self._mutex.acquire()
            self._waited(started)
        if self._runtime.closed:  # perhaps while we waited; a connection opened now would leak
            self.__exit__()
            raise Closed("store")

    def _waited(self, since: float) -> None:
        tally = self._held.tally
        tally.waits += 1
        tally.waited += time.monotonic() - since

    def __exit__(self, *_: object) -> None:
        if self._shares:
            self._held.give_back()
        self._mutex.release()
        if self._lock is not None:
            self._lock.release()
