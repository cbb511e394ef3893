"""A fair semaphore for coroutines of any number of event loops, in any number of threads.

asyncio's own belong to one loop. Here a waiter is woken through its own loop, and accepts its permit by itself, so that neither a
cancellation nor the end of a loop, at whatever moment, can lose one.
"""

import asyncio
import threading
import time
from collections import deque

from persist.db.permits import Permits
from persist.db.timer import Timer

_LOOK = 1.0
"""Seconds until an offer that nobody accepts goes to the next in line. Only a loop that ended or stands still takes so long."""


class Lease:
    """One acquisition, and the loop of whoever asked for it."""

    __slots__ = ("_told", "late", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.late = False
        """Its patience is over."""
        self._told: asyncio.Future[None] | None = None

    @property
    def stranded(self) -> bool:
        """Whether nobody is there any more to give the permit back."""
        return self.loop.is_closed()

    def recover(self) -> bool:
        """Bring in order what a stranded holder left behind, from another thread; whether its permit may be given back now."""
        return True

    def tell(self) -> None:
        """On its loop: there may be a permit for it."""
        if self._told is not None and not self._told.done():
            self._told.set_result(None)

    def give_up(self) -> None:
        """On its loop: it has waited long enough."""
        self.late = True
        self.tell()

    async def told(self) -> None:
        """Wait for the next word."""
        self._told = self.loop.create_future()
        await self._told


class Semaphore:
    """Permits that are given in the order in which they were asked for, whichever loop asks.

    `release` waits for nothing: it may run in the middle of anything, this class included, where the garbage collector ends
    a coroutine that its loop left behind.
    """

    def __init__(self, permits: int, timer: Timer) -> None:
        self._permits: Permits[Lease] = Permits(permits)
        self._mutex = threading.Lock()
        self._looking = threading.Lock()
        self._left: deque[Lease] = deque()
        self._timer = timer
        self.due: float | None = None

    def enter(self, lease: Lease) -> bool:
        """Take a permit, which takes no waiting; False: whoever asked must `wait` for one now, or `release` the lease."""
        with self._mutex:
            entered = self._permits.enter(lease)
        if self._left:
            self._settle()
        return entered

    async def wait(self, lease: Lease, patience: float | None = None) -> None:
        """Wait for the permit, at most so many seconds (TimeoutError). Whatever else ends the wait leaves the line."""
        self.watch()
        alarm = None if patience is None else lease.loop.call_later(patience, lease.give_up)
        try:
            while True:
                await lease.told()
                with self._mutex:
                    accepted = self._permits.accept(lease)
                if self._left:
                    self._settle()
                if accepted:
                    return
                if lease.late:
                    raise TimeoutError
        except BaseException:
            self.release(lease)
            raise
        finally:
            if alarm is not None:
                alarm.cancel()

    def release(self, lease: Lease) -> None:
        """Give the permit to the next in line; from any thread, and twice is once."""
        if not self._mutex.acquire(blocking=False):
            self._left.append(lease)
        else:
            try:
                self._permits.leave(lease)
                if self._permits.waiting:
                    self._offer()
            finally:
                self._mutex.release()
        if self._left:
            self._settle()

    def look(self, now: float) -> None:
        """Take back what loops that ended, or stand still, keep from others."""
        with self._looking:
            with self._mutex:
                self._permits.expire(now - _LOOK)
                self._offer()
                stranded = [lease for lease in (*self._permits.held, *self._permits.late) if lease.stranded]
            for lease in stranded:
                if lease.recover():
                    self.release(lease)
            self._settle()

    def on_timer(self, now: float) -> None:
        """See Timer."""
        self.due = None  # first, so that whoever comes now asks for the next look
        self.look(now)
        if self._permits.waiting or self._permits.offered or self._permits.held:
            self.watch()

    def watch(self) -> None:
        """Look every second from now on, as long as a permit is held or waited for."""
        if self.due is None:
            self.due = time.monotonic() + _LOOK
            self._timer.watch(self)

    def _settle(self) -> None:
        # Whoever has the mutex looks here again once it is free: nothing stays undone.
        while self._left and self._mutex.acquire(blocking=False):
            try:
                while self._left:
                    self._permits.leave(self._left.popleft())
                if self._permits.waiting:
                    self._offer()
            finally:
                self._mutex.release()

    def _offer(self) -> None:
        while (lease := self._permits.offer(time.monotonic())) is not None:
            try:
                lease.loop.call_soon_threadsafe(lease.tell)
            except RuntimeError:  # its loop is closed
                self._permits.leave(lease)
