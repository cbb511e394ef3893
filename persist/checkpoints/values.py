"""Reading values of channels. A list is stored as ranges of its channel's pieces."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeGuard

from sqlalchemy import and_, bindparam, or_, select, true
from sqlalchemy.sql.elements import ColumnElement

from persist.checkpoints.models import pieces, values
from persist.checkpoints.schemas import Blob, Stored
from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.json_ranges import ranges_in
from persist.db.schema.column_types import Int64, Label
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import StoreCorrupt
from persist.quoting import named

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
    if _are_ranges(stored):
        return stored
    raise StoreCorrupt(f"thread {named(thread_id)}", "what is stored as ranges of a list is none.")


def _are_ranges(stored: object) -> TypeGuard[list[list[int]]]:
    return isinstance(stored, list) and all(
        isinstance(span, list) and [type(end) for end in span] == [int, int] for span in stored
    )


def _channel_versions(count: int) -> ColumnElement[bool]:
    """The condition that a value is of one of `count` channels at its version."""
    version_conditions = (
        and_(_V.channel == bindparam(f"c_{n}", type_=Label()), _V.version == bindparam(f"v_{n}", type_=Label()))
        for n in range(count)
    )
    return and_(_V.thread_id == param("thread_id"), _V.namespace == param("namespace"), or_(*version_conditions))


@cache
def _reading(count: int) -> Statement:
    """The SELECT of `count` channels' values, each at a version."""
    channel_versions = select(_V.channel, _V.kind, _V.spans_json, _V.data)
    return Statement(channel_versions.where(_channel_versions(count)), unreadable=OnUnreadable.RAISE)


@cache
def _reading_pieces(count: int) -> Statement:
    """The SELECT of the pieces of those among `count` channels' values that are lists."""
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


@dataclass(slots=True)
class Asked:
    """The values of channels at their versions that are being read, until `Reading.values` returns them."""

    key: ThreadKey
    versions: Mapping[str, str]
    rows: list[Pending[list[Row]]] = field(default_factory=list)
    pieces: list[Pending[list[Row]]] = field(default_factory=list)
    """The pieces of their lists, if they are read together with the values."""

    def found(self) -> Iterable[Row]:
        """The rows of the values."""
        return (row for pending in self.rows for row in pending.result)


class Reading:
    """Reads values within one transaction. Pieces that several checkpoints share are read once."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work
        self._seen: dict[tuple[str, ...], dict[int, Blob]] = {}

    def ask(self, batch: Batch, key: ThreadKey, versions: Mapping[str, str], *, with_pieces: bool = False) -> Asked:
        """Read the values of channels at their versions with a batch, with or without the pieces of their lists."""
        asked = Asked(key, stored_versions(key["thread_id"], versions))
        channel_versions = list(asked.versions.items())
        for start in range(0, len(channel_versions), _CHANNELS_PER_QUERY):
            chunk = channel_versions[start : start + _CHANNELS_PER_QUERY]
            named = {f"c_{n}": channel for n, (channel, _) in enumerate(chunk)}
            named |= {f"v_{n}": version for n, (_, version) in enumerate(chunk)}
            asked.rows.append(batch.rows(_reading(len(chunk)), **key, **named))
            if with_pieces:
                asked.pieces.append(batch.rows(_reading_pieces(len(chunk)), **key, **named))
        return asked

    def ask_whole(self, batch: Batch, key: ThreadKey, versions: Mapping[str, str]) -> Asked:
        """Read the values of channels with a batch, and the pieces of their lists too if that saves a round trip."""
        return self.ask(batch, key, versions, with_pieces=self._work.runtime.dialect.pipelines)

    def values(self, asked: Asked) -> dict[str, Stored]:
        """The values in the order of `versions`, after the batch. Channels without one are left out."""
        self._note(asked)
        found = {
            channel: self._list(asked, channel, spans) if kind is None else stored_blob(kind, data)
            for channel, kind, spans, data in asked.found()
        }
        return {channel: found[channel] for channel in asked.versions if channel in found}

    def _note(self, asked: Asked) -> None:
        for pending in asked.pieces:
            for channel, position, kind, data in pending.result:
                self._pieces_of(asked.key, channel)[position] = stored_blob(kind, data)

    def read_pieces(self, several: Sequence[Asked]) -> None:
        """Read the pieces of all lists that were asked for without them."""
        ranges: dict[tuple[str, ...], list[int]] = {}
        for asked in several:
            for channel, kind, spans, _ in asked.found():
                for span in spans if kind is None and _are_ranges(spans) else ():
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

    def _list(self, asked: Asked, channel: str, spans: Sequence[Sequence[int]]) -> list[Blob]:
        try:
            seen = self._pieces_of(asked.key, channel)
            return [seen[position] for low, high in spans for position in range(low, high)]
        except (KeyError, TypeError, ValueError):
            thread_id = asked.key["thread_id"]
            raise StoreCorrupt(f"thread {thread_id!r}", f"pieces of the channel {channel!r} are missing.") from None

    def _pieces_of(self, key: ThreadKey, channel: str) -> dict[int, Blob]:
        return self._seen.setdefault((*key.values(), channel), {})


def read_values(work: UnitOfWork, key: ThreadKey, versions: Mapping[str, str]) -> dict[str, Stored]:
    """The values of channels at these versions. A channel without a stored value at its version is left out."""
    if not versions:
        return {}
    reading = Reading(work)
    with work.batch() as batch:
        asked = reading.ask_whole(batch, key, versions)
    if not asked.pieces:
        reading.read_pieces([asked])
    return reading.values(asked)
