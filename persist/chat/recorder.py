"""The recorder's sync face: every call runs in place, under the recorder's own lock."""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from persist.chat.growth import Growth
from persist.chat.intake import Intake
from persist.chat.options import RecordOptions
from persist.chat.recording import Recording
from persist.chat.sse import NOTHING
from persist.chat.stream import Steps
from persist.chat.usage import check_step, step_counts
from persist.db.held import HeldConnection
from persist.db.runtime import Runtime
from persist.db.timer import Timer
from persist.errors import Closed, PersistError

log = logging.getLogger("persist")


class Recorder:
    """Records one turn. A context manager: leaving flushes and gives the turn up; an exception finishes nothing.

    Safe for threads. Not inside a transaction of the same thread (TransactionOpen): it commits on its own.
    """

    def __init__(self, runtime: Runtime, held: HeldConnection, timer: Timer, session_id: str, options: RecordOptions) -> None:
        self._runtime = runtime
        self._held = held
        self._timer = timer
        self._recording = Recording(runtime, session_id, options)
        self._intake = Intake(self._recording, runtime.limits.max_bytes)
        self._lock = threading.Lock()
        self.due: float | None = None

    @property
    def message_id(self) -> str | None:
        """The message being recorded, None before the stream named one or brought a part."""
        return self._recording.message_id

    @property
    def ignored(self) -> int:
        """Chunks of unknown type so far."""
        return self._recording.ignored

    def feed(self, chunk: Mapping[str, Any]) -> None:
        """Record one chunk; with the default save policy it is durable on return.

        InvalidValue: a known type with a bad field, or a value outside the JSON domain; nothing was written, go on with the
        next chunk. StreamProtocolError: the chunk cannot follow; what came before is stored and the recorder is closed.
        StoreBusy and other database errors: the chunk was not recorded and may be fed again.
        """
        self._runtime.check_process()
        with self._lock:
            self._open("feed()")
            recording = self._recording
            growth = recording.growth(chunk)
            if growth is None:
                self._drive(recording.feeding((chunk,)), "feed()")
            else:
                self._write(growth)

    def feed_many(self, chunks: Iterable[Mapping[str, Any]]) -> None:
        """Record many chunks in one transaction, with one write for each part they touch.

        Chunks before a bad one are kept; its error is raised.
        """
        self._run("feed_many()", lambda recording: recording.feeding(chunks))

    def feed_sse(self, data: str | bytes) -> None:
        """Record what came of a server-sent event stream: bytes or text, cut anywhere, or one line at a time.

        Every frame whose end was given is recorded on return, as by `feed_many`; `[DONE]`, comments and other fields are
        skipped. InvalidValue: a frame or a chunk was refused; all others of the call are recorded. After StoreBusy and other
        database errors the same call may be made again. A stream that ends inside a frame is InvalidValue at `close()`.
        """
        chunk = self._intake.whole(data)
        if chunk is not None:
            if chunk is not NOTHING:
                self.feed(chunk)
            return
        self._runtime.check_process()
        with self._lock:
            if self._intake.take(data):
                self._open("feed_sse()")
                self._drive(self._intake.recording(), "feed_sse()")

    def step_usage(self, step: int, **tokens: int | float) -> None:
        """As `messages.record_step_usage`, for the message being recorded, even before it is stored."""
        number, counts = check_step(step), step_counts(**tokens)  # type: ignore[arg-type]  # checked there, field by field
        self._run("step_usage()", lambda recording: recording.using(number, counts))

    def flush(self) -> None:
        """Write what waits in memory, whatever the save policy says."""
        self._run("flush()", lambda recording: recording.flushing())

    def close(self) -> None:
        """Flush, fold and give the turn up, without finishing the message. Twice is once.

        InvalidValue, after all of that: what `feed_sse` was given ended in the middle of a frame.
        """
        self._close(whole=True)

    def _close(self, *, whole: bool) -> None:
        if (self._recording.opened or self._intake.waits) and not self._recording.closed:
            self._runtime.check_process()
        with self._lock:
            if (self._recording.opened or self._intake.waits) and not self._recording.closed:
                self._drive(self._intake.ending(whole=whole), "close()")
            self._recording.abandon()
            self.due = None
        self._timer.forget(self)
        self._intake.ended()

    def __enter__(self) -> "Recorder":
        self._runtime.check_process()
        with self._lock:
            self._open("record()")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close(whole=error is None)

    def on_timer(self, now: float) -> None:
        """Called by the store's timer thread when `due` has passed."""
        if not self._lock.acquire(blocking=False):
            self.due = now + 0.01  # a chunk is just being written; it may well settle what is due
            return
        try:
            if not self._recording.closed:
                self._drive(self._recording.timed(time.monotonic()), "a timed flush")
        except PersistError as error:
            self._recording.postpone()  # nothing is lost: the next flush, or the next deadline, tries again
            log.warning("a timed flush failed: %s", error)
        finally:
            self.due = self._recording.due
            self._lock.release()

    def _run(self, what: str, steps: Any) -> None:
        self._runtime.check_process()
        with self._lock:
            self._open(what)
            self._drive(steps(self._recording), what)

    def _open(self, what: str) -> None:
        self._runtime.check_usable()
        self._runtime.refuse_inside_transaction(what)
        if self._recording.closed:
            raise Closed("recorder")
        if not self._recording.opened:
            self._drive(self._recording.opening(), what)

    def _write(self, growth: Growth) -> None:
        try:
            self._held.run(growth)
        except BaseException as error:
            self._recording.undo(growth, error)
            self._schedule()
            raise
        if self._recording.keep(growth):
            self._schedule()

    def _drive(self, steps: Steps, what: str) -> None:
        try:
            job = next(steps)
            while True:
                try:
                    result = self._held.run(job, what=what)
                except BaseException as error:
                    job = steps.throw(error)
                else:
                    job = steps.send(result)
        except StopIteration:
            pass
        finally:
            self._schedule()

    def _schedule(self) -> None:
        due = self._recording.due
        if due != self.due:
            self.due = due
            if due is not None:
                self._timer.watch(self)
