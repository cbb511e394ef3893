"""Reading values of channels. A list is stored as ranges of its channel's pieces."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeGuard

from sqlalchemy import ColumnElement, and_, bindparam, or_, select, true

from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.json_text import ranges_in
from persist.db.schema.column_types import Int64, Label
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.arguments import required_label
from persist.errors import StoreCorrupt, named
from persist.framework_state.checkpoints.models import pieces, values
from persist.framework_state.checkpoints.schemas import Blob, Stored


class Digest:
    """The digest of a list of pieces: first their joined bytes, then their lengths and kinds."""

    def __init__(self, pieces: Sequence[Blob] = ()) -> None:
        self._bytes = hashlib.blake2b(digest_size=16)
        self._kinds = self._lengths = ""
        self.add(pieces)

    def add(self, pieces: Sequence[Blob]) -> None:
        self._bytes.update(b"".join([piece.data for piece in pieces]))
        self._kinds += "".join([f"{piece.kind!r}, " for piece in pieces])
        self._lengths += "".join([f"{len(piece.data)}, " for piece in pieces])

    def digest(self) -> bytes:
        """The digest of the pieces added so far, 16 bytes."""
        digest = self._bytes.copy()
        shape = f"([{self._lengths[:-2]}], [{self._kinds[:-2]}])".encode()
        digest.update(shape + len(shape).to_bytes(8, "little"))
        return digest.digest()

    def copy(self) -> "Digest":
        """A digest of the same list, to which other pieces may be added."""
        copied = Digest()
        copied._bytes, copied._kinds, copied._lengths = self._bytes.copy(), self._kinds, self._lengths
        return copied

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, about."""
        return 400 + len(self._kinds) + len(self._lengths)


@dataclass(frozen=True, slots=True)
class KnownList:
    """A stored list: version, ranges of pieces, digest, and the first free position in its channel."""

    version: str
    spans: Sequence[Sequence[int]]
    digest: bytes
    free: int
    pieces: Digest | None = field(default=None, compare=False, repr=False)
    """The digest while pieces can be added to it; None for a list that was read."""

    @property
    def length(self) -> int:
        return sum(high - low for low, high in self.spans)

    @property
    def size(self) -> int:
        return 900 + 150 * len(self.spans) + (0 if self.pieces is None else self.pieces.size)

    @property
    def key(self) -> bytes:
        return key_of(self.digest, self.spans)


def key_of(digest: bytes, spans: Sequence[Sequence[int]]) -> bytes:
    """The key of a stored list in memory; any change of the list's row gives another key."""
    return digest + repr(spans).encode()


@dataclass(frozen=True, slots=True)
class Addition:
    """The value of a list that is a known one plus some pieces, for a caller that need not look at the known ones again."""

    base: KnownList
    added: Sequence[Blob]


class GrownList:
    """A list to store in the channel `key`: rows `added`, how it is `stored`. `fits`: False for an Addition to another."""

    def __init__(self, key: Mapping[str, Any], version: str, value: Sequence[Blob] | Addition, base: KnownList | None) -> None:
        self.key, self._version = dict(key), version
        if isinstance(value, Addition):
            begins = base is not None and value.base.pieces is not None and base.digest == value.base.digest
            self._digest = value.base.pieces.copy() if begins and value.base.pieces is not None else Digest()
            self._new, self.fits = value.added, begins
        else:
            kept = 0 if base is None else base.length
            self._digest = Digest(value[:kept])
            begins = base is not None and kept <= len(value) and self._digest.digest() == base.digest
            if not begins:
                self._digest = Digest()
            self._new, self.fits = value[kept:] if begins else value, True
        self.base = base if begins else None
        """The stored list that it begins with, None if there is none."""
        self.added: list[dict[str, Any]] = []

    def place(self, free: int, known: Mapping[bytes, int]) -> None:
        """Give its new elements positions from `free` on. `known`: the positions of stored pieces by their digests."""
        spans = [] if self.base is None else [list(span) for span in self.base.spans]
        positions = dict(known)
        for piece in self._new:
            digest = Digest((piece,)).digest()
            position = positions.get(digest)
            if position is None:
                position = positions[digest] = free
                free += 1
                self.added.append({**self.key, "position": position, "digest": digest, "kind": piece.kind, "data": piece.data})
            if spans and spans[-1][1] == position:
                spans[-1][1] += 1
            else:
                spans.append([position, position + 1])
        self._digest.add(self._new)
        self.stored = KnownList(self._version, spans, self._digest.digest(), free, self._digest)

    @property
    def row(self) -> dict[str, Any]:
        stored = {"spans_json": self.stored.spans, "digest": self.stored.digest}
        return {**self.key, "version": self._version, "kind": None, "data": None, **stored}


