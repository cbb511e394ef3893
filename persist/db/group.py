"""Group commit for the async face: one thread runs what waits in one transaction and answers every waiter."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from persist.db.held import HeldConnection
from persist.db.instant import InstantConnection
from persist.db.jobs import Outcome, Task
from persist.errors import Closed

R = TypeVar("R")
_MOST = 256
_IN_A_ROW = 16
_WRITTEN: Outcome[Any] = Outcome()


class _Ticket(Generic[R]):
    __slots__ = ("future", "job", "outcome", "taken")

    def __init__(self, job: Task[R], loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.future: asyncio.Future[None] = loop.create_future()
        self.taken = False
        """By the writer: it can no longer be called off."""
        self.outcome: Outcome[R] | None = None

    async def settled(self, loop: asyncio.AbstractEventLoop) -> Outcome[R]:
        """The outcome, through further cancellations: it is a few milliseconds away."""
        while self.outcome is None:
            if self.future.done():
                self.future = loop.create_future()
            with suppress(asyncio.CancelledError):
                await self.future
        return self.outcome


class _Lane:
    """What waits on one event loop. Only that loop's thread touches it, so there is no lock.

    One batch is under way at a time; what comes meanwhile is the next one. A batch leaves when the loop has run everybody who
    is ready, so that those who were woken by the last one share the next. Whoever was alone in a batch need not wait for the
    loop the next times, but for every so many, when it sees whether it still is.
    """

    def __init__(self, instant: InstantConnection, hand_over: "Callable[[_Batch], bool]", bound: int) -> None:
        self._instant = instant
        self._hand_over = hand_over
        self._bound = bound
        self._waiting: list[_Ticket[Any]] = []
        self._under_way = False
        self._at_once = 0
        self._room = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many no batch has taken yet."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether the next in line has to wait for room."""
        return len(self._waiting) >= self._bound

    async def room(self) -> None:
        """Wait for it."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def written(self, job: Task[Any]) -> bool:
        """Whether it could be written here and now, by whoever is alone."""
        if not self._at_once or self._under_way:
            return False
        self._at_once -= 1
        return self._instant.write((job,))

    def admit(self, ticket: _Ticket[Any], loop: asyncio.AbstractEventLoop) -> None:
        """Into the queue."""
        self._waiting.append(ticket)
        if not self._under_way:
            self._under_way = True
            loop.call_soon(self._send, loop)

    def call_off(self, ticket: _Ticket[Any]) -> bool:
        """Out of the queue, or not into it; False when the writer has it."""
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        return not ticket.taken

    def landed(self, batch: "_Batch", outcomes: Sequence[Outcome[Any]]) -> None:
        """It is known what became of a batch."""
        for ticket, outcome in zip(batch.tickets, outcomes, strict=True):
            ticket.outcome = outcome
            if not ticket.future.done():  # it is when its task was cancelled
                ticket.future.set_result(None)
        self._under_way = bool(self._waiting)
        if self._under_way:
            batch.loop.call_soon(self._send, batch.loop)

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        tickets, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
        self._under_way = bool(tickets)
        if not tickets:  # all of them were called off
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
    __slots__ = ("lane", "loop", "tickets")

    def __init__(self, lane: _Lane, loop: asyncio.AbstractEventLoop, tickets: list[_Ticket[Any]]) -> None:
        self.lane, self.loop, self.tickets = lane, loop, tickets

    def jobs(self) -> list[Task[Any]]:
        return [ticket.job for ticket in self.tickets]


class GroupWriter:
    """Its waiters' chunks share commits; a failing one fails alone."""

    def __init__(self, held: HeldConnection, *, bound: int = 4096) -> None:
        self._held = held
        self._instant = InstantConnection(held.runtime)
        self._bound = bound
        self._mutex = threading.Lock()
        self._lanes: dict[asyncio.AbstractEventLoop, _Lane] = {}
        """Changed under the mutex: loops of several threads come and go."""
        self._thread: threading.Thread | None = None
        self._queue: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        """The thread's own."""

    @property
    def waiting(self) -> int:
        """Jobs that no batch has taken yet."""
        with self._mutex:
            return sum(lane.waiting for lane in self._lanes.values())

    async def run(self, job: Task[R]) -> tuple[Outcome[R], asyncio.CancelledError | None]:
        """What became of the job, and the cancellation that arrived meanwhile, for the caller to raise.

        Cancelled while it waits in the queue, the job never starts; cancelled later, its end is awaited first: it is
        always known whether a chunk is durable.
        """
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop) or self._new_lane(loop)
        if lane.written(job):
            return _WRITTEN, None
        ticket = _Ticket(job, loop)
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

    async def close(self) -> None:
        """End the thread after the jobs that it has. Until the store is closed another job starts one anew."""
        with self._mutex:
            thread, self._thread = self._thread, None
            self._lanes.clear()
            if thread is not None:
                self._queue.put(None)
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)
        self._instant.close()

    def _new_lane(self, loop: asyncio.AbstractEventLoop) -> _Lane:
        with self._mutex:
            self._start()
            for former in [former for former in self._lanes if former.is_closed()]:
                del self._lanes[former]
            lane = self._lanes[loop] = _Lane(self._instant, self._hand_over, self._bound)
            return lane

    def _hand_over(self, batch: _Batch) -> bool:
        """To the thread; False where there is none any more."""
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

    def _work(self, batches: "queue.SimpleQueue[_Batch | None]") -> None:
        self._instant.prepare()
        while (batch := batches.get()) is not None:
            outcomes = self._held.run_group(batch.jobs())
            with suppress(RuntimeError):  # the loop was closed, and nobody waits any more
                batch.loop.call_soon_threadsafe(batch.lane.landed, batch, outcomes)
            del batch, outcomes
