"""What `feed_sse` does with a stream: every frame is recorded once, whatever a call brought of it and however the call ended."""

from collections import deque
from itertools import islice, takewhile

from persist.chat.recording import Recording
from persist.chat.sse import EventStream, Found
from persist.chat.stream import Steps
from persist.errors import InvalidValue, PersistError, StoreError, TransactionError

_FRAMES = 4
"""A frame may be that many times as large as the value in it: escapes and blanks."""


class Intake:
    """The stream of one recorder, and what was found in it and is not recorded yet. Its face serialises the calls."""

    def __init__(self, recording: Recording, max_bytes: int) -> None:
        self._recording = recording
        self._events = EventStream(_FRAMES * max_bytes)
        self._waiting: deque[Found] = deque()
        self._failed: str | bytes | None = None
        """The call that the database failed. Given again it is not read twice."""
        self.refused: InvalidValue | None = None
        self.whole = self._events.whole

    @property
    def waits(self) -> bool:
        """Whether the end of the stream has something to say."""
        return self._events.held

    def take(self, data: str | bytes) -> bool:
        """Read what came. Whether there is anything to record."""
        if self._recording.closed:
            return bool(self._events.read(data))
        if not (self._waiting and data == self._failed):
            self._waiting += self._events.read(data)
            self._failed = data
        if self._waiting:
            self._events.held = True
        return bool(self._waiting)

    def recording(self) -> Steps:
        """Record what waits: in one transaction, if nothing is refused.

        A refused frame or chunk keeps no other from being recorded; the first refusal is raised in the end. What the database
        did not take waits for the same call again, or for the next one.
        """
        refused: PersistError | None = None
        most: int | None = None
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, InvalidValue):
                self._waiting.popleft()
                refused = refused or first
                continue
            chunks = list(islice(takewhile(_is_chunk, self._waiting), most))
            ahead, before = iter(chunks), self._recording.applied
            try:
                yield from self._recording.feeding(ahead)  # type: ignore[arg-type]  # chunks
            except PersistError as error:
                if self._recording.closed:
                    self._waiting.clear()
                    raise
                kept, tried = self._recording.applied - before, len(chunks) - len(list(ahead))
                self._done(kept)
                if isinstance(error, OSError | StoreError | TransactionError):
                    raise
                if tried > kept + 1:
                    most = 1  # all of them could follow, and what they make together is refused
                    continue
                self._done(1)
                refused = refused or error
            else:
                self._done(len(chunks))
        self._events.held = self._events.waits()
        if refused is not None:
            raise refused

    def ending(self, *, whole: bool) -> Steps:
        """Close the recording. With `whole`, what waits is recorded first; `refused` tells if the stream broke off."""
        if whole:
            self._waiting += self._events.end()
        if whole and self._waiting:
            if not self._recording.opened:
                yield from self._recording.opening()
            try:
                yield from self.recording()
            except InvalidValue as error:
                self.refused = error
        yield from self._recording.closing()

    def ended(self) -> None:
        """InvalidValue, once, if the stream broke off."""
        refused, self.refused = self.refused, None
        if refused is not None:
            raise refused

    def _done(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()


def _is_chunk(one: Found) -> bool:
    return not isinstance(one, InvalidValue)