ThreadKey = dict[str, str]
"""The statement parameters `thread_id` and `namespace`."""
_V, _P = values.c, pieces.c
_CHANNELS_PER_QUERY = 16  # values of more channels are read by several queries
_of_list = (_P.thread_id == param("thread_id"), _P.namespace == param("namespace"), _P.channel == param("channel"))
_PIECES = Statement(
    select(_P.position, _P.kind, _P.data)
    .where(*_of_list, _P.position >= bindparam("low", type_=Int64()), _P.position < bindparam("high", type_=Int64()))
    .order_by(_P.position),
    unreadable=OnUnreadable.RAISE,
)


def thread_key(thread_id: str, namespace: str) -> ThreadKey:
    """The checked thread id and namespace."""
    return {"thread_id": required_label("thread_id", thread_id), "namespace": required_label("namespace", namespace, empty=True)}


def stored_blob(kind: str, data: object) -> Blob:
    """The Blob of a row. Raises StoreCorrupt if its data is not bytes."""
    if not isinstance(data, bytes | memoryview):
        raise StoreCorrupt("checkpoints", f"{data!r:.40} is stored, which is no value.")
    return Blob(kind, bytes(data))


def stored_versions(thread_id: str, stored: object) -> dict[str, str]:
    """A row's versions by channel. Raises StoreCorrupt if the stored value is anything else."""
    if isinstance(stored, dict) and all(isinstance(version, str) for version in stored.values()):
        return stored
    raise StoreCorrupt(f"thread {named(thread_id)}", "what is stored as versions of channels is none.")


def stored_spans(thread_id: str, stored: object) -> list[list[int]]:
    """A row's ranges of pieces, [[low, high), …]. Raises StoreCorrupt if the stored value is anything else."""
    if are_ranges(stored):
        return stored
    raise StoreCorrupt(f"thread {named(thread_id)}", "what is stored as ranges of a list is none.")


def are_ranges(stored: object) -> TypeGuard[list[list[int]]]:
    """Whether a stored value is a list of ranges of pieces."""
    return isinstance(stored, list) and all(
        isinstance(span, list) and [type(end) for end in span] == [int, int] for span in stored
    )


def _channel_versions(count: int) -> ColumnElement[bool]:
    """The condition that a value belongs to one of `count` channels at the channel's version."""
    version_conditions = (
        and_(_V.channel == bindparam(f"c_{n}", type_=Label()), _V.version == bindparam(f"v_{n}", type_=Label()))
        for n in range(count)
    )
    return and_(_V.thread_id == param("thread_id"), _V.namespace == param("namespace"), or_(*version_conditions))


@cache
def _reading(count: int) -> Statement:
    channel_versions = select(_V.channel, _V.kind, _V.spans_json, _V.data, _V.digest)
    return Statement(channel_versions.where(_channel_versions(count)), unreadable=OnUnreadable.RAISE)


@cache
def _reading_pieces(count: int) -> Statement:
    ranges, low, high = ranges_in(_V.spans_json)
    of_range = and_(
        _P.thread_id == _V.thread_id,
        _P.namespace == _V.namespace,
        _P.channel == _V.channel,
        _P.position >= low,
        _P.position < high,
    )
    found = select(_P.channel, _P.position, _P.kind, _P.data).select_from(values.join(ranges, true()).join(pieces, of_range))
    return Statement(found.where(_channel_versions(count)), unreadable=OnUnreadable.RAISE)


class KeptLists:
    """Lists that a reader kept, by the keys of how they are stored. This one keeps none, and gives lists as they are read."""

    def expected(self, channel: str, version: str) -> bool:
        """Whether the list of a channel at a version is probably kept, so that its pieces need not be asked for with it."""
        return False

    def find(self, key: bytes) -> Stored | None:
        return None

    def keep(self, key: bytes, pieces: list[Blob]) -> Stored:
        return pieces


@dataclass(slots=True)
class RequestedValues:
    """The values of channels at their versions that are being read, until `Reading.values` returns them."""

    key: ThreadKey
    versions: Mapping[str, str]
    rows: list[Pending[list[Row]]] = field(default_factory=list)
    pieces: list[Pending[list[Row]]] = field(default_factory=list)
    """The pieces of their lists, as far as they are read together with the values."""
    kept: dict[str, Stored] = field(default_factory=dict)
    """The lists that the reader had kept, by channel."""
    whole: set[str] = field(default_factory=set)
    """The channels whose pieces are read together with the values."""

    def found(self) -> Iterable[Row]:
        return (row for pending in self.rows for row in pending.result)


