"""Group commit for the async API: one thread runs all queued jobs in one transaction and completes each job's future."""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from persist.db.group_commit.pinned_connection import PinnedConnection
from persist.db.group_commit.tasks import Outcome, SingleRowInsert, WriteTask
from persist.db.statements.prepared import MAX_ROWS, Statement
from persist.errors import Closed

# A small commit to a WAL file at synchronous=NORMAL copies a few pages into the system's cache: some ten microseconds, less than
# waking a thread and being woken by it. Anything that could take long is left to the writer thread: a lock that is held
# elsewhere, a checkpoint, a statement that fails.

MAX = 128
"""Most rows in one inline commit, so that it does not block the loop for long."""


class InlineConnection(PinnedConnection):
    """A pinned connection that commits on the event loop and never waits for a lock."""

    _able = False

    def prepare(self) -> None:
        """Open the connection, on the writer thread since that may block. Never on a caller's engine: its pool would lose one."""
        dialect = self.runtime.dialect
        if dialect.one_file and not dialect.in_memory and self.runtime.owns_engine and not self._able:
            with self.mutex:
                self._ready()
                self._able = self._restore is not None
            if not self._able:
                self.close()

    def write(self, tasks: Sequence[WriteTask[Any]]) -> bool:
        """Write every row of a group durably, here and now. False: nothing was written, and the writer thread must try."""
        runtime = self.runtime
        if not self._able or len(tasks) > MAX or runtime.log is not None:
            return False
        rows = [task for task in tasks if isinstance(task, SingleRowInsert)]
        if len(rows) != len(tasks) or not runtime.lock.take(threading.get_ident()):
            return False
        try:
            with self.mutex:
                written = not runtime.closed and self._write(rows)  # the connection is closed for good only after the store is
                if written:
                    self.tally.commits += 1
                    self.tally.group(len(rows))
                return written
        except Exception:  # the writer thread tries again, and reports the error if there still is one
            return False
        finally:
            runtime.lock.release()

    def _write(self, rows: Sequence[SingleRowInsert]) -> bool:
        if self._driver is None:
            self._ready()
        self._rewire()
        try:
            if len(rows) == 1:
                return self.runtime.prepared[rows[0].prepared].run(self._runner, rows[0].values) == 1
            self._runner.execute("BEGIN IMMEDIATE")
            if not self._write_rows(rows):
                self._undo()
                return False
            self._runner.execute("COMMIT")
        except BaseException:
            self._undo()
            raise
        return True

    def _prepare(self, driver: Any) -> Callable[[], None] | None:
        return self.runtime.connections.prepare_inline(driver)


Rows = Sequence[Mapping[str, Any]]


class _CallRows:
    """The rows of one call. The call's thread wakes when its rows are settled, or to write the waiting rows of all calls."""

    __slots__ = ("error", "rows", "settled", "woken", "written")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.settled = self.written = False
        self.error: BaseException | None = None
        self.woken = threading.Lock()
        self.woken.acquire()


class SharedRows:
    """Writes rows by one INSERT, which may find a row there already. The first thread that comes writes for all that wait."""

    def __init__(self, held: PinnedConnection, prepared: Statement) -> None:
        self._held, self._prepared = held, prepared
        self._mutex = threading.Lock()
        self._waiting: deque[_CallRows] = deque()
        self._led = False
        """Whether a thread writes, or was woken to write."""

    def write(self, rows: Rows, *, what: str) -> bool:
        """Write the rows durably. False: none of them was written, and the caller has to do so in a transaction."""
        held = self._held
        if not held.writes_at_once or len(rows) > MAX_ROWS:
            return False
        held.runtime.check_may_write(what)
        given = _CallRows(rows)
        with self._mutex:
            self._waiting.append(given)
            led, self._led = self._led, True
        if led:
            self._wait(given)
        if not given.settled:
            try:
                self._lead(what)
            finally:
                self._pass_on()
        if given.error is not None:
            raise given.error
        return given.written

    def _wait(self, given: _CallRows) -> None:
        try:
            given.woken.acquire()
        except BaseException:  # KeyboardInterrupt
            with self._mutex:
                waits = given in self._waiting
                if waits:
                    self._waiting.remove(given)
                leads = not given.woken.locked() and not given.settled
            if leads:
                self._pass_on()
            raise

    def _lead(self, what: str) -> None:
        taken: list[_CallRows] = []

        def write(driver: Any) -> None:
            taken.extend(self._taken())
            compiled = self._held.runtime.prepared[self._prepared]
            compiled.run_many(driver, [row for given in taken for row in given.rows])

        error: BaseException | None = None
        written = False
        try:
            written = self._held.write_at_once(write, what=what)
        except Exception as failed:
            error = failed
        finally:  # after KeyboardInterrupt, too: then the others write alone
            for given in taken or self._taken():
                given.error, given.written, given.settled = error, written, True
                given.woken.release()

    def _taken(self) -> list[_CallRows]:
        with self._mutex:
            taken = [self._waiting.popleft()]
            count = len(taken[0].rows)
            while self._waiting and (count := count + len(self._waiting[0].rows)) <= MAX_ROWS:
                taken.append(self._waiting.popleft())
            return taken

    def _pass_on(self) -> None:
        with self._mutex:
            self._led = bool(self._waiting)
            if self._led:
                self._waiting[0].woken.release()


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
    """The jobs that wait on one event loop, whose thread alone touches them. While a batch is under way, the next forms."""

    def __init__(self, instant: InlineConnection, hand_over: "Callable[[_Batch], bool]", bound: int) -> None:
        self._instant = instant
        self._hand_over = hand_over
        self._bound = bound
        self.waiting: list[_PendingCommit[Any]] = []
        self._under_way = False
        self._at_once = 0
        self._room = asyncio.Event()

    @property
    def full(self) -> bool:
        return len(self.waiting) >= self._bound

    async def room(self) -> None:
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
        self.waiting.append(ticket)
        if not self._under_way:
            self._under_way = True
            loop.call_soon(self._send, loop)

    def call_off(self, ticket: _PendingCommit[Any]) -> bool:
        """Cancel a job that waits for room or in the queue. False once a batch has taken it."""
        if ticket in self.waiting:
            self.waiting.remove(ticket)
        return not ticket.taken

    def landed(self, batch: "_Batch", outcomes: Sequence[Outcome[Any]]) -> None:
        for ticket, outcome in zip(batch.tickets, outcomes, strict=True):
            ticket.outcome = outcome
            if not ticket.future.done():  # the future is done if its task was cancelled
                ticket.future.set_result(None)
        self._under_way = bool(self.waiting)
        if self._under_way:
            batch.loop.call_soon(self._send, batch.loop)

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        tickets, self.waiting = self.waiting[:_MAX], self.waiting[_MAX:]
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
            return sum(len(lane.waiting) for lane in self._lanes.values())

    async def run(self, job: WriteTask[R]) -> tuple[Outcome[R], asyncio.CancelledError | None]:
        """Run the job: its outcome, and a cancellation to raise, before which a job that a batch has taken is awaited."""
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

    def leave(self) -> None:
        """End the writer thread without waiting for it, from a finalizer of what alone uses it."""
        self._thread = None
        self._queue.put(None)

    def _new_lane(self, loop: asyncio.AbstractEventLoop) -> _LoopQueue:
        with self._mutex:
            self._start()
            for former in [former for former in self._lanes if former.is_closed()]:
                del self._lanes[former]
            lane = self._lanes[loop] = _LoopQueue(self._instant, self._hand_over, self._bound)
            return lane

    def _hand_over(self, batch: _Batch) -> bool:
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
