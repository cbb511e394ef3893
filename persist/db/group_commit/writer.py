"""Group commit for the async API: one thread runs all queued jobs in one transaction and completes each job's future."""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from persist.db.group_commit.loop_connection import InlineConnection
from persist.db.group_commit.pinned_connection import PinnedConnection
from persist.db.group_commit.tasks import Outcome, WriteTask
from persist.errors import Closed

R = TypeVar("R")
_MAX = 256
_IN_A_ROW = 16
_WRITTEN: Outcome[Any] = Outcome()
_Posted = tuple[WriteTask[Any], Callable[[Outcome[Any]], None]]
"""A job and what to call with its outcome."""


class _PendingCommit(Generic[R]):
    __slots__ = ("future", "job", "outcome", "taken")

    def __init__(self, job: WriteTask[R], loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.future: asyncio.Future[None] = loop.create_future()
        self.taken = False
        """Whether a batch has taken the job, which can then no longer be cancelled."""
        self.outcome: Outcome[R] | None = None

    async def settled(self, loop: asyncio.AbstractEventLoop) -> Outcome[R]:
        """Wait for the outcome despite further cancellations; it is a few milliseconds away."""
        while self.outcome is None:
            if self.future.done():
                self.future = loop.create_future()
            with suppress(asyncio.CancelledError):
                await self.future
        return self.outcome


class _LoopQueue:
    """The jobs that wait on one event loop. Only that loop's thread touches the queue, so there is no lock.

    One batch is under way at a time; jobs that arrive before it ends form the next one. A batch is sent on the next loop
    iteration, so that tasks woken together are committed together. After a batch of one, the next 16 writes are committed
    inline without waiting for the loop; then the queue checks again whether the writer is still alone.
    """

    def __init__(self, instant: InlineConnection, hand_over: "Callable[[_Batch], bool]", bound: int) -> None:
        self._instant = instant
        self._hand_over = hand_over
        self._bound = bound
        self._waiting: list[_PendingCommit[Any]] = []
        self._under_way = False
        self._at_once = 0
        self._room = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many jobs no batch has taken yet."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether the next job has to wait for room in the queue."""
        return len(self._waiting) >= self._bound

    async def room(self) -> None:
        """Wait for room in the queue."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def written(self, job: WriteTask[Any]) -> bool:
        """Commit the job inline if its writer is alone. False: nothing was written, and the job has to be queued."""
        if not self._at_once or self._under_way:
            return False
        self._at_once -= 1
        return self._instant.write((job,))

    def admit(self, ticket: _PendingCommit[Any], loop: asyncio.AbstractEventLoop) -> None:
        """Put a job into the queue and schedule a batch unless one is under way."""
        self._waiting.append(ticket)
        if not self._under_way:
            self._under_way = True
            loop.call_soon(self._send, loop)

    def call_off(self, ticket: _PendingCommit[Any]) -> bool:
        """Cancel a job that waits for room or in the queue. False once a batch has taken it."""
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        return not ticket.taken

    def landed(self, batch: "_Batch", outcomes: Sequence[Outcome[Any]]) -> None:
        """Complete the jobs of a batch with their outcomes, and schedule the next batch."""
        for ticket, outcome in zip(batch.tickets, outcomes, strict=True):
            ticket.outcome = outcome
            if not ticket.future.done():  # the future is done if its task was cancelled
                ticket.future.set_result(None)
        self._under_way = bool(self._waiting)
        if self._under_way:
            batch.loop.call_soon(self._send, batch.loop)

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        tickets, self._waiting = self._waiting[:_MAX], self._waiting[_MAX:]
        self._under_way = bool(tickets)
        if not tickets:  # every job was cancelled
            return
        for ticket in tickets:
            ticket.taken = True
        self._at_once = _IN_A_ROW if len(tickets) == 1 else 0
        self._room.set()
        batch = _Batch(self, loop, tickets)
        if self._instant.write(batch.jobs()):
            self.landed(batch, [_WRITTEN] * len(tickets))
        elif not self._hand_over(batch):
            self.landed(batch, [Outcome(error=Closed("store"))] * len(tickets))


class _Batch:
    """Jobs of one event loop's queue."""

    __slots__ = ("lane", "loop", "tickets")

    def __init__(self, lane: _LoopQueue, loop: asyncio.AbstractEventLoop, tickets: list[_PendingCommit[Any]]) -> None:
        self.lane, self.loop, self.tickets = lane, loop, tickets

    def jobs(self) -> list[WriteTask[Any]]:
        return [ticket.job for ticket in self.tickets]

    def land(self, outcomes: Sequence[Outcome[Any]]) -> None:
        with suppress(RuntimeError):  # the loop was closed, so no task waits for the outcome
            self.loop.call_soon_threadsafe(self.lane.landed, self, outcomes)


class _PostedBatch:
    """Jobs that no event loop waits for: all that were posted until the writer thread came to this batch."""

    __slots__ = ("_posted", "_taken")

    def __init__(self, posted: "deque[_Posted]") -> None:
        self._posted = posted
        self._taken: list[_Posted] = []

    def jobs(self) -> list[WriteTask[Any]]:
        with suppress(IndexError):  # an earlier batch took the rest
            while len(self._taken) < _MAX:
                self._taken.append(self._posted.popleft())
        return [job for job, _ in self._taken]

    def land(self, outcomes: Sequence[Outcome[Any]]) -> None:
        for (_, landed), outcome in zip(self._taken, outcomes, strict=True):
            landed(outcome)


class GroupCommitter:
    """Commits the jobs of many tasks in shared transactions; a job that fails, fails alone."""

    def __init__(self, held: PinnedConnection, *, bound: int = 4096) -> None:
        self._held = held
        self._instant = InlineConnection(held.runtime)
        self._bound = bound
        self._mutex = threading.Lock()
        self._lanes: dict[asyncio.AbstractEventLoop, _LoopQueue] = {}
        """The queue of each event loop. Changed under the mutex, since loops of several threads start and end."""
        self._thread: threading.Thread | None = None
        self._posted: deque[_Posted] = deque()
        self._queue: queue.SimpleQueue[_Batch | _PostedBatch | None] = queue.SimpleQueue()
        """Batches for the current writer thread; each thread gets a queue of its own."""

    @property
    def waiting(self) -> int:
        """How many jobs of all loops no batch has taken yet."""
        with self._mutex:
            return sum(lane.waiting for lane in self._lanes.values())

    async def run(self, job: WriteTask[R]) -> tuple[Outcome[R], asyncio.CancelledError | None]:
        """Run the job. Return its outcome, and a cancellation that arrived before its end, for the caller to raise.

        A job that is cancelled in the queue never starts. Once a batch has taken it, its end is awaited first, so that it
        is always known whether a chunk is durable.
        """
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop) or self._new_lane(loop)
        if lane.written(job):
            return _WRITTEN, None
        ticket = _PendingCommit(job, loop)
        try:
            if lane.full:
                await lane.room()
            lane.admit(ticket, loop)
            await ticket.future
        except asyncio.CancelledError as cancelled:
            if lane.call_off(ticket):
                return Outcome(error=cancelled), cancelled
            return await ticket.settled(loop), cancelled
        assert ticket.outcome is not None, "a future is set with its outcome"
        return ticket.outcome, None

    def post(self, job: WriteTask[Any], landed: Callable[[Outcome[Any]], None]) -> None:
        """Run a job for which no event loop waits, and call `landed` on the writer thread; `landed` must not raise."""
        with self._mutex:
            if started := self._start():
                self._posted.append((job, landed))
                self._queue.put(_PostedBatch(self._posted))
        if not started:
            landed(Outcome(error=Closed("store")))

    async def close(self) -> None:
        """End the writer thread after its queued batches. Until the store is closed, another job starts a new thread."""
        with self._mutex:
            thread, self._thread = self._thread, None
            self._lanes.clear()
            if thread is not None:
                self._queue.put(None)
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)
        self._instant.close()

    def _new_lane(self, loop: asyncio.AbstractEventLoop) -> _LoopQueue:
        with self._mutex:
            self._start()
            for former in [former for former in self._lanes if former.is_closed()]:
                del self._lanes[former]
            lane = self._lanes[loop] = _LoopQueue(self._instant, self._hand_over, self._bound)
            return lane

    def _hand_over(self, batch: _Batch) -> bool:
        """Give the batch to the writer thread. False: the store is closed, and there is no thread."""
        with self._mutex:
            if not self._start():
                return False
            self._queue.put(batch)
            return True

    def _start(self) -> bool:
        if self._thread is None and not self._held.runtime.closed:
            self._queue = queue.SimpleQueue()
            self._thread = threading.Thread(target=self._work, args=(self._queue,), name="persist-writer", daemon=True)
            self._thread.start()
        return self._thread is not None

    def _work(self, batches: "queue.SimpleQueue[_Batch | _PostedBatch | None]") -> None:
        self._instant.prepare()
        while (batch := batches.get()) is not None:
            if jobs := batch.jobs():
                batch.land(self._held.run_group(jobs))
            del batch, jobs
