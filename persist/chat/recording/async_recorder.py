"""The async recorder. It shares `Recording` with the sync one and sends database work to the store's group committer."""

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Unpack

from persist.chat.recording.recorder import SseQueue
from persist.chat.recording.recording import Recording, RecordOptions
from persist.chat.recording.resume import StopRequested
from persist.chat.recording.stream import DatabaseSteps
from persist.chat.reducer.sse import NOTHING
from persist.chat.storage.usage import StepTokens, check_step, step_counts
from persist.db.concurrency.semaphore import Claim, Lease, Semaphore
from persist.db.concurrency.worker_threads import Timer
from persist.db.group_commit.tasks import Outcome
from persist.db.group_commit.writer import GroupCommitter
from persist.db.transactions.notifier import Tell
from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import spells_keywords
from persist.errors import Closed

log = logging.getLogger("persist")


class AsyncRecorder:
    """See Recorder. Recorders share commits; a chunk that fails fails alone. A cancelled `feed` did not start, or is durable."""

    def __init__(
        self,
        runtime: Runtime,
        writer: GroupCommitter,
        timer: Timer,
        session_id: str,
        options: RecordOptions,
        announce: Tell | None = None,
    ) -> None:
        self._runtime = runtime
        self._writer = writer
        self._timer = timer
        self._recording = Recording(runtime, session_id, options, announce)
        self._sse_queue = SseQueue(self._recording, runtime.limits.max_bytes)
        self._lock = Semaphore(1, timer)
        self._spare_lease: _RecordingLease | None = None
        self._timed_claim: _TimedClaim | None = None
        self.due: float | None = None

    @property
    def message_id(self) -> str | None:
        """See Recorder.message_id."""
        return self._recording.message_id

    @property
    def ignored(self) -> int:
        """See Recorder.ignored."""
        return self._recording.ignored

    @property
    def stop_requested(self) -> StopRequested:
        """Whether the turn was asked to stop: see Recorder.stop_requested. `await recorder.stop_requested` waits until it is."""
        return StopRequested(self._recording.stop_requests)

    async def feed(self, chunk: Mapping[str, Any]) -> None:
        """See Recorder.feed."""
        self._runtime.check_outside("feed()")
        lease = self._lease()
        if not self._lock.enter(lease):
            await self._lock.wait(lease)
        try:
            recording = self._recording
            if recording.closed or not recording.opened:
                await self._open()
            delta_insert = recording.delta_insert(chunk)
            if delta_insert is None:
                await self._drive(recording.feeding((chunk,)))
                return
            outcome, cancelled = await self._writer.run(delta_insert)
            if outcome.error is not None:
                recording.undo(delta_insert, outcome.error)
                self._schedule()
            elif recording.keep(delta_insert):
                self._schedule()
            if (error := cancelled or outcome.error) is not None:
                raise error
        except GeneratorExit:
            lease.recover()
            raise
        finally:
            self._lock.release(lease)
            self._spare_lease = lease

    async def feed_many(self, chunks: Iterable[Mapping[str, Any]]) -> None:
        """See Recorder.feed_many."""
        await self._run_steps("feed_many()", lambda recording: recording.feeding(chunks))

    async def feed_sse(self, data: str | bytes) -> None:
        """See Recorder.feed_sse."""
        chunk = self._sse_queue.single_frame(data)
        if chunk is not None:
            if chunk is not NOTHING:
                await self.feed(chunk)
            return
        self._runtime.check_process()
        async with self._lease():
            if self._sse_queue.take(data):
                self._runtime.check_outside("feed_sse()")
                await self._open()
                await self._drive(self._sse_queue.recording())

    @spells_keywords
    async def step_usage(self, step: int, **tokens: Unpack[StepTokens]) -> None:
        """See Recorder.step_usage."""
        number, counts = check_step(step), step_counts(**tokens)
        await self._run_steps("step_usage()", lambda recording: recording.using(number, counts))

    async def flush(self) -> None:
        """See Recorder.flush."""
        await self._run_steps("flush()", lambda recording: recording.flushing())

    async def close(self) -> None:
        """See Recorder.close."""
        await self._close(record_queued=True)

    async def _close(self, *, record_queued: bool) -> None:
        if self._sse_queue.waits:
            self._runtime.check_process()
        async with self._lease():
            if self._sse_queue.waits:
                await self._drive(self._sse_queue.ending(record_queued=record_queued))
            self._recording.abandon()
            self.due = None
        self._timer.forget(self)
        if (waiting := self._timed_claim) is not None:
            self._lock.release(waiting)  # the timer will not call it to the lock any more
        self._sse_queue.raise_refusal()

    async def __aenter__(self) -> "AsyncRecorder":
        self._runtime.check_outside("record()")
        async with self._lease():
            opened = self._recording.opened
            try:
                await self._open()
            except asyncio.CancelledError:
                if not opened and not self._recording.closed:
                    self._recording.reset()
                raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._close(record_queued=error is None)

    def on_timer(self, now: float) -> None:
        """Called on the timer's thread: what is due is done on the store's writer thread, since any event loop may end."""
        self.due = None
        claim = self._timed_claim
        if claim is not None:
            entered = self._lock.accept(claim)
        else:
            claim = self._timed_claim = _TimedClaim(self, self._recording, self._timer)
            entered = self._lock.enter(claim)
            if not entered:
                self._lock.recover_permits(now)  # if the holder is gone
                self._lock.watch()
        if entered:
            self._go_on(claim, self._recording.timed(time.monotonic()))

    def _go_on(self, claim: "_TimedClaim", steps: DatabaseSteps, outcome: Outcome[Any] | None = None) -> None:
        """A step of a timed flush, with the outcome of the step before. At its end the lock is free."""
        try:
            if outcome is None:
                job = next(steps)
            else:
                job = steps.send(outcome.result) if outcome.error is None else steps.throw(outcome.error)
            return self._writer.post(job, partial(self._go_on, claim, steps))
        except StopIteration:
            pass
        except Exception as error:
            self._recording.deadlines.postpone()  # nothing is lost: the next flush or deadline tries again
            log.warning("a timed flush failed: %s", error)
        self._timed_claim = None
        self._schedule()
        self._lock.release(claim)

    async def _run_steps(self, what: str, steps: Callable[[Recording], DatabaseSteps]) -> None:
        self._runtime.check_outside(what)
        async with self._lease():
            await self._open()
            await self._drive(steps(self._recording))

    async def _open(self) -> None:
        if self._recording.closed:
            raise Closed("recorder")
        if not self._recording.opened:
            await self._drive(self._recording.opening())

    async def _drive(self, steps: DatabaseSteps) -> None:
        self._lock.watch()  # the loop may end before a deadline is set: the lock is watched from here on
        cancelled: asyncio.CancelledError | None = None
        try:
            job = next(steps)
            while True:
                outcome, cancellation = await self._writer.run(job)
                cancelled = cancelled or cancellation
                job = steps.send(outcome.result) if outcome.error is None else steps.throw(outcome.error)
        except StopIteration:
            pass
        except GeneratorExit:
            self._recording.abandon()
            raise
        finally:
            self._schedule()
        if cancelled is not None:
            raise cancelled

    def _schedule(self) -> None:
        due, former = self._recording.deadlines.next, self.due
        if due != former:
            self.due = due
            if due is not None and (former is None or due < former):
                self._timer.watch(self)

    def _lease(self) -> "_RecordingLease":
        loop, spare = asyncio.get_running_loop(), self._spare_lease
        if spare is None or spare.loop is not loop:
            return _RecordingLease(loop, self._lock, self._recording)
        self._spare_lease = None  # only this loop's thread takes it, so no lock is needed
        return spare


