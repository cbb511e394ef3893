"""One daemon thread per store, started when first needed, that calls back objects with deadlines: recorders and semaphores."""

import logging
import threading
import time
import weakref
from typing import Protocol

log = logging.getLogger("persist")


class Timed(Protocol):
    """An object with a deadline, which the timer calls back."""

    due: float | None
    """When to call `on_timer` next, in monotonic seconds; None: not at all."""

    def on_timer(self, now: float) -> None:
        """Handle a deadline that has passed, and set the next `due`. Runs on the timer's thread."""


class Timer:
    """Calls `on_timer` of each watched object once its `due` has passed.

    It uses monotonic time, not the store's injected clock: a stalled stream is flushed even when that clock stands still.
    """

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._timed: weakref.WeakSet[Timed] = weakref.WeakSet()
        self._next = float("inf")
        self._thread: threading.Thread | None = None
        self._stopped = False

    def watch(self, timed: Timed) -> None:
        """Watch an object, held weakly. Call this again after its `due` moved earlier."""
        due = timed.due
        if due is None:
            return
        with self._wake:
            self._timed.add(timed)
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name="persist-timer", daemon=True)
                self._thread.start()
            if due < self._next:
                self._next = due
                self._wake.notify()

    def hurry(self, timed: Timed) -> None:
        """Look at a watched object now, as its `due` moved earlier. Unlike `watch`, this may interrupt any code."""
        with self._wake:
            due = timed.due
            if due is not None and due < self._next:
                self._next = due
                self._wake.notify()

    def forget(self, timed: Timed) -> None:
        """Stop watching an object."""
        with self._wake:
            self._timed.discard(timed)

    def stop(self) -> None:
        """End the thread, after waiting for a callback that is running (unless called from it)."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def leave(self) -> None:
        """End the thread without waiting for it, from a finalizer, which may interrupt any code."""
        self._stopped = True
        if self._wake.acquire(blocking=False):
            self._wake.notify()
            self._wake.release()

    def _run(self) -> None:
        while True:
            with self._wake:
                if self._stopped:
                    return
                now = time.monotonic()
                waiting = [(timed.due, timed) for timed in self._timed if timed.due is not None]
                late = [timed for due, timed in waiting if due <= now]
                if not late:
                    # a thread that waits with names for what it watches weakly would keep it
                    self._next = min((due for due, _ in waiting), default=float("inf"))
                    del waiting, late
                    self._wake.wait(None if self._next == float("inf") else self._next - now)
                    continue
            for timed in late:
                try:
                    timed.on_timer(now)
                except Exception as error:
                    # The chunk was acknowledged or is retried by the next flush; the thread must stay alive.
                    log.warning("a timed flush failed: %s", error)
                    timed.due = time.monotonic() + 1.0
            del waiting, late, timed


class SharedTimer(Timer):
    """A timer of several stores: the end of one of them does not end its thread."""

    def stop(self) -> None:
        """Go on: other stores use the thread."""

    def leave(self) -> None:
        """Go on, too."""

    def end(self) -> None:
        """End the thread, when the last store is closed."""
        super().stop()
