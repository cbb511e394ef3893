"""The sync recorder, and the queue behind the `feed_sse` of both."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice, takewhile
from types import TracebackType
from typing import Any, Unpack

from persist.chat.recording.flush import DeltaInsert
from persist.chat.recording.recording import Recording, RecordOptions
from persist.chat.recording.stream import DatabaseSteps
from persist.chat.reducer.sse import NOTHING, EventStream, Found
from persist.chat.storage.usage import StepTokens, check_step, step_counts
from persist.db.concurrency.worker_threads import Timer
from persist.db.group_commit.pinned_connection import PinnedConnection
from persist.db.transactions.notifier import Tell
from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import spells_keywords
from persist.errors import Closed, InvalidValue, PersistError, StoreError, TransactionError

# The queue behind `feed_sse`: every frame of the stream is recorded exactly once, however calls cut it and even if they fail.

_FRAMES = 4
"""A frame may be this many times as large as the value in it, because of escapes and blanks."""


class SseQueue:
    """One recorder's event stream and the frames not recorded yet. Not thread-safe: the recorder serialises calls."""

    def __init__(self, recording: Recording, max_bytes: int) -> None:
        self._recording = recording
        self._events = EventStream(_FRAMES * max_bytes)
        self._waiting: deque[Found] = deque()
        self._latest_call: str | bytes | None = None
        """The data of the latest call. If the database failed and the caller repeats the call, the data is not parsed twice."""
        self.refused: InvalidValue | None = None
        self.single_frame = self._events.single_frame

    @property
    def waits(self) -> bool:
        """Whether closing has work to do: the recording is open, or a frame is incomplete or not recorded yet."""
        return (self._recording.opened or self._events.pending) and not self._recording.closed

    def take(self, data: str | bytes) -> bool:
        """Parse one call's data; whether there is anything to record."""
        if self._recording.closed:
            return bool(self._events.read(data))
        if not (self._waiting and data == self._latest_call):
            self._waiting += self._events.read(data)
            self._latest_call = data
        if self._waiting:
            self._events.pending = True
        return bool(self._waiting)

    def recording(self) -> DatabaseSteps:
        """Record the waiting frames, in one transaction if none is refused.

        A refused frame or chunk does not keep others from being recorded; the first refusal is raised at the end. After a
        database error the frames not recorded stay queued for the repeated call, or for the next one.
        """
        refused: PersistError | None = None
        maximum: int | None = None
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, InvalidValue):
                self._waiting.popleft()
                refused = refused or first
                continue
            chunks = list(islice(takewhile(lambda frame: not isinstance(frame, InvalidValue), self._waiting), maximum))
            untried, before = iter(chunks), self._recording.applied
            try:
                yield from self._recording.feeding(untried)  # type: ignore[arg-type]  # chunks
            except PersistError as error:
                if self._recording.closed:
                    self._waiting.clear()
                    raise
                recorded, tried = self._recording.applied - before, len(chunks) - len(list(untried))
                self._done(recorded)
                if isinstance(error, OSError | StoreError | TransactionError):
                    raise
                if tried > recorded + 1:
                    maximum = 1  # every chunk is valid alone, but their joint write was refused: record them one by one
                    continue
                self._done(1)
                refused = refused or error
            else:
                self._done(len(chunks))
        self._events.pending = self._events.waits()
        if refused is not None:
            raise refused

    def ending(self, *, record_queued: bool) -> DatabaseSteps:
        """Close the recording, with `record_queued` after recording queued frames; `refused` tells if the stream broke off."""
        if record_queued and self._latest_call is not None:
            self._waiting += self._events.end()
        if record_queued and self._waiting:
            if not self._recording.opened:
                yield from self._recording.opening()
            try:
                yield from self.recording()
            except InvalidValue as error:
                self.refused = error
        yield from self._recording.closing()

    def raise_refusal(self) -> None:
        """Raise InvalidValue, once, if the stream ended inside a frame or in a refused one."""
        refused, self.refused = self.refused, None
        if refused is not None:
            raise refused

    def _done(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()


# The sync recorder: every call runs in the calling thread, under the recorder's lock.

log = logging.getLogger("persist")


class Recorder:
    """Records one turn of a session. A context manager: leaving it flushes and ends the turn; the message is not finished.

    Thread-safe. The recorder commits by itself, so inside a transaction of the same thread it raises TransactionOpen.
    """

    def __init__(
        self,
        runtime: Runtime,
        connection: PinnedConnection,
        timer: Timer,
        session_id: str,
        options: RecordOptions,
        announce: Tell | None = None,
    ) -> None:
        self._runtime = runtime
        self._connection = connection
        self._timer = timer
        self._recording = Recording(runtime, session_id, options, announce)
        self._sse_queue = SseQueue(self._recording, runtime.limits.max_bytes)
        self._lock = threading.Lock()
        self.due: float | None = None

    @property
    def message_id(self) -> str | None:
        """The id of the message being recorded; None until the stream names one or its first part arrives."""
        return self._recording.message_id

    @property
    def ignored(self) -> int:
        """The number of chunks of unknown type so far."""
        return self._recording.ignored

    @property
    def stop_requested(self) -> bool:
        """Whether `chat.sessions.request_stop` was called for this turn, in any process, a fraction of a second ago or earlier.

        Recording goes on until the caller ends it: feed `abort`, or leave the `with` block.
        """
        return self._recording.stop_requests.is_requested()

    def feed(self, chunk: Mapping[str, Any]) -> None:
        """Record one chunk; with the default save policy it is durable on return.

        InvalidValue: a known type with a bad field, or a value outside the JSON domain. Nothing was written; continue with the
        next chunk. StreamProtocolError: the chunk cannot follow the earlier ones. Those are stored, and the recorder is closed.
        StoreBusy and other database errors: the chunk was not recorded and may be fed again.
        """
        self._runtime.check_outside("feed()")
        with self._lock:
            recording = self._recording
            if recording.closed or not recording.opened:
                self._open("feed()")
            delta_insert = recording.delta_insert(chunk)
            if delta_insert is None:
                self._drive(recording.feeding((chunk,)), "feed()")
            else:
                self._insert_delta(delta_insert)

    def feed_many(self, chunks: Iterable[Mapping[str, Any]]) -> None:
        """Record chunks in one transaction, with one write per part. Chunks before a bad one are kept; its error is raised."""
        self._run_steps("feed_many()", lambda recording: recording.feeding(chunks))

    def feed_sse(self, data: str | bytes) -> None:
        """Record data of a server-sent event stream: bytes or text, cut anywhere, or one line per call.

        Every complete frame is recorded on return, as by `feed_many`; `[DONE]`, comments and other fields are skipped.
        InvalidValue: a frame or chunk was refused; all others of the call are recorded. After StoreBusy and other database
        errors the same call may be repeated. If the stream ends inside a frame, `close()` raises InvalidValue.
        """
        chunk = self._sse_queue.single_frame(data)
        if chunk is not None:
            if chunk is not NOTHING:
                self.feed(chunk)
            return
        self._runtime.check_process()
        with self._lock:
            if self._sse_queue.take(data):
                self._runtime.check_outside("feed_sse()")
                self._open("feed_sse()")
                self._drive(self._sse_queue.recording(), "feed_sse()")

    @spells_keywords
    def step_usage(self, step: int, **tokens: Unpack[StepTokens]) -> None:
        """Add a step's token usage, like `messages.record_step_usage`, to the message being recorded, stored or not.

        Raises InvalidValue for another name, one that is missing, and a value of another kind.
        """
        number, counts = check_step(step), step_counts(**tokens)
        self._run_steps("step_usage()", lambda recording: recording.using(number, counts))

    def flush(self) -> None:
        """Write everything buffered in memory, whatever the save policy is."""
        self._run_steps("flush()", lambda recording: recording.flushing())

    def close(self) -> None:
        """Flush, fold and end the turn, without finishing the message. A second call does nothing.

        After all that it raises InvalidValue if the stream given to `feed_sse` ended inside a frame.
        """
        self._close(record_queued=True)

    def _close(self, *, record_queued: bool) -> None:
        if self._sse_queue.waits:
            self._runtime.check_process()
        with self._lock:
            if self._sse_queue.waits:
                self._drive(self._sse_queue.ending(record_queued=record_queued), "close()")
            self._recording.abandon()
            self.due = None
        self._timer.forget(self)
        self._sse_queue.raise_refusal()

    def __enter__(self) -> "Recorder":
        self._runtime.check_outside("record()")
        with self._lock:
            self._open("record()")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close(record_queued=error is None)

    def on_timer(self, now: float) -> None:
        """Called by the store's timer thread when `due` has passed."""
        if not self._lock.acquire(blocking=False):
            self.due = now + 0.01  # another thread holds the lock; its write may fold anyway, so look again in 10 ms
            return
        try:
            if not self._recording.closed:
                self._drive(self._recording.timed(time.monotonic()), "a timed flush")
        except PersistError as error:
            self._recording.deadlines.postpone()  # nothing is lost: the next flush or deadline tries again
            log.warning("a timed flush failed: %s", error)
        finally:
            self.due = self._recording.deadlines.next
            self._lock.release()

    def _run_steps(self, what: str, steps: Any) -> None:
        self._runtime.check_outside(what)
        with self._lock:
            self._open(what)
            self._drive(steps(self._recording), what)

    def _open(self, what: str) -> None:
        if self._recording.closed:
            raise Closed("recorder")
        if not self._recording.opened:
            self._drive(self._recording.opening(), what)

    def _insert_delta(self, delta_insert: DeltaInsert) -> None:
        try:
            self._connection.run(delta_insert)
        except BaseException as error:
            self._recording.undo(delta_insert, error)
            self._schedule()
            raise
        if self._recording.keep(delta_insert):
            self._schedule()

    def _drive(self, steps: DatabaseSteps, what: str) -> None:
        try:
            job = next(steps)
            while True:
                try:
                    result = self._connection.run(job, what=what)
                except BaseException as error:
                    job = steps.throw(error)
                else:
                    job = steps.send(result)
        except StopIteration:
            pass
        finally:
            self._schedule()

    def _schedule(self) -> None:
        due, former = self._recording.deadlines.next, self.due
        if due != former:
            self.due = due
            if due is not None and (former is None or due < former):
                self._timer.watch(self)
