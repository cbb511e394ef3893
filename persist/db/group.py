"""Group commit for the async face: one thread drains what waits into one transaction and answers every waiter."""

import asyncio
import queue
import threading
from contextlib import suppress
from enum import Enum
from typing import Any, Generic, TypeVar

from persist.db.held import HeldConnection, Job, Outcome

R = TypeVar("R")
_MOST = 256


class _State(Enum):
    WAITING = 0
    STARTED = 1
    CANCELLED = 2


class _Ticket(Generic[R]):
    __slots__ = ("future", "job", "lock", "loop", "state")

    def __init__(self, job: Job[R], loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.loop = loop
        self.future: asyncio.Future[Outcome[R]] = loop.create_future()
        self.state = _State.WAITING
        self.lock = threading.Lock()

    def advance(self, state: _State) -> bool:
        """Leave WAITING, once: either the writer takes the ticket, or its task cancels it."""
        with self.lock:
            if self.state is not _State.WAITING:
                return False
            self.state = state
            return True


class GroupWriter:
    """Its waiters' chunks share commits; a failing one fails alone."""

    def __init__(self, held: HeldConnection, *, bound: int = 4096) -> None:
        self._held = held
        self._queue: queue.SimpleQueue[_Ticket[Any] | None] = queue.SimpleQueue()
        self._slots = asyncio.Semaphore(bound)
        self._thread: threading.Thread | None = None

    async def run(self, job: Job[R]) -> tuple[Outcome[R], asyncio.CancelledError | None]:
        """What became of the job, and the cancellation that arrived meanwhile, for the caller to raise.

        Cancelled while it waits in the queue, the job never starts; cancelled later, its end is awaited first: it is
        always known whether a chunk is durable.
        """
        async with self._slots:
            ticket = _Ticket(job, asyncio.get_running_loop())
            if self._thread is None:
                self._thread = threading.Thread(target=self._drain, name="persist-writer", daemon=True)
                self._thread.start()
            self._queue.put(ticket)
            try:
                await asyncio.shield(ticket.future)
            except asyncio.CancelledError as cancelled:
                if ticket.advance(_State.CANCELLED):
                    return Outcome(error=cancelled), cancelled
                return await _settled(ticket.future), cancelled
            return ticket.future.result(), None

    async def close(self) -> None:
        """After the last job: end the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _drain(self) -> None:
        while True:
            first = self._queue.get()
            batch = [first]
            while len(batch) < _MOST:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            tickets = [ticket for ticket in batch if ticket is not None and ticket.advance(_State.STARTED)]
            if tickets:
                outcomes = self._held.run_group([ticket.job for ticket in tickets])
                _answer(tickets, outcomes)
            if None in batch:
                return


async def _settled(future: "asyncio.Future[Outcome[R]]") -> Outcome[R]:
    """The outcome, through further cancellations: it is a few milliseconds away."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    return future.result()


def _answer(tickets: list[_Ticket[Any]], outcomes: list[Outcome[Any]]) -> None:
    """One wake-up per event loop, not one per chunk."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Ticket[Any], Outcome[Any]]]] = {}
    for ticket, outcome in zip(tickets, outcomes, strict=True):
        by_loop.setdefault(ticket.loop, []).append((ticket, outcome))
    for loop, answers in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, answers)


def _resolve(answers: list[tuple[_Ticket[Any], Outcome[Any]]]) -> None:
    for ticket, outcome in answers:
        if not ticket.future.done():
            ticket.future.set_result(outcome)
