"""The chunks of one stream applied to the message they belong to, in memory, each so that it can be taken back."""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from persist.chat.accumulator import Accumulator, Change, PartState, UnknownToolCall
from persist.chat.chunks import ChunkType
from persist.chat.message_state import MessageState
from persist.chat.open_parts import open_parts, opened_as
from persist.chat.pending import Current, Entry, Patch, Pending
from persist.chat.resume import find_unfinished_call, load_message
from persist.db.clock import EPOCH
from persist.db.escape import utf8_size
from persist.db.jobs import Job
from persist.db.json import check
from persist.db.runtime import Runtime
from persist.db.types import check_label
from persist.errors import InvalidValue, PayloadTooLarge, PersistError

_OPENING = (ChunkType.TEXT_START.value, ChunkType.REASONING_START.value)

Steps = Generator[Job[Any], Any, None]


@dataclass(slots=True)
class Batch:
    """What came of applying some chunks."""

    entries: list[Entry] = field(default_factory=list)
    changes: list[tuple[Accumulator, Change]] = field(default_factory=list)
    ignored: int = 0
    problem: PersistError | None = None
    """Why the chunk after the last entry was refused."""


class Stream:
    """The message being recorded. `accumulator` and `current` are replaced when a `start` turns to another message."""

    def __init__(self, runtime: Runtime, session_id: str) -> None:
        self._runtime = runtime
        self._session_id = session_id
        self._foreign: dict[PartState, str] = {}
        self._left: dict[str, tuple[MessageState, Current]] = {}
        self._most = runtime.limits.max_bytes
        self.accumulator = Accumulator()
        self.current = Current()

    def applying(self, chunks: Iterable[Mapping[str, Any]], batch: Batch, pending: Pending) -> Steps:
        """Apply chunks until one is refused. `pending` is what was applied before and is not written yet."""
        for chunk in chunks:
            accumulator, current = self.accumulator, self.current
            try:
                change = yield from self._apply(chunk, batch, pending)
                if change.ignored:
                    batch.ignored += 1
                elif not change.dropped:
                    batch.entries.append(self._entry(change, chunk, batch))
            except PersistError as error:
                self.accumulator, self.current = accumulator, current
                batch.problem = error
                return

    def place(self) -> "Place":
        """Where the stream is, to come back to."""
        current = self.current
        return Place(self.accumulator, current, current.id, current.started, current.ended)

    def take_back(self, batch: Batch, place: "Place") -> None:
        """As if the batch had never been fed."""
        for accumulator, change in reversed(batch.changes):
            accumulator.undo(change)
        for entry in batch.entries:
            if entry.change.part is not None:
                entry.change.part.base -= entry.size
        self.accumulator, self.current = place.accumulator, place.current
        self.current.id, self.current.started, self.current.ended = place.id, place.started, place.ended

    def take_back_one(self, part: PartState | None, change: Change | None) -> None:
        """As if a chunk had never been fed: what it did, or the part that it did nothing but extend."""
        if change is not None:
            self.accumulator.undo(change)
        elif part is not None:
            self.accumulator.retract(part)

    def _apply(self, chunk: Any, batch: Batch, pending: Pending) -> Generator[Job[Any], Any, Change]:
        """One chunk, with what has to be read for it."""
        named = chunk.get("messageId") if isinstance(chunk, Mapping) and chunk.get("type") == ChunkType.START else None
        if isinstance(named, str) and not self.accumulator.aborted and (named != self.current.id or self.current.ended):
            yield from self._turn_to(named, batch, pending)
        try:
            change = self.accumulator.apply(chunk)
        except UnknownToolCall as unknown:
            call_id = unknown.tool_call_id
            found = yield Job(lambda db: find_unfinished_call(db, self._session_id, call_id))
            if found is None:
                raise
            part = PartState(found.data)
            part.id = found.part_id
            self.accumulator.foreign[call_id] = part
            self._foreign[part] = found.message_id
            change = self.accumulator.apply(chunk)
        batch.changes.append((self.accumulator, change))
        return change

    def _turn_to(self, id: str, batch: Batch, pending: Pending) -> Steps:
        """A `start` that names another message, or a finished one again: continue it from what is known of it."""
        if not id:
            raise InvalidValue("start.messageId", "it is empty.")
        check_label("start.messageId", id)
        left = self._left.get(id) if id != self.current.id else (self.accumulator.state, self.current)
        if left is not None and (left[1] in pending.units or any(entry.current is left[1] for entry in batch.entries)):
            # what waits to be written is newer than what is stored
            if id != self.current.id:
                self._leave()
                self.accumulator = Accumulator.over(left[0], self.accumulator.index)
                self.current = left[1]
            return
        stored = yield Job(lambda db: load_message(db, self._session_id, id))
        if stored is None:
            return
        resumed = Accumulator(stored.message)
        resumed.index = self.accumulator.index
        for part, (part_id, _) in zip(resumed.parts, stored.rows, strict=True):
            part.id = part_id
        for part in open_parts(resumed.parts):
            part.base = utf8_size(part.data.get("text") or "")
            resumed.state.left_open.append(part)
        last = stored.rows[-1][1] + 1 if stored.rows else 0
        self._leave()
        self.accumulator = resumed
        self.current = Current(id, stored=True, offset=last - len(stored.rows))

    def _leave(self) -> None:
        if self.current.id is not None:
            self._left[self.current.id] = (self.accumulator.state, self.current)

    def _entry(self, change: Change, chunk: Mapping[str, Any], batch: Batch) -> Entry:
        """Check the chunk's values and mint the ids it needs; on a bad value only this chunk is taken back."""
        try:
            if change.delta is not None and change.part is not None:
                self.current.ended = False
                return Entry(change, self.current, EPOCH, size=self._grow(change.part, change.delta))
            check(dict(chunk), "", self._runtime.limits)
        except PersistError:
            accumulator, last = batch.changes.pop()
            accumulator.undo(last)
            raise
        now = self._runtime.clock()
        adopts = False
        if change.opened:
            if change.closed is not None and self.current.id is not None:
                self._left[self.current.id] = (change.closed, self.current)
            self.current = Current(self.accumulator.message_id)
        elif self.current.id is None and self.accumulator.message_id:
            self.current.id, adopts = self.accumulator.message_id, True
        if change.appended is not None:
            if self.current.id is None:
                self.current.id = self._runtime.ids.mint("msg")
            id = self._runtime.ids.mint("prt")
            change.appended.id = opened_as(id, chunk["id"]) if change.type in _OPENING else id
            change.appended.index += self.current.offset
        if change.type == ChunkType.START:
            self.current.started = True
        self.current.ended = change.boundary == "finish"
        patch = None
        if change.metadata:
            payload = chunk["messageMetadata"]
            patch = Patch(payload, first=self.accumulator.metadata == payload)
        foreign = self._foreign.get(change.changed) if change.changed is not None else None
        return Entry(change, self.current, now, patch=patch, foreign_to=foreign, adopts=adopts)

    def _grow(self, part: PartState, delta: str) -> int:
        size = utf8_size(delta)
        if part.base + size > self._most:
            advice = "Keep large content in a file and store its reference."
            raise PayloadTooLarge("delta", part.base + size, self._most, advice=advice)
        part.base += size
        return size


@dataclass(frozen=True, slots=True)
class Place:
    """A point of the stream."""

    accumulator: Accumulator
    current: Current
    id: str | None
    started: bool
    ended: bool
