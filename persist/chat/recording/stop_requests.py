"""Whether somebody asked a recorder's turn to stop, from whatever process: seen within a fraction of a second."""

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

from persist.chat.following.turn_watch import Waiter, turn_watch
from persist.chat.storage.turns import read_turn
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_snapshot
from persist.errors import PersistError


class StopRequests:
    """The requests to stop that one recorder's turns get. Nothing is read before the host asks for the first time."""

    def __init__(self, runtime: Runtime, session_id: str, owner: str) -> None:
        self._runtime, self._session_id, self._owner = runtime, session_id, owner
        self._lock = threading.Lock()
        self._waiter: Waiter | None = None
        self._callbacks: list[Callable[[], None]] = []
        self.requested = False
        self.over = False
        """Whether the recorder is closed."""

    def is_requested(self) -> bool:
        """Whether a request is known. The first call reads the database, later ones what the watch saw since."""
        if self.watch() and not self.requested:
            try:
                turn = in_snapshot(self._runtime, lambda work: read_turn(work, self._session_id))
            except PersistError as error:
                if not self._runtime.errors.is_outage(error):
                    raise
                return self.requested  # the watch sees it later
            if turn is not None and turn.owner == self._owner and turn.stop_requested_at is not None:
                self._notice()
        return self.requested

    def call(self, callback: Callable[[], None]) -> None:
        """Call once when a stop is requested or the recorder is closed; at once if that is so already."""
        self.watch()
        with self._lock:
            waits = not (self.requested or self.over)
            if waits:
                self._callbacks.append(callback)
        if not waits:
            callback()

    def begin_turn(self) -> None:
        """A new turn begins, which nobody asked to stop."""
        self.requested = False

    def close(self) -> None:
        """The recorder is closed: its waiters are told."""
        self.over = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            turn_watch(self._runtime).remove(waiter)
        self._tell()

    def watch(self) -> bool:
        """Begin to watch; False if that was done before, or if the recorder is closed."""
        with self._lock:
            if self._waiter is not None or self.over:
                return False
            waiter = self._waiter = Waiter(self._session_id, self._notice, self._owner)
        turn_watch(self._runtime).add(waiter)
        return True

    def _notice(self) -> None:
        if not self._runtime.closed:
            self.requested = True
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class StopRequested:
    """`recorder.stop_requested` of AsyncStore: true once a stop was requested. Awaiting it waits for that.

    The result of awaiting it is True, or False if the recorder was closed before anybody asked.
    """

    def __init__(self, requests: StopRequests) -> None:
        self._requests = requests

    def __bool__(self) -> bool:
        self._requests.watch()
        return self._requests.requested

    def __await__(self) -> Generator[Any, None, bool]:
        return self._wait().__await__()

    async def _wait(self) -> bool:
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(event.set)

        self._requests.call(wake)
        await event.wait()
        return self._requests.requested
