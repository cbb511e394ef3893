"""What a stream's chunks change in messages: applied in memory, where each can be undone, and kept until it is written."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from persist.chat.recording.resume import find_unfinished_call, load_message, waits_for
from persist.chat.reducer.accumulator import Accumulator, Change, PartState, UnknownToolCall
from persist.chat.reducer.chunks import ChunkType
from persist.chat.reducer.message_state import MessageState, merged, open_parts, part_id_for
from persist.chat.schemas import STOPPED_AT, StepUsage
from persist.chat.storage.files import refuse_reference
from persist.db.group_commit.tasks import FunctionTask
from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import check_label
from persist.db.values.clock import EPOCH, epoch_ms
from persist.db.values.escaping import utf8_size
from persist.db.values.json import check
from persist.errors import InvalidValue, PayloadTooLarge, PersistError
from persist.settings import AiSdk


class Current:
    """One assistant message of the stream."""

    __slots__ = ("ended", "id", "marked", "offset", "started", "stopped", "stored")

    def __init__(self, id: str | None = None, *, stored: bool = False, offset: int = 0) -> None:
        self.id = id
        self.stored = stored
        """Whether the message's row exists."""
        self.offset = offset
        """Added to a new part's position: the indexes of stored parts may have gaps."""
        self.marked = False
        """Whether the recorder's own metadata is in the stored row."""
        self.ended = False
        """Whether the message was finished. A later `start` reads it anew, since other writers may have changed it."""
        self.stopped = False
        """Whether it is stored as stopped, and goes on with the `start` that names it."""
        self.started = False
        """Whether a `start` named it: then even a message without parts is stored at finish."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One metadata payload of the stream. A message's first is taken whole; merging a later one skips prototype keys."""

    payload: Mapping[str, Any]
    first: bool


def patched(base: Mapping[str, Any], patches: Iterable[Patch], owned: Mapping[str, Any]) -> dict[str, Any]:
    """`base`, overridden by the stream's metadata, overridden by the recorder's own (`owned`)."""
    metadata = dict(base)
    for patch in patches:
        metadata = merged(metadata, patch.payload, skipped=frozenset()) if patch.first else merged(metadata, patch.payload)
    if STOPPED_AT in metadata and metadata[STOPPED_AT] is None:
        del metadata[STOPPED_AT]  # the answer goes on
    return {**metadata, **owned}


def without_usage(patches: Iterable[Patch]) -> list[Patch]:
    """The patches without their `usage` key, for a message whose usage the store counts itself."""
    return [Patch({key: value for key, value in patch.payload.items() if key != "usage"}, patch.first) for patch in patches]


@dataclass(frozen=True, slots=True)
class Entry:
    """One applied chunk."""

    change: Change
    current: Current
    at: datetime
    patch: Patch | None = None
    size: int = 0
    earlier_message_id: str | None = None
    adopts: bool = False
    """Whether a `start` gave the message its id. Metadata of earlier chunks is then dropped, as in the SDK."""


@dataclass(slots=True)
class Unit:
    """One message's pending changes."""

    current: Current
    new: dict[PartState, datetime] = field(default_factory=dict)
    dirty: dict[PartState, datetime] = field(default_factory=dict)
    grown: dict[PartState, list[str]] = field(default_factory=dict)
    patches: list[Patch] = field(default_factory=list)
    usage: list[tuple[int, StepUsage]] = field(default_factory=list)
    removed: dict[PartState, None] = field(default_factory=dict)
    """Parts that have rows and left the message."""
    create: bool = False
    touch: bool = False

    def copy(self) -> "Unit":
        return Unit(
            self.current,
            dict(self.new),
            dict(self.dirty),
            {part: list(pieces) for part, pieces in self.grown.items()},
            list(self.patches),
            list(self.usage),
            dict(self.removed),
            self.create,
            self.touch,
        )

    def writable(self) -> bool:
        """Whether the message has a row or gets one now. Metadata and usage alone wait for the first part or the finish."""
        return self.current.stored or bool(self.new) or self.create


