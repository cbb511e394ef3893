"""The rules of a fair (first come, first served) semaphore, without threads or event loops.

A waiting lease is offered a permit and has to accept it. An offer that is not accepted in time goes to the next in line, so
that an event loop that ended or is blocked does not hold up the others. A lease that accepts too late waits again, at the
front of the line.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

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
        """Reserve a permit for the next lease in line; returns that lease, to be notified.

        None if no permit is free or no lease waits.
        """
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
