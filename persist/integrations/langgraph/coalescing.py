"""The calls of one turn of an event loop share a transaction, so that ten thousand at once are a few transactions."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from persist.integrations.store_bridge import StoreBridge, on_asyncio
from persist.store.transaction import Transaction

T = TypeVar("T")

_SHARED = 200
"""The most calls that share a transaction: others may write in between, and what a transaction holds stays small."""

_READING = 4
"""How many transactions that read run at a time, so that a slow search does not hold up everything."""


class Coalescing:
    """Runs functions that arrive in the same turn of an event loop in a shared transaction, one after the other.

    If a function fails, it runs again alone, and so does every function of its transaction: no caller sees another's error.
    """

    def __init__(self, bridge: StoreBridge) -> None:
        self._bridge = bridge
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[_Line, _Line]] = WeakKeyDictionary()

    async def run(self, function: Callable[[Transaction], T], *, writes: bool) -> T:
        """Run a function in a transaction. If cancelled before that begins it never runs; else its end is awaited."""
        self._bridge.refuse_inside_transaction(writes=writes)
        if not on_asyncio():  # such as on trio: each call has a transaction of its own
            return await self._bridge.run_async(function, writes=writes)
        loop = asyncio.get_running_loop()
        lines = self._lines.get(loop)
        if lines is None:
            made = _Line(self._bridge, writes=False, most=_READING), _Line(self._bridge, writes=True, most=1)
            lines = self._lines.setdefault(loop, made)
        result: T = await lines[writes].run(function)
        return result


class _Call:
    """A function that waits for its transaction, and the future of its result."""

    __slots__ = ("begun", "done", "function")

    def __init__(self, function: Callable[[Transaction], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.function = function
        self.begun = False
        self.done: asyncio.Future[Any] = loop.create_future()


class _Line:
    """The waiting calls of an event loop, either its reading or its writing calls."""

    def __init__(self, bridge: StoreBridge, *, writes: bool, most: int) -> None:
        self._bridge, self._writes, self._most = bridge, writes, most
        self._waiting: deque[_Call] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._woken = False

    async def run(self, function: Callable[[Transaction], Any]) -> Any:
        loop = asyncio.get_running_loop()
        call = _Call(function, loop)
        self._waiting.append(call)
        if not self._woken and len(self._running) < self._most:
            self._woken = True
            loop.call_soon(self._start, context=Context())  # no caller's transaction is that of the others
        try:
            return await asyncio.shield(call.done)
        except asyncio.CancelledError:
            if not call.begun:
                call.done.cancel()
                raise
            while not call.done.done():
                try:
                    await asyncio.wait([call.done])
                except asyncio.CancelledError:
                    continue
            if not call.done.cancelled():
                call.done.exception()  # retrieved, so that asyncio does not log it
            raise

    def _start(self) -> None:
        self._woken = False
        while len(self._running) < self._most and (calls := self._next()):
            task = asyncio.get_running_loop().create_task(self._run(calls))
            self._running.add(task)
            task.add_done_callback(partial(self._ended, calls))

    def _next(self) -> list[_Call]:
        calls: list[_Call] = []
        while self._waiting and len(calls) < _SHARED:
            call = self._waiting.popleft()
            if not call.done.done():  # else it was cancelled while it waited
                call.begun = True
                calls.append(call)
        return calls

    def _ended(self, calls: Sequence[_Call], task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        for call in calls:
            call.done.cancel()  # only where the loop ended the task, else each is done
        self._start()

    async def _run(self, calls: Sequence[_Call]) -> None:
        try:
            results = await self._bridge.run_async(lambda tx: [call.function(tx) for call in calls], writes=self._writes)
        except Exception as error:
            if len(calls) > 1 and not self._bridge.is_outage(error):
                for call in calls:
                    await self._run([call])
                return
            for call in calls:
                call.done.set_exception(error)
        else:
            for call, result in zip(calls, results, strict=True):
                call.done.set_result(result)