class Reading:
    """Reads values within one transaction. Pieces that several checkpoints share are read once."""

    def __init__(self, work: UnitOfWork, lists: KeptLists | None = None) -> None:
        self._work = work
        self._lists = lists or KeptLists()
        self._seen: dict[tuple[str, ...], dict[int, Blob]] = {}

    def ask(self, batch: Batch, key: ThreadKey, versions: Mapping[str, str], *, with_pieces: bool = False) -> RequestedValues:
        """Read the values of channels at their versions with a batch, with or without the pieces of their lists."""
        asked = RequestedValues(key, stored_versions(key["thread_id"], versions))
        for chunk in _chunks(asked.versions):
            asked.rows.append(batch.rows(_reading(len(chunk)), **key, **_named(chunk)))
        if with_pieces:
            unknown = {name: version for name, version in asked.versions.items() if not self._lists.expected(name, version)}
            asked.whole.update(unknown)
            for chunk in _chunks(unknown):
                asked.pieces.append(batch.rows(_reading_pieces(len(chunk)), **key, **_named(chunk)))
        return asked

    def ask_whole(self, batch: Batch, key: ThreadKey, versions: Mapping[str, str]) -> RequestedValues:
        """Read the values of channels with a batch, and the pieces of their lists too if that saves a round trip."""
        return self.ask(batch, key, versions, with_pieces=self._work.runtime.dialect.pipelines)

    def values(self, asked: RequestedValues) -> dict[str, Stored]:
        """The values in the order of `versions`, after the batch. Channels without one are left out."""
        found = {
            channel: self._list(asked, channel, spans, digest) if kind is None else stored_blob(kind, data)
            for channel, kind, spans, data, digest in asked.found()
        }
        return {channel: found[channel] for channel in asked.versions if channel in found}

    def read_pieces(self, several: Sequence[RequestedValues]) -> None:
        """Read the pieces of all lists that were neither kept nor read with their values."""
        ranges: dict[tuple[str, ...], list[int]] = {}
        for asked in several:
            self._note(asked)
            for channel, kind, spans, _, digest in asked.found():
                if kind is not None or not are_ranges(spans):
                    continue
                kept = self._lists.find(key_of(digest, spans)) if isinstance(digest, bytes) else None
                if kept is not None:
                    asked.kept[channel] = kept
                for span in () if kept is not None or channel in asked.whole else spans:
                    ends = ranges.setdefault((*asked.key.values(), channel), list(span))
                    ends[:] = min(ends[0], span[0]), max(ends[1], span[1])
        if not ranges:
            return
        names = ("thread_id", "namespace", "channel")
        with self._work.batch() as batch:
            found = {
                of: batch.rows(_PIECES, **dict(zip(names, of, strict=True)), low=low, high=high)
                for of, (low, high) in ranges.items()
            }
        for of, pending in found.items():
            self._seen.setdefault(of, {}).update((position, stored_blob(kind, data)) for position, kind, data in pending.result)

    def _note(self, asked: RequestedValues) -> None:
        for pending in asked.pieces:
            for channel, position, kind, data in pending.result:
                self._pieces_of(asked.key, channel)[position] = stored_blob(kind, data)

    def _list(self, asked: RequestedValues, channel: str, spans: Sequence[Sequence[int]], digest: object) -> Stored:
        if (kept := asked.kept.get(channel)) is not None:
            return kept
        try:
            seen = self._pieces_of(asked.key, channel)
            pieces = [seen[position] for low, high in spans for position in range(low, high)]
        except (KeyError, TypeError, ValueError):
            thread_id = asked.key["thread_id"]
            raise StoreCorrupt(f"thread {thread_id!r}", f"pieces of the channel {channel!r} are missing.") from None
        return self._lists.keep(key_of(digest, spans), pieces) if isinstance(digest, bytes) else pieces

    def _pieces_of(self, key: ThreadKey, channel: str) -> dict[int, Blob]:
        return self._seen.setdefault((*key.values(), channel), {})


def _chunks(versions: Mapping[str, str]) -> Iterable[list[tuple[str, str]]]:
    pairs = list(versions.items())
    return (pairs[start : start + _CHANNELS_PER_QUERY] for start in range(0, len(pairs), _CHANNELS_PER_QUERY))


def _named(chunk: list[tuple[str, str]]) -> dict[str, str]:
    names = {f"c_{number}": channel for number, (channel, _) in enumerate(chunk)}
    return names | {f"v_{number}": version for number, (_, version) in enumerate(chunk)}


def read_values(work: UnitOfWork, key: ThreadKey, versions: Mapping[str, str]) -> dict[str, Stored]:
    """The values of channels at these versions. A channel without a stored value at its version is left out."""
    if not versions:
        return {}
    reading = Reading(work)
    with work.batch() as batch:
        asked = reading.ask_whole(batch, key, versions)
    reading.read_pieces([asked])
    return reading.values(asked)
