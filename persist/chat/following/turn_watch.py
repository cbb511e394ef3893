"""One thread per store that notices what happens to running turns, on behalf of all followers and recorders of the store.

It waits for commits to a SQLite file, or for notifications of Postgres, and wakes those whose session changed. While nothing is
written it costs next to nothing, however many wait.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from persist.chat.following.rendering import ended_turns, marks_of, stopped_turns
from persist.db.dialects.interface import TURNS, Wakeups
from persist.db.transactions.notifier import Outage, named
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_snapshot
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import Closed, PersistError

log = logging.getLogger("persist")
_T = TypeVar("_T")
_AT_MOST = 0.25
"""The longest wait in seconds: within it, a new waiter is noticed."""
_STOPS_EVERY = 0.2
"""Seconds between two looks for turns that were asked to stop."""
_ENDED_EVERY = 5.0
"""Seconds between two looks for turns whose process is gone, which no commit tells."""
_ONCE_MORE = 0.03
"""A changed session is looked at again after this time: a second change within the same millisecond leaves no other trace."""
_SHARE = 4
"""After a look at all sessions the thread rests this many times as long as the look took."""


class Waiter:
    """Waits for changes in one session; `wake` is called on the watch's thread, also when the store closes.

    The watch holds it weakly. `owner`: only a request to stop that owner's turn counts.
    """

    __slots__ = ("__weakref__", "owner", "session_id", "wake")

    def __init__(self, session_id: str, wake: Callable[[], None], owner: str | None = None) -> None:
        self.session_id, self.wake, self.owner = session_id, wake, owner


class TurnWatch:
    """Wakes waiters. Its thread runs while anybody waits."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._lock = threading.Lock()
        self._waiters: WeakSet[Waiter] = WeakSet()
        self._thread: threading.Thread | None = None
        self._wakeups: Wakeups | None = None
        self._marks: dict[str, tuple[Any, ...] | None] = {}
        self._again: set[str] = set()
        self._missed = False
        """Whether a look failed after it had taken the news, which does not come again."""
        self._stops_at = self._ended_at = 0.0

    def add(self, waiter: Waiter) -> None:
        """Wake this waiter at every change from now on."""
        self.runtime.check_usable()
        with self._lock:
            self._waiters.add(waiter)
            if self._thread is None:
                self._wakeups = self.runtime.dialect.event_log.wakeups(self.runtime.listen_url, TURNS)
                self.runtime.watchers.add(self._wakeups)
                self._thread = threading.Thread(target=self._run, args=(self._wakeups,), name="persist-turns", daemon=True)
                self._thread.start()
        self.hurry()

    def remove(self, waiter: Waiter) -> None:
        """Wake this waiter no more."""
        with self._lock:
            self._waiters.discard(waiter)
        self.hurry()

    def hurry(self) -> None:
        """Let the thread look again now: this process changed a turn."""
        wakeups = self._wakeups
        if wakeups is not None:
            wakeups.tell()

    def _run(self, wakeups: Wakeups) -> None:
        self._marks = {}
        outage = Outage(self.runtime.errors, "changes of running turns cannot be read")
        try:
            while self._anybody_waits(wakeups):
                try:
                    self._wait_and_wake(wakeups)
                    outage.is_over()
                except Closed:
                    return
                except PersistError as error:
                    outage.failed(error)
                    wakeups.pause(outage.pause())
        except Exception:
            log.exception("following running turns failed")
        finally:
            self._end(wakeups)

    def _wait_and_wake(self, wakeups: Wakeups) -> None:
        """Wait for a change, and wake those whom it concerns."""
        now, sessions = time.monotonic(), self._followed()
        if now >= self._stops_at and self._recorders_wait():
            self._wake_stopped(wakeups)
            self._stops_at = now + _STOPS_EVERY
        if sessions and now >= self._ended_at:
            self._wake(self._read(wakeups, partial(ended_turns, session_ids=sessions)))
            self._ended_at = now + _ENDED_EVERY
        told = wakeups.wait(_ONCE_MORE if self._again else _AT_MOST)
        self._wake(self._again)
        told, self._missed = None if self._missed else told, True
        self._again = self._changed(wakeups, told)
        self._missed = False
        self._wake(self._again)

    def _anybody_waits(self, wakeups: Wakeups) -> bool:
        if wakeups.stopped or self.runtime.closed:
            return False
        with self._lock:
            if not self._waiters:
                self._thread = self._wakeups = None
            return self._thread is not None

    def _followed(self) -> list[str]:
        with self._lock:
            return list({waiter.session_id for waiter in self._waiters if waiter.owner is None})

    def _recorders_wait(self) -> bool:
        with self._lock:
            return any(waiter.owner is not None for waiter in self._waiters)

    def _changed(self, wakeups: Wakeups, told: set[str] | None) -> set[str]:
        """The followed sessions that changed: those that notifications named, or that differ from the look before."""
        sessions = self._followed()
        if not sessions or (told is not None and not told):
            return set()
        if told is not None:
            return {id for text in told for id in named(text)}.intersection(sessions)
        started = time.monotonic()
        marks = self._read(wakeups, partial(marks_of, session_ids=sessions))
        changed = {id for id in sessions if id not in self._marks or self._marks[id] != marks.get(id)}
        self._marks = {id: marks.get(id) for id in sessions}
        wakeups.pause(min(_AT_MOST, _SHARE * (time.monotonic() - started)))
        return changed

    def _wake_stopped(self, wakeups: Wakeups) -> None:
        stopped = self._read(wakeups, stopped_turns)
        with self._lock:
            found = [waiter for waiter in self._waiters if (waiter.session_id, waiter.owner) in stopped]
        for waiter in found:
            waiter.wake()

    def _wake(self, session_ids: Iterable[str]) -> None:
        ids = set(session_ids)
        if ids:
            with self._lock:
                found = [waiter for waiter in self._waiters if waiter.owner is None and waiter.session_id in ids]
            for waiter in found:
                waiter.wake()

    def _read(self, wakeups: Wakeups, read: Callable[[UnitOfWork], _T]) -> _T:
        with wakeups.reading:
            if wakeups.stopped:
                raise Closed("store")
            return in_snapshot(self.runtime, read)

    def _end(self, wakeups: Wakeups) -> None:
        self.runtime.watchers.discard(wakeups)
        wakeups.close()
        with self._lock:
            if self._wakeups is wakeups:
                self._thread = self._wakeups = None
            left = list(self._waiters) if self.runtime.closed or wakeups.stopped else []
        for waiter in left:
            waiter.wake()


_watches_lock = threading.Lock()


def turn_watch(runtime: Runtime) -> TurnWatch:
    """The one watch of a store."""
    with _watches_lock:
        found: TurnWatch | None = runtime.turn_watch
        if found is None or found.runtime is not runtime:  # the copy of a runtime has a watch of its own
            found = runtime.turn_watch = TurnWatch(runtime)
        return found
