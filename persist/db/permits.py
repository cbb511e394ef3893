"""Who may go on and who waits, first come, first served: the rules of a fair semaphore, without a thread or an event loop.

Whoever waits is offered a permit, and has to accept it. An offer that is not accepted in time goes to the next in line, so
that a loop that ended, stopped or stands still keeps nobody waiting; whoever comes late for it waits on, in front of all others.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

L = TypeVar("L", bound=Hashable)


class Permits(Generic[L]):
    """At most `free` leases hold one at a time. Nobody who comes later is ahead of those who wait, but of those who are late."""

    def __init__(self, free: int) -> None:
        self.free = free
        """Neither held nor offered; while there is one, nobody is waiting."""
        self.held: set[L] = set()
        self.waiting: OrderedDict[L, None] = OrderedDict()
        self.offered: dict[L, float] = {}
        self.late: set[L] = set()

    def enter(self, lease: L) -> bool:
        """Take a permit, or stand in line for one; whether it was taken."""
        if self.free:
            self.free -= 1
            self.held.add(lease)
            return True
        self.waiting[lease] = None
        return False

    def offer(self, now: float) -> L | None:
        """The next in line, who is to be told that a permit is kept for it; None where there is none, or nobody waits."""
        if not self.free or not self.waiting:
            return None
        lease, _ = self.waiting.popitem(last=False)
        self.free -= 1
        self.offered[lease] = now
        return lease

    def accept(self, lease: L) -> bool:
        """Whether the lease, which was told so or hoped so, holds a permit now."""
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
        """Take back what was offered before that instant."""
        for lease in [lease for lease, since in self.offered.items() if since <= before]:
            del self.offered[lease]
            self.late.add(lease)
            self.free += 1

    def leave(self, lease: L) -> None:
        """Give the permit back, or the offer, or the place in line; twice is once."""
        if lease in self.held:
            self.held.remove(lease)
            self.free += 1
        elif self.offered.pop(lease, None) is not None:
            self.free += 1
        else:
            self.waiting.pop(lease, None)
            self.late.discard(lease)