class UnwrittenChanges:
    """All pending changes, coalesced: one write for each part, however many chunks changed it."""

    __slots__ = ("bytes", "earlier_message_parts", "failed", "structural", "touched", "units")

    def __init__(self) -> None:
        self.units: dict[Current, Unit] = {}
        self.earlier_message_parts: dict[PartState, tuple[str, datetime]] = {}
        self.bytes = 0
        """Bytes of text in the units' `grown`."""
        self.structural = False
        self.failed = False
        self.touched = False

    def __bool__(self) -> bool:
        return bool(self.units or self.earlier_message_parts or self.failed or self.touched)

    def copy(self) -> "UnwrittenChanges":
        copied = UnwrittenChanges()
        copied.units = {current: unit.copy() for current, unit in self.units.items()}
        copied.earlier_message_parts = dict(self.earlier_message_parts)
        copied.bytes, copied.structural, copied.failed, copied.touched = self.bytes, self.structural, self.failed, self.touched
        return copied

    def unit(self, current: Current) -> Unit:
        """The message's unit, created on first use."""
        found = self.units.get(current)
        if found is None:
            found = self.units[current] = Unit(current)
        return found

    def add(self, entry: Entry) -> None:
        """Add the changes of one applied chunk."""
        change = entry.change
        if change.delta is not None and change.part is not None:
            unit = self.unit(entry.current)
            if change.part not in unit.dirty:
                unit.grown.setdefault(change.part, []).append(change.delta)
                self.bytes += entry.size
            return
        if change.structural or change.boundary or change.error_text is not None:
            self.structural = True
        if change.appended is not None:
            unit = self.unit(entry.current)
            unit.new[change.appended] = unit.dirty[change.appended] = entry.at
        if change.changed is not None:
            self._rewrite(change.changed, entry)
        for part in change.removed:
            self._remove(part, self.unit(entry.current))
        if entry.adopts and entry.current in self.units:
            self.units[entry.current].patches.clear()
        if entry.patch is not None:
            self.unit(entry.current).patches.append(entry.patch)
        if change.error_text is not None:
            self.failed = self.touched = True
        if change.boundary is not None:
            self._boundary(entry)

    def parts(self) -> Iterator[PartState]:
        """Every part with pending changes."""
        for unit in self.units.values():
            yield from unit.dirty
            yield from unit.grown
        yield from self.earlier_message_parts

    def removed(self) -> Iterator[str]:
        """The ids of parts whose rows are to be deleted."""
        for unit in self.units.values():
            yield from (part.id or "" for part in unit.removed)

    def _rewrite(self, part: PartState, entry: Entry) -> None:
        unit: Unit | None
        if entry.earlier_message_id is None:
            unit = self.unit(entry.current)
        else:
            unit = next((unit for unit in self.units.values() if part in unit.dirty or part in unit.grown), None)
            if unit is None:
                self.earlier_message_parts[part] = (entry.earlier_message_id, entry.at)
                return
        unit.dirty[part] = entry.at
        unit.grown.pop(part, None)

    def _remove(self, part: PartState, unit: Unit) -> None:
        unit.dirty.pop(part, None)
        self.bytes -= sum(utf8_size(piece) for piece in unit.grown.pop(part, ()))
        if unit.new.pop(part, None) is None:
            unit.removed[part] = None
        else:
            unit.create = True  # the message has a row then, as it has if the part was written before

    def _boundary(self, entry: Entry) -> None:
        self.touched = True
        unit = self.unit(entry.current)
        unit.touch = True
        if entry.change.boundary == "abort":
            unit.patches.append(Patch({STOPPED_AT: epoch_ms(entry.at)}, first=False))
        if entry.change.boundary == "finish" and (entry.current.started or unit.patches or unit.usage):
            unit.create = True


