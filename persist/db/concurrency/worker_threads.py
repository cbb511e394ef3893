"""Threads of a store: those that run functions for an event loop, and one that calls back objects with deadlines."""

import asyncio
import logging
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from persist.errors import Closed

log = logging.getLogger("persist")


class Timed(Protocol):
    """An object with a deadline, which the timer calls back."""

    due: float | None
    """When to call `on_timer` next, in monotonic seconds; None: not at all."""

    def on_timer(self, now: float) -> None:
        """Handle a deadline that has passed, and set the next `due`. Runs on the timer's thread."""


class Timer:
    """Calls `on_timer` of watched objects once `due`, by monotonic time: a stalled stream is flushed though the clock stands."""

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
    """A timer of several stores: closing one store does not end the thread."""

    def stop(self) -> None:
        """Go on: other stores use the thread."""

    def leave(self) -> None:
        """Go on, too."""

    def end(self) -> None:
        """End the thread, when the last store is closed."""
        super().stop()


# A call through an executor takes two chained futures and a condition variable; here it takes one queue entry and one wake-up of
# the loop.

R = TypeVar("R")


class _Call(Generic[R]):
    """One function call for a worker thread, and the future with which its event loop waits for the result."""

    __slots__ = ("error", "function", "future", "loop", "over", "result")

    def __init__(self, function: Callable[[], R], loop: asyncio.AbstractEventLoop) -> None:
        self.function = function
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()
        self.over = False
        self.result: R | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.function()
        except BaseException as error:
            self.error = error
        with suppress(RuntimeError):  # the loop was closed, so no caller waits any more
            self.loop.call_soon_threadsafe(self.deliver)

    def deliver(self) -> None:
        """Complete the call, on the loop's thread."""
        self.over = True
        if not self.future.done():
            self.future.set_result(None)

    async def ended(self) -> None:
        """Wait until the function has ended, through any number of cancellations."""
        while not self.over:
            if self.future.done():  # cancelled together with the task that awaited it
                self.future = self.loop.create_future()
            with suppress(asyncio.CancelledError):
                await self.future


class Workers:
    """At most `width` threads, each started when first needed."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._queue: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._mutex = threading.Lock()
        self._free: deque[None] = deque()
        """One item for each thread that waits for a call."""
        self._threads = 0
        self._closed = False

    def __del__(self) -> None:
        for _ in range(self._threads):  # they know the queue alone
            self._queue.put(None)

    async def call(self, function: Callable[[], R], interrupt: Callable[[], None] | None = None) -> R:
        """Run the function on a worker thread; its result. A cancellation calls `interrupt`, awaits the end, and is raised."""
        call = _Call(function, asyncio.get_running_loop())
        self._submit(call)
        try:
            await call.future
        except asyncio.CancelledError:
            if interrupt is not None and not call.over:
                stopper = _Call(interrupt, call.loop)
                self._submit(stopper)
                await stopper.ended()  # before anything else runs: a late interrupt would hit the next call
            await call.ended()
            raise
        if call.error is not None:
            try:
                raise call.error
            finally:
                del call  # otherwise the error's traceback and this frame would keep each other alive
        return call.result  # type: ignore[return-value]  # without an error it is the function's R

    def close(self) -> None:
        """End the threads once they are idle. A later `call` raises `Closed`, since no thread would run it."""
        with self._mutex:
            count, self._threads, self._closed = self._threads, 0, True
            for _ in range(count):
                self._queue.put(None)

    def _submit(self, call: _Call[Any]) -> None:
        with self._mutex:
            if self._closed:
                raise Closed("store")
            if self._free:
                self._free.pop()
            elif self._threads < self._width:
                self._threads += 1
                name, state = f"persist-worker-{self._threads}", (self._queue, self._free)
                threading.Thread(target=_work, args=state, name=name, daemon=True).start()
            self._queue.put(call)  # under the mutex, so that it precedes the end markers of `close`


def _work(calls: "queue.SimpleQueue[_Call[Any] | None]", free: deque[None]) -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call
        free.append(None)
