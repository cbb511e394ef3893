"""A fair semaphore for coroutines of several event loops: neither a cancellation nor the end of a loop loses a permit."""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from persist.db.concurrency.worker_threads import Timer

# A waiting lease is offered a permit and has to accept it. An offer that is not accepted in time goes to the next in line, so
# that an event loop that ended or is blocked does not hold up the others. A lease that accepts too late waits again, at the front
# of the line.

L = TypeVar("L", bound=Hashable)


class Permits(Generic[L]):
    """At most `free` leases hold a permit at a time. A new lease never overtakes a waiting one, but may overtake a late one."""

    def __init__(self, free: int) -> None:
        self.free = free
        """The number of permits that are neither held nor offered; while there is one, no lease is waiting."""
        self.held: set[L] = set()
        self.waiting: OrderedDict[L, None] = OrderedDict()
        self.offered: dict[L, float] = {}
        self.late: set[L] = set()

    def enter(self, lease: L) -> bool:
        """Take a permit or join the line; True if a permit was taken."""
        if self.free:
            self.free -= 1
            self.held.add(lease)
            return True
        self.waiting[lease] = None
        return False

    def offer(self, now: float) -> L | None:
        """Reserve a permit for the next lease in line, and return the lease to notify. None without a free permit or a lease."""
        if not self.free or not self.waiting:
            return None
        lease, _ = self.waiting.popitem(last=False)
        self.free -= 1
        self.offered[lease] = now
        return lease

    def accept(self, lease: L) -> bool:
        """Take the permit that was offered to the lease; False if it has no offer. A late lease goes to the front of the line."""
        if lease in self.late:
            self.late.remove(lease)
            if not self.free:
                self.waiting[lease] = None
                self.waiting.move_to_end(lease, last=False)
                return False
            self.free -= 1
        elif self.offered.pop(lease, None) is None:
            return False
        self.held.add(lease)
        return True

    def expire(self, before: float) -> None:
        """Withdraw offers made at that instant or earlier (monotonic seconds); their leases become late."""
        for lease in [lease for lease, since in self.offered.items() if since <= before]:
            del self.offered[lease]
            self.late.add(lease)
            self.free += 1

    def leave(self, lease: L) -> None:
        """Return the lease's permit, offer or place in line. Calling this again does nothing."""
        if lease in self.held:
            self.held.remove(lease)
            self.free += 1
        elif self.offered.pop(lease, None) is not None:
            self.free += 1
        else:
            self.waiting.pop(lease, None)
            self.late.discard(lease)


_CHECK_INTERVAL = 1.0
"""Seconds until an offer that is not accepted goes to the next in line. Only a loop that ended or is blocked takes so long."""


class Claim(ABC):
    """One acquisition of a permit."""

    __slots__ = ()

    @property
    @abstractmethod
    def stranded(self) -> bool:
        """Whether the holder cannot return the permit any more."""

    @abstractmethod
    def notify(self) -> None:
        """Announce a permit to accept, from any thread. RuntimeError: nothing waits. May interrupt code, as Semaphore.release."""

    def recover(self) -> bool:
        """Clean up after a stranded holder, from another thread; True if its permit may be returned now."""
        return True


