"""Planning a flush: pending changes become inserts, rewrites, folds and deltas, which are marked as stored afterwards."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from persist.chat.recording.flush import Flush, MessageWrite, PartWrite
from persist.chat.recording.pending import Entry, Unit, UnwrittenChanges
from persist.chat.reducer.parts import PartState, tool_columns
from persist.chat.storage.files import taken_out
from persist.chat.storage.folding import Tail, fold_in_database
from persist.chat.storage.usage import COMPACTION
from persist.db.changes.batch import Batch, StatementRunner
from persist.db.transactions.runtime import Runtime
from persist.db.values.escaping import utf8_size
from persist.db.values.json import JsonFrame, JsonText, encode
from persist.settings import Settings

# One recording's growing parts with text in delta rows, and when it is folded into them.
#
# A part is folded when an eighth of it is new (a quarter, if the database folds it): total work stays linear in its length.
_SHARE = 8
_SHARE_IN_DATABASE = 4


class Unfolded:
    """Parts with unfolded text, in the order in which they began to grow."""

    __slots__ = ("_began", "_grew", "_least", "_seconds", "folds", "parts")

    def __init__(self, settings: Settings) -> None:
        self._least, self._seconds = settings.fold_bytes, settings.fold_ms / 1000
        self.parts: dict[PartState, None] = {}
        self.folds = 0
        """How many parts were folded so far."""
        self._began = self._grew = 0.0  # when the first and latest unfolded delta was stored, monotonic

    def __bool__(self) -> bool:
        return bool(self.parts)

    def should_fold(self, part: PartState, size: int) -> bool:
        """Whether to fold the part at once when `size` more bytes of text are added."""
        unfolded = part.tail + size
        return unfolded >= self._least and unfolded >= self._maximum(part)

    def due(self) -> float:
        """When the next fold is due, however little text there is; monotonic seconds.

        If no text comes: fold_ms after the latest delta. If text keeps coming: fold_ms after the first unfolded delta. For a
        long part, later in proportion to its size limit for folds: otherwise the total cost is quadratic in its length.
        """
        longest = max(self._maximum(part) for part in self.parts)
        return min(self._grew + self._seconds, self._began + self._seconds * longest / self._least)

    def fold(self, db: StatementRunner, guard: Callable[[Batch], None]) -> None:
        """Fold the delta rows of all parts, after the guard's statements. Text buffered in memory is not included."""
        with db.batch() as batch:
            guard(batch)
            tails = [Tail.ask(batch, part.id or "") for part in self.parts if part.frame is None]
        for part in self.parts:
            if part.frame is not None:
                fold_in_database(db, part.id or "", part.frame)
        with db.batch(last=True) as batch:
            for tail in tails:
                tail.fold(db, batch)

    def delta_stored(self, part: PartState, size: int) -> None:
        """A delta row with all unstored text of the part, `size` bytes, is durable."""
        self._grew = time.monotonic()
        if not self.parts:
            self._began = self._grew
        part.seq += 1
        part.tail += size
        if part.frame is not None:
            part.pieces = []
        self.parts[part] = None

    def part_stored(self, part: PartState) -> None:
        """The part's row was stored with all of its text."""
        self.folds += part.tail > 0
        part.seq += 1  # the number of a delta written before, or given to the event log only
        part.tail = 0
        self.parts.pop(part, None)
        part.part_stored()

    def folded(self) -> None:
        """`fold` was committed."""
        self.folds += len(self.parts)
        for part in self.parts:
            part.tail = 0
        self.parts.clear()

    def _maximum(self, part: PartState) -> int:
        return max(self._least, part.base // (_SHARE if part.frame is None else _SHARE_IN_DATABASE))


class FlushPlan:
    """A plan of one flush. Before `acknowledge` it changes nothing in the recorder's state but the ids of messages."""

    __slots__ = ("_deltas", "_folded", "_written", "end", "fold_all", "pending", "remaining", "stop")

    def __init__(self, pending: UnwrittenChanges) -> None:
        self.pending = pending
        self.remaining = UnwrittenChanges()
        """What stays pending: metadata and usage of messages that have no row yet."""
        self.fold_all = False
        self.end = False
        """Whether to delete the turn's row."""
        self.stop = False
        """Whether the turn is over."""
        self._written: list[Unit] = []
        self._folded: list[PartState] = []
        self._deltas: list[tuple[PartState, int]] = []

    @classmethod
    def of(cls, pending: UnwrittenChanges, entries: Sequence[Entry] = ()) -> "FlushPlan":
        """A plan for `pending` plus new entries. `pending` itself is not changed."""
        plan = cls(pending.copy())
        for entry in entries:
            plan.pending.add(entry)
        plan.fold_all = plan.pending.structural
        return plan

    def has_writes(self) -> bool:
        """Whether there is anything that can be written now."""
        pending, writable = self.pending, any(unit.writable() for unit in self.pending.units.values())
        return writable or pending.failed or pending.touched or bool(pending.earlier_message_parts)

    def plan_into(
        self, flush: Flush, unfolded: Unfolded, owned: Mapping[str, Any], base: Mapping[str, Any], runtime: Runtime
    ) -> None:
        """Fill the flush with all pending writes. Raises InvalidValue if a value cannot be encoded."""
        to_fold = dict(unfolded.parts) if self.fold_all else {}
        for current, unit in self.pending.units.items():
            if not unit.writable():
                self.remaining.units[current] = unit
                continue
            if current.id is None:
                current.id = runtime.ids.mint("msg")
            write = MessageWrite(current.id, new=not current.stored, patches=unit.patches, usage=unit.usage, touch=unit.touch)
            if write.new:
                write.base, write.owned = base, owned
                flush.touch_session = True
            elif unit.patches or not current.marked:
                write.owned = owned
            for part in unit.removed:
                write.removed.append(part.id or "")
                write.recounted = write.recounted or part.data["type"] == COMPACTION
                to_fold.pop(part, None)
            for part, at in unit.dirty.items():
                written = self._part_write(part, unit, current.id, at, runtime, had_deltas=part in unfolded.parts)
                write.parts.append(written)
                write.recounted = write.recounted or written.kind == COMPACTION
                if written.blob is not None:
                    flush.blobs.append(written.blob)
                if part.frame is not None and part.pieces:
                    write.deltas.append(_delta_of(part, part.pieces))
                to_fold.pop(part, None)
            for part, pieces in unit.grown.items():
                self._plan_growth(write, part, pieces, runtime, fold=self.fold_all or unfolded.should_fold(part, _size(pieces)))
                to_fold.pop(part, None)
            flush.messages.append(write)
            self._written.append(unit)
        for part, (message_id, at) in self.pending.earlier_message_parts.items():
            flush.earlier_message_parts.append(
                (message_id, self._part_write(part, None, message_id, at, runtime, had_deltas=False))
            )
        if to_fold:
            flush.messages.append(MessageWrite("", new=False, folds=[self._fold(part, runtime) for part in to_fold]))
        flush.touch_session = flush.touch_session or self.pending.touched
        flush.failed = self.pending.failed
        flush.end = self.end

    def acknowledge(self, unfolded: Unfolded) -> None:
        """The flush is durable: mark its messages and parts as stored and count its deltas."""
        for part in self._folded:
            unfolded.part_stored(part)
        for unit in self._written:
            unit.current.stored = unit.current.marked = True
            for part in unit.dirty:
                unfolded.part_stored(part)
            for part in unit.removed:
                unfolded.parts.pop(part, None)
        for part, size in self._deltas:
            unfolded.delta_stored(part, size)

    def _part_write(
        self, part: PartState, unit: Unit | None, message_id: str, at: Any, runtime: Runtime, *, had_deltas: bool
    ) -> PartWrite:
        assert part.id is not None
        data = part.snapshot() if part.frame is None else part.data
        new, blob = unit is not None and part in unit.new, None
        if new:
            data, blob = taken_out(data, runtime)
        call_id, state = tool_columns(data)
        text = encode(data, data["type"], runtime.limits)
        write = PartWrite(part.id, text, data["type"], call_id, state, at, had_deltas=had_deltas, frame=part.frame, blob=blob)
        if unit is not None and new:
            write.created = (message_id, part.index, unit.new[part])
        return write

    def _plan_growth(self, write: MessageWrite, part: PartState, pieces: list[str], runtime: Runtime, *, fold: bool) -> None:
        piece = _delta_of(part, pieces)
        if fold:
            (write.events_only if part.frame is None else write.deltas).append(piece)
            write.folds.append(self._fold(part, runtime))
            return
        write.deltas.append(piece)
        self._deltas.append((part, _size(pieces)))

    def _fold(self, part: PartState, runtime: Runtime) -> tuple[str, JsonText | JsonFrame]:
        assert part.id is not None
        self._folded.append(part)
        if part.frame is not None:
            return part.id, part.frame
        data = part.snapshot()
        return part.id, encode(data, data["type"], runtime.limits)


def _delta_of(part: PartState, pieces: list[str]) -> tuple[str, int, str]:
    assert part.id is not None
    return part.id, part.seq + 1, pieces[0] if len(pieces) == 1 else "".join(pieces)


def _size(pieces: list[str]) -> int:
    return sum(utf8_size(piece) for piece in pieces)
