"""Followers of both faces: iterators of UI message chunks, with a cursor to go on from."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from types import TracebackType

from persist.chat.following.following import Following
from persist.chat.following.reading import Look
from persist.chat.following.rendering import Chunk
from persist.chat.following.turn_watch import Waiter, turn_watch
from persist.db.dialects.wakeups import Wakeups
from persist.db.transactions.outages import Outage
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_snapshot
from persist.errors import Closed, PersistError


class _Told:
    """When a follower was told of the change that it looks at next. Its waiter has this and not the follower: no circle."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: float | None = None

    def of_change(self) -> None:
        """There is a change."""
        if self._at is None:
            self._at = time.monotonic()

    def looked(self) -> float | None:
        """The follower has looked; how many seconds after it was told, None if it was not."""
        at, self._at = self._at, None
        return None if at is None else time.monotonic() - at


def _tell(told: _Told, wake: Callable[[], None]) -> None:
    told.of_change()
    wake()


class _Follower:
    """What both faces share. Chunks are read when they are asked for, so a slow reader holds back nobody and nothing piles up."""

    def __init__(self, runtime: Runtime, session_id: str, cursor: str | None, ai_sdk: int | None) -> None:
        self._runtime = runtime
        self._following = Following(runtime, session_id, cursor, ai_sdk)
        self._chunks: Iterator[Chunk] = iter(())
        self._waiter: Waiter | None = None
        self._closed = False
        self._outage = Outage(runtime.errors, "a turn that is followed cannot be read")
        self._reads = Wakeups()
        """Closing the store waits for the read that it allows at a time, and allows none afterwards."""
        runtime.watchers.add(self._reads)
        self._told = _Told()

    @property
    def cursor(self) -> str | None:
        """The place after the last chunk, to be given to `follow` after a reconnect; None before the first chunk."""
        return self._following.cursor

    def _next_known(self) -> Chunk | None:
        """The next chunk of the last look; None if there is none left."""
        return next(self._chunks, None)

    def _take(self, look: Look) -> None:
        self._chunks = self._following.chunks(look)

    def _look(self) -> Look:
        with self._reads.reading:
            if self._reads.stopped:
                raise Closed("store")
            found = in_snapshot(self._runtime, self._following.look)
        self._outage.is_over()
        if (lag := self._told.looked()) is not None:
            self._runtime.counters.followed(lag)
        return found

    @property
    def _is_over(self) -> bool:
        return self._following.over or self._closed or self._runtime.closed or self._reads.stopped

    def _enter(self, wake: Callable[[], None]) -> None:
        if self._waiter is None:
            self._waiter = Waiter(self._following.session_id, partial(_tell, self._told, wake))
            turn_watch(self._runtime).add(self._waiter)

    def _leave(self) -> None:
        self._closed = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            turn_watch(self._runtime).remove(waiter)


class Follower(_Follower):
    """Iterates over the chunks of a session's running message, blocking while the turn is silent. `close` ends it."""

    def __init__(self, runtime: Runtime, session_id: str, cursor: str | None, ai_sdk: int | None) -> None:
        super().__init__(runtime, session_id, cursor, ai_sdk)
        self._changed = threading.Event()

    def __iter__(self) -> "Follower":
        return self

    def __next__(self) -> Chunk:
        self._runtime.check_process()
        while True:
            chunk = self._next_known()
            if chunk is not None:
                return chunk
            if self._is_over:
                self._leave()
                raise StopIteration
            if self._runtime.one_connection:
                self._runtime.refuse_inside_transaction("follow()")
            first = self._waiter is None
            self._enter(self._changed.set)
            if not first and not self._following.looks_again:
                self._changed.wait()
            self._changed.clear()
            if self._is_over:
                continue
            try:
                self._take(self._look())
            except Closed:
                continue
            except PersistError as error:
                if not self._outage.met(error):
                    raise
                self._changed.wait(self._outage.pause())
                self._changed.set()

    def close(self) -> None:
        """End the iteration, from any thread."""
        self._leave()
        self._changed.set()

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class AsyncFollower(_Follower):
    """See Follower. For one task at a time; another event loop may go on with it."""

    def __init__(
        self,
        runtime: Runtime,
        session_id: str,
        cursor: str | None,
        ai_sdk: int | None,
        call: Callable[[Callable[[], Look]], Awaitable[Look]],
    ) -> None:
        super().__init__(runtime, session_id, cursor, ai_sdk)
        self._call = call
        self._changed: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __aiter__(self) -> "AsyncFollower":
        return self

    async def __anext__(self) -> Chunk:
        self._runtime.check_process()
        while True:
            chunk = self._next_known()
            if chunk is not None:
                return chunk
            if self._is_over:
                self._leave()
                raise StopAsyncIteration
            if self._runtime.one_connection:
                self._runtime.refuse_inside_transaction("follow()")
            loop = asyncio.get_running_loop()
            if self._changed is None or self._loop is not loop:  # nothing wakes it any more through a loop that is closed
                self._loop, self._changed, self._waiter = loop, asyncio.Event(), None
                self._enter(partial(_set, loop, self._changed))
            elif not self._following.looks_again:
                await self._changed.wait()
            self._changed.clear()
            if self._is_over:
                continue
            try:
                self._take(await self._call(self._look))
            except Closed:
                continue
            except PersistError as error:
                if not self._outage.met(error):
                    raise
                await asyncio.sleep(self._outage.pause())
                self._changed.set()
            except asyncio.CancelledError:
                self._changed.set()  # the next call looks again
                raise

    async def close(self) -> None:
        """End the iteration."""
        self._leave()
        if self._changed is not None:
            self._changed.set()

    aclose = close
    """The name under which asynchronous generators are closed."""

    async def __aenter__(self) -> "AsyncFollower":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


def _set(loop: asyncio.AbstractEventLoop, changed: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, so nobody waits
        loop.call_soon_threadsafe(changed.set)