class Lease(Claim):
    """An acquisition by a coroutine, and the event loop of that coroutine."""

    __slots__ = ("_wakeup", "late", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.late = False
        """The patience of the wait has ended."""
        self._wakeup: asyncio.Future[None] | None = None

    @property
    def stranded(self) -> bool:
        """Whether the holder cannot return the permit any more, because its loop is closed."""
        return self.loop.is_closed()

    def notify(self) -> None:
        """Wake the waiter on its loop. RuntimeError: the loop is closed."""
        self.loop.call_soon_threadsafe(self.wake)

    def wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def woken(self) -> None:
        self._wakeup = self.loop.create_future()
        await self._wakeup


class _Alarm:
    """Times out a wait in which nothing moves. A permit that somebody returns starts its time anew."""

    def __init__(self, semaphore: "Semaphore", lease: Lease, patience: float) -> None:
        self._semaphore, self._lease, self._patience = semaphore, lease, patience
        self._since = time.monotonic()
        self.timer = lease.loop.call_later(patience, self._check)

    def _check(self) -> None:
        left = self._semaphore.left_of(self._patience, self._since)
        if left > 0:
            self.timer = self._lease.loop.call_later(left, self._check)
        else:
            self._lease.late = True
            self._lease.wake()


class Semaphore:
    """Permits in the order of the requests. `release` never blocks: run by garbage collection, it may interrupt any code."""

    def __init__(self, permits: int, timer: Timer) -> None:
        self._permits: Permits[Claim] = Permits(permits)
        self._mutex = threading.Lock()
        self._recovering = threading.Lock()
        self._deferred_releases: deque[Claim] = deque()
        self._timer = timer
        self._returned = time.monotonic()
        """When a holder returned its permit last."""
        self.due: float | None = None

    @property
    def holders(self) -> int:
        return len(self._permits.held)

    def enter(self, lease: Claim) -> bool:
        """Take a permit if one is free, without waiting. False: the caller must now `wait`, `accept` or `release`."""
        with self._mutex:
            entered = self._permits.enter(lease)
        if self._deferred_releases:
            self._process_releases()
        return entered

    def accept(self, lease: Claim) -> bool:
        """Take the permit that was offered to the lease. False: there is no offer yet, or no longer."""
        with self._mutex:
            accepted = self._permits.accept(lease)
        if self._deferred_releases:
            self._process_releases()
        return accepted

    async def wait(self, lease: Lease, patience: float | None = None) -> None:
        """Wait for the permit. TimeoutError if none returns in `patience` seconds. Errors and cancellations release the lease."""
        self.watch()
        alarm = None if patience is None else _Alarm(self, lease, patience)
        try:
            while True:
                await lease.woken()
                if self.accept(lease):
                    return
                if lease.late:
                    raise TimeoutError
        except BaseException:
            self.release(lease)
            raise
        finally:
            if alarm is not None:
                alarm.timer.cancel()

    def release(self, lease: Claim) -> None:
        """Pass the permit on to the next in line. Any thread may call this; calling it again does nothing."""
        if not self._mutex.acquire(blocking=False):
            self._deferred_releases.append(lease)
        else:
            try:
                self._leave(lease)
                if self._permits.waiting:
                    self._offer()
            finally:
                self._mutex.release()
        if self._deferred_releases:
            self._process_releases()

    def left_of(self, patience: float, since: float) -> float:
        return max(since, self._returned) + patience - time.monotonic()

    def recover_permits(self, now: float) -> None:
        """Recover permits that were offered to, or are held by, loops that ended or are blocked."""
        with self._recovering:
            with self._mutex:
                self._permits.expire(now - _CHECK_INTERVAL)
                self._offer()
                stranded = [lease for lease in (*self._permits.held, *self._permits.late) if lease.stranded]
            for lease in stranded:
                if lease.recover():
                    self.release(lease)
            self._process_releases()

    def on_timer(self, now: float) -> None:
        self.due = None  # first, so that a caller who comes now schedules the next check
        self.recover_permits(now)
        if self._permits.waiting or self._permits.offered or self._permits.held:
            self.watch()

    def watch(self) -> None:
        """Check for lost permits every second from now on, as long as a permit is held or waited for."""
        if self.due is None:
            self.due = time.monotonic() + _CHECK_INTERVAL
            self._timer.watch(self)

    def _process_releases(self) -> None:
        # The thread that has the mutex calls this again after releasing it: no queued lease is forgotten.
        while self._deferred_releases and self._mutex.acquire(blocking=False):
            try:
                while self._deferred_releases:
                    self._leave(self._deferred_releases.popleft())
                if self._permits.waiting:
                    self._offer()
            finally:
                self._mutex.release()

    def _leave(self, lease: Claim) -> None:
        if lease in self._permits.held:
            self._returned = time.monotonic()
        self._permits.leave(lease)

    def _offer(self) -> None:
        while (lease := self._permits.offer(time.monotonic())) is not None:
            try:
                lease.notify()
            except RuntimeError:  # the lease's loop is closed
                self._permits.leave(lease)
