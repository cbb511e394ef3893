"""The recorder's async face: the same recording, its database work handed to the store's writer thread."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from persist.chat.intake import Intake
from persist.chat.options import RecordOptions
from persist.chat.recording import Recording
from persist.chat.sse import NOTHING
from persist.chat.stream import Steps
from persist.chat.usage import check_step, step_counts
from persist.db.group import GroupWriter
from persist.db.runtime import Runtime
from persist.db.semaphore import Lease, Semaphore
from persist.db.timer import Timer
from persist.errors import Closed, PersistError


class AsyncRecorder:
    """See Recorder. Chunks of many recorders share commits; a failing one fails alone.

    A cancelled `feed` has either not started, or its chunk is durable.
    """

    def __init__(self, runtime: Runtime, writer: GroupWriter, timer: Timer, session_id: str, options: RecordOptions) -> None:
        self._runtime = runtime
        self._writer = writer
        self._timer = timer
        self._recording = Recording(runtime, session_id, options)
        self._intake = Intake(self._recording, runtime.limits.max_bytes)
        self._lock = Semaphore(1, timer)
        self._spare: _Hold | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timed_task: asyncio.Task[None] | None = None
        self.due: float | None = None

    @property
    def message_id(self) -> str | None:
        """See Recorder.message_id."""
        return self._recording.message_id

    @property
    def ignored(self) -> int:
        """See Recorder.ignored."""
        return self._recording.ignored

    async def feed(self, chunk: Mapping[str, Any]) -> None:
        """See Recorder.feed."""
        self._runtime.check_process()
        hold = self._hold()
        if not self._lock.enter(hold):
            await self._lock.wait(hold)
        try:
            recording = self._recording
            if recording.opened:
                self._check("feed()")
            else:
                await self._open("feed()")
            growth = recording.growth(chunk)
            if growth is None:
                await self._drive(recording.feeding((chunk,)))
                return
            outcome, cancelled = await self._writer.run(growth)
            if outcome.error is not None:
                recording.undo(growth, outcome.error)
                self._schedule()
            elif recording.keep(growth):
                self._schedule()
            if (error := cancelled or outcome.error) is not None:
                raise error
        except GeneratorExit:
            hold.recover()
            raise
        finally:
            self._lock.release(hold)
            self._spare = hold

    async def feed_many(self, chunks: Iterable[Mapping[str, Any]]) -> None:
        """See Recorder.feed_many."""
        await self._run("feed_many()", lambda recording: recording.feeding(chunks))

    async def feed_sse(self, data: str | bytes) -> None:
        """See Recorder.feed_sse."""
        chunk = self._intake.whole(data)
        if chunk is not None:
            if chunk is not NOTHING:
                await self.feed(chunk)
            return
        self._runtime.check_process()
        async with self._hold():
            if self._intake.take(data):
                await self._open("feed_sse()")
                await self._drive(self._intake.recording())

    async def step_usage(self, step: int, **tokens: int | float) -> None:
        """See Recorder.step_usage."""
        number, counts = check_step(step), step_counts(**tokens)  # type: ignore[arg-type]  # checked there, field by field
        await self._run("step_usage()", lambda recording: recording.using(number, counts))

    async def flush(self) -> None:
        """See Recorder.flush."""
        await self._run("flush()", lambda recording: recording.flushing())

    async def close(self) -> None:
        """See Recorder.close."""
        await self._close(whole=True)

    async def _close(self, *, whole: bool) -> None:
        if (self._recording.opened or self._intake.waits) and not self._recording.closed:
            self._runtime.check_process()
        async with self._hold():
            if (self._recording.opened or self._intake.waits) and not self._recording.closed:
                await self._drive(self._intake.ending(whole=whole))
            self._recording.abandon()
            self.due = None
        self._timer.forget(self)
        self._intake.ended()

    async def __aenter__(self) -> "AsyncRecorder":
        self._runtime.check_process()
        async with self._hold():
            await self._open("record()")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._close(whole=error is None)

    def on_timer(self, now: float) -> None:
        """Called on the timer's thread: the work itself belongs to the loop."""
        self.due = None
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._start_timed)
            except RuntimeError:  # it was closed, perhaps in the middle; else whoever feeds next, on another loop, looks after it
                self._lock.look(now)

    def _start_timed(self) -> None:
        self._timed_task = asyncio.get_running_loop().create_task(self._timed())

    async def _timed(self) -> None:
        async with self._hold():
            try:
                if not self._recording.closed:
                    await self._drive(self._recording.timed(time.monotonic()))
            except PersistError:
                self._recording.postpone()  # nothing is lost: the next flush, or the next deadline, tries again
                self._schedule()

    async def _run(self, what: str, steps: Callable[[Recording], Steps]) -> None:
        self._runtime.check_process()
        async with self._hold():
            await self._open(what)
            await self._drive(steps(self._recording))

    def _check(self, what: str) -> None:
        self._runtime.check_usable()
        self._runtime.refuse_inside_transaction(what)
        if self._recording.closed:
            raise Closed("recorder")

    async def _open(self, what: str) -> None:
        self._check(what)
        if not self._recording.opened:
            await self._drive(self._recording.opening())

    async def _drive(self, steps: Steps) -> None:
        self._lock.watch()  # a turn that began while the loop ended would be nobody's, and no deadline is set yet
        cancelled: asyncio.CancelledError | None = None
        try:
            job = next(steps)
            while True:
                outcome, called_off = await self._writer.run(job)
                cancelled = cancelled or called_off
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
        due = self._recording.due
        if due != self.due:
            self.due = due
            if due is not None:
                self._loop = asyncio.get_running_loop()
                self._timer.watch(self)

    def _hold(self) -> "_Hold":
        loop, spare = asyncio.get_running_loop(), self._spare
        if spare is None or spare.loop is not loop:
            return _Hold(loop, self._lock, self._recording)
        self._spare = None  # no other thread runs this loop, so nobody else has taken it
        return spare


class _Hold(Lease):
    """The lease of whoever drives the recording, which is over if its loop ends meanwhile: nobody knows what was written."""

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
