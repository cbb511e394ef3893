"""What a recorder has accepted and not yet written, by message."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from persist.chat.accumulator import Change, PartState
from persist.chat.message_state import merged
from persist.chat.schemas import StepUsage


class Current:
    """One assistant message of the stream."""

    __slots__ = ("ended", "id", "marked", "offset", "started", "stored")

    def __init__(self, id: str | None = None, *, stored: bool = False, offset: int = 0) -> None:
        self.id = id
        self.stored = stored
        """Whether its row exists."""
        self.offset = offset
        """What to add to a new part's position, when the stored rows have gaps."""
        self.marked = False
        """Whether the recorder's own metadata is in the stored row."""
        self.ended = False
        """Whether it was finished: a `start` that names it again reads what others wrote meanwhile."""
        self.started = False
        """Whether a `start` named it: then even an empty one is kept at finish."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Metadata that the stream sent. The first payload of a message is taken whole; merging a later one skips some keys."""

    payload: Mapping[str, Any]
    first: bool


def patched(base: Mapping[str, Any], patches: Iterable[Patch], owned: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata with what the stream sent, and over all of it what is the recorder's own."""
    metadata = dict(base)
    for patch in patches:
        metadata = merged(metadata, patch.payload, skipped=frozenset()) if patch.first else merged(metadata, patch.payload)
    return {**metadata, **owned}


def without_usage(patches: Iterable[Patch]) -> list[Patch]:
    """The same, where the usage is the store's to count."""
    return [Patch({key: value for key, value in patch.payload.items() if key != "usage"}, patch.first) for patch in patches]


@dataclass(frozen=True, slots=True)
class Entry:
    """One applied chunk."""

    change: Change
    current: Current
    at: datetime
    patch: Patch | None = None
    size: int = 0
    foreign_to: str | None = None
    adopts: bool = False
    """A start gave the message its id: what an earlier chunk said of its metadata is gone, as in the SDK."""


@dataclass(slots=True)
class Unit:
    """One message's pending changes."""

    current: Current
    new: dict[PartState, datetime] = field(default_factory=dict)
    dirty: dict[PartState, datetime] = field(default_factory=dict)
    grown: dict[PartState, list[str]] = field(default_factory=dict)
    patches: list[Patch] = field(default_factory=list)
    usage: list[tuple[int, StepUsage]] = field(default_factory=list)
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
            self.create,
            self.touch,
        )

    def writable(self) -> bool:
        """Metadata and usage alone make no row: they wait for the first part, or for the finish."""
        return self.current.stored or bool(self.new) or self.create


class Pending:
    """Coalesced: one write per touched part, however many chunks touched it."""

    __slots__ = ("bytes", "failed", "foreign", "structural", "touched", "units")

    def __init__(self) -> None:
        self.units: dict[Current, Unit] = {}
        self.foreign: dict[PartState, tuple[str, datetime]] = {}
        self.bytes = 0
        """Text that waits in `grown`."""
        self.structural = False
        self.failed = False
        self.touched = False

    def __bool__(self) -> bool:
        return bool(self.units or self.foreign or self.failed or self.touched)

    def copy(self) -> "Pending":
        same = Pending()
        same.units = {current: unit.copy() for current, unit in self.units.items()}
        same.foreign = dict(self.foreign)
        same.bytes, same.structural, same.failed, same.touched = self.bytes, self.structural, self.failed, self.touched
        return same

    def unit(self, current: Current) -> Unit:
        """The message's unit, made when first needed."""
        found = self.units.get(current)
        if found is None:
            found = self.units[current] = Unit(current)
        return found

    def add(self, entry: Entry) -> None:
        """Take in one applied chunk."""
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
        if entry.adopts and entry.current in self.units:
            self.units[entry.current].patches.clear()
        if entry.patch is not None:
            self.unit(entry.current).patches.append(entry.patch)
        if change.error_text is not None:
            self.failed = self.touched = True
        if change.boundary is not None:
            self._boundary(entry)

    def parts(self) -> Iterator[PartState]:
        """Every part that has something to write."""
        for unit in self.units.values():
            yield from unit.dirty
            yield from unit.grown

    def _rewrite(self, part: PartState, entry: Entry) -> None:
        if entry.foreign_to is not None:
            self.foreign[part] = (entry.foreign_to, entry.at)
            return
        unit = self.unit(entry.current)
        unit.dirty[part] = entry.at
        unit.grown.pop(part, None)

    def _boundary(self, entry: Entry) -> None:
        self.touched = True
        unit = self.unit(entry.current)
        unit.touch = True
        if entry.change.boundary == "finish" and (entry.current.started or unit.patches or unit.usage):
            unit.create = True
