"""Changes that a recorder has accepted but not written yet, by message."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from persist.chat.reducer.accumulator import Change, PartState
from persist.chat.reducer.message_state import merged
from persist.chat.schemas import STOPPED_AT, StepUsage
from persist.db.values.clock import epoch_ms
from persist.db.values.escaping import utf8_size


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


@dataclass(slots=True)
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
        for current, unit in self.units.items():
            copied.units[current] = unit.copy()
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
