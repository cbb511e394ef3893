"""What a store counts about itself while it works, for `Store.metrics`.

Each number is changed under a lock: one that its writer holds anyway, as a pinned connection's, or that of `Counters`.
"""

import threading
from collections import Counter, deque
from typing import Literal

Outcome = Literal["committed", "rolled_back", "unknown", "read"]
"""How a transaction ended. `unknown`: COMMIT failed, and may have been carried out. `read`: a snapshot, which writes nothing."""


class ConnectionTally:
    """What one pinned connection wrote. Changed by the thread that has the connection's mutex.

    commits   transactions and single statements that committed
    groups    of these, commits of the tasks of several writers, or of one that might have been several
    grouped   the tasks in all groups
    largest   the tasks in the largest group
    waits     how often the connection, or the store's lock, was held by somebody else
    waited    seconds of these waits
    """

    __slots__ = ("commits", "grouped", "groups", "largest", "waited", "waits")

    def __init__(self) -> None:
        self.commits = self.groups = self.grouped = self.largest = self.waits = 0
        self.waited = 0.0

    def group(self, size: int) -> None:
        """Count one commit of so many tasks."""
        self.groups += 1
        self.grouped += size
        self.largest = max(self.largest, size)


class RecorderTally:
    """What one recorder made durable. Changed under the recorder's lock.

    chunks    chunks whose call returned, whether the save policy wrote them at once or not
    bytes     bytes of UTF-8 of the text that these added to growing parts
    folds     parts whose delta rows were moved into the part
    """

    __slots__ = ("bytes", "chunks", "folds")

    def __init__(self) -> None:
        self.chunks = self.bytes = self.folds = 0

    def add(self, other: "RecorderTally") -> None:
        """Add what another recorder did."""
        self.chunks += other.chunks
        self.bytes += other.bytes
        self.folds += other.folds


class Counters:
    """The numbers of one store since it was opened."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.waited = self.committing = self.lag = 0.0
        self.looks = self.leases_lost = self.commits = 0
        self.snapshots = 0
        """Snapshots that began, counted by the store under the lock that it holds then."""
        self._connections: list[ConnectionTally] = []
        self._recorders: set[RecorderTally] = set()
        self._over: deque[RecorderTally] = deque()
        """Numbers of recorders that have ended since the last one began, or somebody asked."""
        self._ended = RecorderTally()
        self._recorders_ended = 0

    def transaction_ended(self, outcome: Outcome, waited: float, committing: float) -> None:
        """Count a transaction that writes: how long it waited for its beginning, and how long its COMMIT took, in seconds."""
        if outcome == "committed":
            return self.committed(waited, committing)
        with self._mutex:
            self.outcomes[outcome] += 1
            self.waited += waited
            self.committing += committing

    def committed(self, waited: float, committing: float) -> None:
        """Count a transaction that committed, as nearly all do."""
        with self._mutex:
            self.commits += 1
            self.waited += waited
            self.committing += committing

    def retried(self, cause: str) -> None:
        """Count one more attempt, by what failed before."""
        with self._mutex:
            self.retries[cause] += 1

    def lease_lost(self) -> None:
        """Count a run that a worker of this store held, and lost."""
        with self._mutex:
            self.leases_lost += 1

    def followed(self, lag: float) -> None:
        """Count a look of a follower, so many seconds after it was told of a change."""
        with self._mutex:
            self.looks += 1
            self.lag += lag

    def connection(self) -> ConnectionTally:
        """Return the numbers of a new pinned connection."""
        tally = ConnectionTally()
        with self._mutex:
            self._connections.append(tally)
        return tally

    def recorder_began(self, tally: RecorderTally) -> None:
        """Count a recorder that has begun: its session was found, and nothing refused it."""
        with self._mutex:
            self._settle()
            self._recorders.add(tally)

    def recorder_withdrawn(self, tally: RecorderTally) -> None:
        """Count a recorder no more whose caller was cancelled while it began."""
        with self._mutex:
            self._recorders.discard(tally)

    def recorder_ended(self, tally: RecorderTally) -> None:
        """Keep the numbers of a recorder that has ended. A second call does nothing, nor one for a recorder that never began.

        No lock is taken: the garbage collector may call this in a thread that holds it.
        """
        self._over.append(tally)

    def _settle(self) -> None:
        while self._over:
            over = self._over.popleft()
            if over in self._recorders:
                self._recorders.discard(over)
                self._ended.add(over)
                self._recorders_ended += 1

    def connections(self) -> ConnectionTally:
        """Return the sum over all pinned connections."""
        total = ConnectionTally()
        with self._mutex:
            for tally in self._connections:
                total.commits += tally.commits
                total.groups += tally.groups
                total.grouped += tally.grouped
                total.largest = max(total.largest, tally.largest)
                total.waits += tally.waits
                total.waited += tally.waited
        return total

    def recorders(self) -> tuple[int, int, RecorderTally]:
        """Return the number of recorders that run, of those that ended, and the sum over all."""
        total = RecorderTally()
        with self._mutex:
            self._settle()
            total.add(self._ended)
            for tally in self._recorders:
                total.add(tally)
            return len(self._recorders), self._recorders_ended, total