class _TimedClaim(Claim):
    """The claim of a timed flush to the recorder's lock. No event loop waits for the lock or does the work."""

    __slots__ = ("_recorder", "_recording", "_timer")

    def __init__(self, recorder: AsyncRecorder, recording: Recording, timer: Timer) -> None:
        self._recorder = weakref.ref(recorder)
        self._recording = recording
        self._timer = timer

    @property
    def stranded(self) -> bool:
        """Never: the writer thread ends what it has begun."""
        return False

    def notify(self) -> None:
        """Have the timer call the recorder again. RuntimeError: the recorder is closed or gone."""
        recorder = self._recorder()
        if recorder is None or self._recording.closed:
            raise RuntimeError("the timer calls this recorder no more")
        recorder.due = time.monotonic()
        self._timer.hurry(recorder)


class _RecordingLease(Lease):
    """The lease of the task that drives the recording. If the task's loop ends first, what it wrote is unknown."""

    __slots__ = ("_lock", "_recording")

    def __init__(self, loop: asyncio.AbstractEventLoop, lock: Semaphore, recording: Recording) -> None:
        super().__init__(loop)
        self._lock = lock
        self._recording = recording

    def recover(self) -> bool:
        self._recording.abandon()
        return True

    async def __aenter__(self) -> None:
        if not self._lock.enter(self):
            await self._lock.wait(self)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is GeneratorExit:
            self.recover()
        self._lock.release(self)
