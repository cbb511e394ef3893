"""Applying a stream's chunks to the messages they belong to, in memory, so that each can be undone."""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from persist.chat.recording.pending import Current, Entry, Patch, UnwrittenChanges
from persist.chat.recording.resume import find_unfinished_call, load_message, waits_for
from persist.chat.reducer.accumulator import Accumulator, Change, PartState, UnknownToolCall
from persist.chat.reducer.chunks import ChunkType
from persist.chat.reducer.message_state import MessageState, open_parts, part_id_for
from persist.chat.schemas import STOPPED_AT
from persist.chat.storage.files import refuse_reference
from persist.db.group_commit.tasks import FunctionTask
from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import check_label
from persist.db.values.clock import EPOCH
from persist.db.values.escaping import utf8_size
from persist.db.values.json import check
from persist.errors import InvalidValue, PayloadTooLarge, PersistError
from persist.settings import AiSdk

_START, _OPENING = ChunkType.START.value, (ChunkType.TEXT_START.value, ChunkType.REASONING_START.value)
_OBJECTS = (dict, Mapping)  # asking an abstract class alone takes longer
DatabaseSteps = Generator[FunctionTask[Any], Any, None]
StreamPosition = tuple[Accumulator, Current, str | None, bool, bool]
"""A position in the stream, to return to if a batch fails: the accumulator, the message, and its id, `started` and `ended`."""


@dataclass(slots=True)
class AppliedChunks:
    """The result of applying some chunks."""

    entries: list[Entry] = field(default_factory=list)
    changes: list[tuple[Accumulator, Change]] = field(default_factory=list)
    size: int = 0
    """Bytes of text that the entries add to growing parts."""
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

    def applying(self, chunks: Iterable[Any], batch: AppliedChunks, pending: UnwrittenChanges) -> DatabaseSteps:
        """Apply chunks until one is refused. `pending` holds earlier chunks that are not written yet."""
        for chunk in chunks:
            accumulator, current = self.accumulator, self.current
            try:
                if isinstance(chunk, _OBJECTS) and chunk.get("type") == _START:
                    yield from self._turn_to(chunk.get("messageId"), batch, pending)
                try:
                    change = self.accumulator.apply(chunk)
                except UnknownToolCall as unknown:
                    part = yield from self._earlier_call(unknown.tool_call_id, unknown.approval_id, batch, pending)
                    if part is None:
                        raise
                    self.accumulator.earlier_message_parts[part.data["toolCallId"]] = part
                    change = self.accumulator.apply(chunk)
                batch.changes.append((self.accumulator, change))
                if change.ignored:
                    batch.ignored += 1
                elif not change.dropped:
                    batch.entries.append(entry := self._entry(change, chunk, batch))
                    batch.size += entry.size
            except PersistError as error:
                self.accumulator, self.current = accumulator, current
                batch.problem = error
                return

    def position(self) -> StreamPosition:
        """The current position, for `undo_batch`."""
        current = self.current
        return self.accumulator, current, current.id, current.started, current.ended

    def undo_batch(self, batch: AppliedChunks, position: StreamPosition) -> None:
        """Undo all chunks of a batch and return to the position before it."""
        for accumulator, change in reversed(batch.changes):
            accumulator.undo(change)
        for entry in batch.entries:
            if entry.change.part is not None:
                entry.change.part.base -= entry.size
        self.accumulator, self.current, self.current.id, self.current.started, self.current.ended = position

    def undo_delta(self, part: PartState | None, change: Change | None) -> None:
        """Undo one chunk: its `change`, or the latest `Accumulator.extend` of `part`."""
        if change is not None:
            self.accumulator.undo(change)
        elif part is not None:
            self.accumulator.undo_extend(part)

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

    def _turn_to(self, id: object, batch: AppliedChunks, pending: UnwrittenChanges) -> DatabaseSteps:
        """Continue the message that a `start` names, if any: another one, or a finished one again."""
        if not isinstance(id, str) or self.accumulator.aborted or (id == self.current.id and not self.current.ended):
            return
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
            check(chunk if type(chunk) is dict else dict(chunk), "", self._runtime.limits)
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
        if change.type == _START:
            self.current.started = True
        self.current.ended = change.boundary == "finish"
        patch = None
        if change.metadata:
            payload = chunk["messageMetadata"]
            patch = Patch(payload, first=self.accumulator.metadata == payload)
        if self.current.stopped and change.type == _START:
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
