"""From what waits to what is written: choosing inserts, rewrites, folds and deltas, and marking them as stored afterwards."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from persist.chat.accumulator import PartState
from persist.chat.flush import Flush, MessageWrite, PartWrite
from persist.chat.pending import Entry, Pending, Unit
from persist.chat.tool_parts import tool_columns
from persist.chat.unfolded import Unfolded
from persist.db.escape import utf8_size
from persist.db.json import Frame, JsonText, encode
from persist.db.runtime import Runtime


class Draft:
    """One flush in the making. Nothing of the recorder's state is changed before `acknowledge`."""

    __slots__ = ("_deltas", "_folded", "_written", "end", "fold_all", "pending", "rest", "stop")

    def __init__(self, pending: Pending) -> None:
        self.pending = pending
        self.rest = Pending()
        """What cannot be written yet: metadata and usage of a message without a row."""
        self.fold_all = False
        self.end = False
        """Whether the turn's row goes."""
        self.stop = False
        """Whether the turn is over."""
        self._written: list[Unit] = []
        self._folded: list[PartState] = []
        self._deltas: list[tuple[PartState, int]] = []

    @classmethod
    def of(cls, pending: Pending, entries: Sequence[Entry] = ()) -> "Draft":
        """What waits, with new entries on top; the original stays as it is."""
        draft = cls(pending.copy())
        for entry in entries:
            draft.pending.add(entry)
        draft.fold_all = draft.pending.structural
        return draft

    def writes(self) -> bool:
        """Whether there is anything that can be written now."""
        pending = self.pending
        return bool(
            pending.foreign or pending.failed or pending.touched or any(unit.writable() for unit in pending.units.values())
        )

    def fill(
        self,
        flush: Flush,
        unfolded: Unfolded,
        owned: Mapping[str, Any],
        base: Mapping[str, Any],
        runtime: Runtime,
    ) -> None:
        """Put everything into the flush. InvalidValue when a value cannot be encoded."""
        waiting = dict(unfolded.parts) if self.fold_all else {}
        for current, unit in self.pending.units.items():
            if not unit.writable():
                self.rest.units[current] = unit
                continue
            if current.id is None:
                current.id = runtime.ids.mint("msg")
            write = MessageWrite(current.id, new=not current.stored, patches=unit.patches, usage=unit.usage, touch=unit.touch)
            if write.new:
                write.base, write.owned = base, owned
                flush.touch_session = True
            elif unit.patches or not current.marked:
                write.owned = owned
            for part, at in unit.dirty.items():
                write.parts.append(self._part(part, unit, current.id, at, runtime, had_tail=part in unfolded.parts))
                if part.frame is not None and part.pieces:
                    write.deltas.append(_piece(part, part.pieces))
                waiting.pop(part, None)
            for part, pieces in unit.grown.items():
                self._grown(write, part, pieces, runtime, fold=self.fold_all or unfolded.full(part, _size(pieces)))
                waiting.pop(part, None)
            flush.messages.append(write)
            self._written.append(unit)
        for part, (message_id, at) in self.pending.foreign.items():
            flush.foreign.append((message_id, self._part(part, None, message_id, at, runtime, had_tail=False)))
        if waiting:
            flush.messages.append(MessageWrite("", new=False, folds=[self._fold(part, runtime) for part in waiting]))
        flush.touch_session = flush.touch_session or self.pending.touched
        flush.failed = self.pending.failed
        flush.end = self.end

    def acknowledge(self, unfolded: Unfolded) -> None:
        """It is durable: parts and messages are stored, tails are as long as they now are."""
        for unit in self._written:
            unit.current.stored = unit.current.marked = True
        for part in chain(self._folded, *(unit.dirty for unit in self._written)):
            unfolded.wrote(part)
        for part, size in self._deltas:
            unfolded.grew(part, size)

    def _part(
        self, part: PartState, unit: Unit | None, message_id: str, at: Any, runtime: Runtime, *, had_tail: bool
    ) -> PartWrite:
        assert part.id is not None
        data = part.snapshot() if part.frame is None else part.data
        call_id, state = tool_columns(data)
        text = encode(data, data["type"], runtime.limits)
        write = PartWrite(part.id, text, data["type"], call_id, state, at, had_tail=had_tail, frame=part.frame)
        if unit is not None and part in unit.new:
            write.created = (message_id, part.index, unit.new[part])
        return write

    def _grown(self, write: MessageWrite, part: PartState, pieces: list[str], runtime: Runtime, *, fold: bool) -> None:
        piece = _piece(part, pieces)
        if fold:
            (write.told if part.frame is None else write.deltas).append(piece)
            write.folds.append(self._fold(part, runtime))
            return
        write.deltas.append(piece)
        self._deltas.append((part, _size(pieces)))

    def _fold(self, part: PartState, runtime: Runtime) -> tuple[str, JsonText | Frame]:
        assert part.id is not None
        self._folded.append(part)
        if part.frame is not None:
            return part.id, part.frame
        data = part.snapshot()
        return part.id, encode(data, data["type"], runtime.limits)


def _piece(part: PartState, pieces: list[str]) -> tuple[str, int, str]:
    assert part.id is not None
    return part.id, part.seq + 1, pieces[0] if len(pieces) == 1 else "".join(pieces)


def _size(pieces: list[str]) -> int:
    return sum(utf8_size(piece) for piece in pieces)