_OPENING = (ChunkType.TEXT_START.value, ChunkType.REASONING_START.value)
DatabaseSteps = Generator[FunctionTask[Any], Any, None]


@dataclass(slots=True)
class AppliedChunks:
    """The result of applying some chunks."""

    entries: list[Entry] = field(default_factory=list)
    changes: list[tuple[Accumulator, Change]] = field(default_factory=list)
    ignored: int = 0
    problem: PersistError | None = None
    """Why the chunk after the last entry was refused."""


class Stream:
    """One stream's current message. `accumulator` and `current` are replaced when a `start` names another message."""

    def __init__(self, runtime: Runtime, session_id: str, ai_sdk: AiSdk) -> None:
        self._runtime = runtime
        self._session_id = session_id
        self._message_of_part: dict[PartState, str] = {}
        self._left_messages: dict[str, tuple[MessageState, Current]] = {}
        self._maximum = runtime.limits.max_bytes
        self._ai_sdk = ai_sdk
        self.accumulator = Accumulator(ai_sdk=ai_sdk)
        self.current = Current()

    def applying(self, chunks: Iterable[Mapping[str, Any]], batch: AppliedChunks, pending: UnwrittenChanges) -> DatabaseSteps:
        """Apply chunks until one is refused. `pending` holds earlier chunks that are not written yet."""
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

    def position(self) -> "StreamPosition":
        """The current position, for `undo_batch`."""
        current = self.current
        return StreamPosition(self.accumulator, current, current.id, current.started, current.ended)

    def undo_batch(self, batch: AppliedChunks, position: "StreamPosition") -> None:
        """Undo all chunks of a batch and return to the position before it."""
        for accumulator, change in reversed(batch.changes):
            accumulator.undo(change)
        for entry in batch.entries:
            if entry.change.part is not None:
                entry.change.part.base -= entry.size
        self.accumulator, self.current = position.accumulator, position.current
        self.current.id, self.current.started, self.current.ended = position.id, position.started, position.ended

    def undo_delta(self, part: PartState | None, change: Change | None) -> None:
        """Undo one chunk: its `change`, or the latest `Accumulator.extend` of `part`."""
        if change is not None:
            self.accumulator.undo(change)
        elif part is not None:
            self.accumulator.undo_extend(part)

    def _apply(self, chunk: Any, batch: AppliedChunks, pending: UnwrittenChanges) -> Generator[FunctionTask[Any], Any, Change]:
        """Apply one chunk, reading from the database what it refers to."""
        started_id = chunk.get("messageId") if isinstance(chunk, Mapping) and chunk.get("type") == ChunkType.START else None
        if isinstance(started_id, str) and not self.accumulator.aborted and (started_id != self.current.id or self.current.ended):
            yield from self._turn_to(started_id, batch, pending)
        try:
            change = self.accumulator.apply(chunk)
        except UnknownToolCall as unknown:
            part = yield from self._earlier_call(unknown.tool_call_id, unknown.approval_id, batch, pending)
            if part is None:
                raise
            self.accumulator.earlier_message_parts[part.data["toolCallId"]] = part
            change = self.accumulator.apply(chunk)
        batch.changes.append((self.accumulator, change))
        return change

    def _earlier_call(
        self, call_id: str | None, approval_id: str | None, batch: AppliedChunks, pending: UnwrittenChanges
    ) -> Generator[FunctionTask[Any], Any, PartState | None]:
        """The unfinished call of an earlier message: what is not written yet counts as it will when it is."""
        unwritten = pending.copy()
        for entry in batch.entries:
            unwritten.add(entry)
        for id, (state, current) in reversed(self._left_messages.items()):
            new = unwritten.units[current].new if current in unwritten.units else {}
            for own in reversed(state.parts if new else []):
                if own in new and waits_for(own.data, call_id, approval_id):
                    self._message_of_part[own] = id
                    return own
        states = {part.id or "": part for part in unwritten.parts()}
        newer = {id: part.data for id, part in states.items()} | dict.fromkeys(unwritten.removed())
        found = yield FunctionTask(lambda db: find_unfinished_call(db, self._session_id, call_id, approval_id, newer))
        if found is None:
            return None
        part = states.get(found.part_id)
        if part is None:
            part = PartState(found.data)
            part.id = found.part_id
        self._message_of_part[part] = found.message_id
        return part

    def _turn_to(self, id: str, batch: AppliedChunks, pending: UnwrittenChanges) -> DatabaseSteps:
        """Continue the message that a `start` names: another one, or a finished one again."""
        if not id:
            raise InvalidValue("start.messageId", "it is empty.")
        check_label("start.messageId", id)
        left = self._left_messages.get(id) if id != self.current.id else (self.accumulator.state, self.current)
        if left is not None and (left[1] in pending.units or any(entry.current is left[1] for entry in batch.entries)):
            # the pending state is newer than the stored one
            if id != self.current.id:
                self._leave()
                self.accumulator = Accumulator.over(left[0], self.accumulator.index)
                self.current = left[1]
            return
        stored = yield FunctionTask(lambda db: load_message(db, self._runtime, self._session_id, id))
        if stored is None:
            return
        resumed = Accumulator(stored.message, self._ai_sdk)
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
        self.current.stopped = stored.message.get("metadata", {}).get(STOPPED_AT) is not None

    def _leave(self) -> None:
        if self.current.id is not None:
            self._left(self.current.id, self.accumulator.state)

    def _left(self, id: str, state: MessageState) -> None:
        self._left_messages.pop(id, None)  # the latest stands last
        self._left_messages[id] = (state, self.current)

    def _entry(self, change: Change, chunk: Mapping[str, Any], batch: AppliedChunks) -> Entry:
        """Check the chunk's values and make the ids it needs. A bad value undoes this chunk only."""
        try:
            if change.delta is not None and change.part is not None:
                self.current.ended = False
                return Entry(change, self.current, EPOCH, size=self._grow(change.part, change.delta))
            check(dict(chunk), "", self._runtime.limits)
            refuse_reference(chunk, "")
        except PersistError:
            accumulator, last = batch.changes.pop()
            accumulator.undo(last)
            raise
        now = self._runtime.clock()
        adopts = False
        if change.opened:
            if change.closed is not None and self.current.id is not None:
                self._left(self.current.id, change.closed)
            self.current = Current(self.accumulator.message_id)
        elif self.current.id is None and self.accumulator.message_id:
            self.current.id, adopts = self.accumulator.message_id, True
        if change.appended is not None:
            if self.current.id is None:
                self.current.id = self._runtime.ids.mint("msg")
            id = self._runtime.ids.mint("prt")
            change.appended.id = part_id_for(id, chunk["id"]) if change.type in _OPENING else id
            change.appended.index += self.current.offset
        if change.type == ChunkType.START:
            self.current.started = True
        self.current.ended = change.boundary == "finish"
        patch = None
        if change.metadata:
            payload = chunk["messageMetadata"]
            patch = Patch(payload, first=self.accumulator.metadata == payload)
        if change.type == ChunkType.START and self.current.stopped:
            patch = Patch({**(patch.payload if patch else {}), STOPPED_AT: None}, first=False)
        earlier_message_id = self._message_of_part.get(change.changed) if change.changed is not None else None
        return Entry(change, self.current, now, patch=patch, earlier_message_id=earlier_message_id, adopts=adopts)

    def _grow(self, part: PartState, delta: str) -> int:
        size = utf8_size(delta)
        if part.base + size > self._maximum:
            advice = "Keep large content in a file and store its reference."
            raise PayloadTooLarge("delta", part.base + size, self._maximum, advice=advice)
        part.base += size
        return size


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A position in the stream, to return to if a batch fails."""

    accumulator: Accumulator
    current: Current
    id: str | None
    started: bool
    ended: bool
