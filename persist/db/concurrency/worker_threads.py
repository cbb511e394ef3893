"""Threads that run functions for an event loop: a ThreadPoolExecutor at a third of the cost per call.

A call through an executor takes two chained futures and a condition variable; here it takes one queue entry and one wake-up of
the loop.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from persist.errors import Closed

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
        """Run the function, on the worker's thread, and wake the loop."""
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
        self._free = 0
        self._threads = 0
        self._closed = False

    async def call(self, function: Callable[[], R], interrupt: Callable[[], None] | None = None) -> R:
        """Run the function on a worker thread and return its result.

        If the caller is cancelled: call `interrupt`, wait until the function has ended, then raise the cancellation.
        """
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
                self._free -= 1
            elif self._threads < self._width:
                self._threads += 1
                threading.Thread(target=self._work, name=f"persist-worker-{self._threads}", daemon=True).start()
            self._queue.put(call)  # under the mutex, so that it precedes the end markers of `close`

    def _work(self) -> None:
        while True:
            call = self._queue.get()
            if call is None:
                return
            call.run()
            del call
            with self._mutex:
                self._free += 1
