"""The queue behind `feed_sse`: every frame of the stream is recorded exactly once, however calls cut it and even if they fail."""

from collections import deque
from itertools import islice, takewhile

from persist.chat.recording.recording import Recording
from persist.chat.recording.stream import DatabaseSteps
from persist.chat.reducer.sse import EventStream, Found
from persist.errors import InvalidValue, PersistError, StoreError, TransactionError

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
        """Whether a frame is incomplete or not recorded yet, so that closing has work to do."""
        return self._events.pending

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
            chunks = list(islice(takewhile(_is_chunk, self._waiting), maximum))
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
        if record_queued:
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


def _is_chunk(frame: Found) -> bool:
    return not isinstance(frame, InvalidValue)
