"""Storing values of channels. A list is stored as ranges of its channel's pieces: one that grew costs only what was added."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import and_, bindparam, delete, func, or_, select

from persist.checkpoints.models import pieces, values
from persist.checkpoints.schemas import Blob, Stored
from persist.db.expressions.upsert import upsert
from persist.db.schema.column_types import Label, Whole
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import StoreCorrupt
from persist.quoting import named

ThreadKey = dict[str, str]
"""The statement parameters `thread_id` and `namespace`."""

_V, _P = values.c, pieces.c
_CHANNELS_PER_QUERY = 16  # values of more channels are read by several queries

_of_list = (_P.thread_id == param("thread_id"), _P.namespace == param("namespace"), _P.channel == param("channel"))
_of_channel = (_V.thread_id == param("thread_id"), _V.namespace == param("namespace"), _V.channel == param("channel"))
# Versions grow, so this is nearly always the list that the new one extends. If it is not, storing only takes longer.
_last_piece = select(func.max(_P.position)).where(*_of_list)
_LATEST = Statement(
    select(_V.spans_json, _V.digest, _last_piece.scalar_subquery())
    .where(*_of_channel, _V.digest.is_not(None))
    .order_by(_V.version.desc())
    .limit(1)
)
_LAST_PIECE = Statement(_last_piece)
_DIGESTS = Statement(select(_P.digest, _P.position).where(*_of_list))
_PIECES = Statement(
    select(_P.position, _P.kind, _P.data)
    .where(*_of_list, _P.position >= bindparam("low", type_=Whole()), _P.position < bindparam("high", type_=Whole()))
    .order_by(_P.position),
    unreadable=OnUnreadable.RAISE,
)
_ADD_PIECE = Statement(pieces.insert())
_PUT = Statement(upsert(values, "thread_id", "namespace", "channel", "version"))
_DROP = Statement(delete(values).where(*_of_channel, _V.version == param("version")))


def put_values(work: UnitOfWork, thread_key: ThreadKey, new: Mapping[str, tuple[str, Stored | None]]) -> None:
    """Store the values of channels at their versions; None deletes that version's value."""
    rows, deleted = [], []
    for channel, (version, value) in new.items():
        key: dict[str, Any] = {**thread_key, "channel": channel, "version": version}
        if value is None:
            deleted.append(key)
        elif isinstance(value, Blob):
            rows.append({**key, "kind": value.kind, "spans_json": None, "digest": None, "data": value.data})
        else:
            spans, digest = _put_list(work, {**thread_key, "channel": channel}, value)
            rows.append({**key, "kind": None, "spans_json": spans, "digest": digest, "data": None})
    work.run_many(_DROP, deleted)
    work.run_many(_PUT, rows)


def _put_list(work: UnitOfWork, key: ThreadKey, value: Sequence[Blob]) -> tuple[list[list[int]], bytes]:
    """Store the new pieces of a list; its ranges, and the digest of the whole list."""
    latest = work.row(_LATEST, **key)
    last = (work.row(_LAST_PIECE, **key) if latest is None else latest[2:]) or (None,)
    next_position = 0 if last[0] is None else last[0] + 1
    spans = [] if latest is None else [list(span) for span in stored_spans(key["thread_id"], latest[0])]
    kept = sum(high - low for low, high in spans)
    list_digest = _Digest(value[:kept])
    if latest is None or kept > len(value) or list_digest.digest() != latest[1]:
        spans, kept, list_digest = [], 0, _Digest(())
    known = {} if kept or next_position == 0 else {bytes(digest): position for digest, position in work.rows(_DIGESTS, **key)}
    added = []
    for piece in value[kept:]:
        digest = _Digest((piece,)).digest()
        position = known.get(digest)
        if position is None:
            position = known[digest] = next_position
            next_position += 1
            added.append({**key, "position": position, "digest": digest, "kind": piece.kind, "data": piece.data})
        if spans and spans[-1][1] == position:
            spans[-1][1] += 1
        else:
            spans.append([position, position + 1])
    work.run_many(_ADD_PIECE, added)
    list_digest.add(value[kept:])
    return spans, list_digest.digest()


class _Digest:
    """The digest of a list of pieces: of their joined bytes, then of their lengths and kinds."""

    def __init__(self, pieces: Sequence[Blob]) -> None:
        self._bytes = hashlib.blake2b(digest_size=16)
        self._kinds: list[str] = []
        self._lengths: list[int] = []
        self.add(pieces)

    def add(self, pieces: Sequence[Blob]) -> None:
        """Append pieces to the list."""
        self._bytes.update(b"".join([piece.data for piece in pieces]))
        self._kinds += [piece.kind for piece in pieces]
        self._lengths += [len(piece.data) for piece in pieces]

    def digest(self) -> bytes:
        """The digest of the pieces added so far, 16 bytes."""
        digest = self._bytes.copy()
        shape = repr((self._lengths, self._kinds)).encode()
        digest.update(shape + len(shape).to_bytes(8, "little"))
        return digest.digest()


def stored_blob(kind: str, data: object) -> Blob:
    """The Blob of a row. StoreCorrupt if its data is not bytes."""
    if not isinstance(data, bytes | memoryview):
        raise StoreCorrupt("checkpoints", f"{data!r:.40} is stored, which is no value.")
    return Blob(kind, bytes(data))


def stored_versions(thread_id: str, stored: object) -> dict[str, str]:
    """A row's versions by channel. StoreCorrupt if the stored value is anything else."""
    if isinstance(stored, dict) and all(isinstance(version, str) for version in stored.values()):
        return stored
    raise StoreCorrupt(f"thread {named(thread_id)}", "what is stored as versions of channels is none.")


def stored_spans(thread_id: str, stored: object) -> list[list[int]]:
    """A row's ranges of pieces, [[low, high), …]. StoreCorrupt if the stored value is anything else."""
    if isinstance(stored, list) and all(isinstance(span, list) and [type(end) for end in span] == [int, int] for span in stored):
        return stored
    raise StoreCorrupt(f"thread {named(thread_id)}", "what is stored as ranges of a list is none.")


@cache
def _reading(count: int) -> Statement:
    """The SELECT of `count` channels' values, each at a version."""
    version_conditions = (
        and_(_V.channel == bindparam(f"c_{n}", type_=Label()), _V.version == bindparam(f"v_{n}", type_=Label()))
        for n in range(count)
    )
    channel_versions = select(_V.channel, _V.kind, _V.spans_json, _V.data)
    return Statement(
        channel_versions.where(_V.thread_id == param("thread_id"), _V.namespace == param("namespace"), or_(*version_conditions)),
        unreadable=OnUnreadable.RAISE,
    )


class Reading:
    """Reads values within one transaction. Pieces that several checkpoints share are read once."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work
        self._seen: dict[tuple[str, ...], dict[int, Blob]] = {}

    def values(self, thread_key: ThreadKey, versions: Mapping[str, str]) -> dict[str, Stored]:
        """The values of channels at their versions, in the order of `versions`. Channels without one are left out."""
        found = {}
        named = stored_versions(thread_key["thread_id"], versions)
        for channel, kind, spans, data in self._rows(thread_key, list(named.items())):
            found[channel] = self._list(thread_key, channel, spans) if kind is None else stored_blob(kind, data)
        return {channel: found[channel] for channel in versions if channel in found}

    def _rows(self, thread_key: ThreadKey, channel_versions: list[tuple[str, str]]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(channel_versions), _CHANNELS_PER_QUERY):
            chunk = channel_versions[start : start + _CHANNELS_PER_QUERY]
            named = {f"c_{n}": channel for n, (channel, _) in enumerate(chunk)}
            named |= {f"v_{n}": version for n, (_, version) in enumerate(chunk)}
            yield from self._work.rows(_reading(len(chunk)), **thread_key, **named)

    def _list(self, thread_key: ThreadKey, channel: str, spans: Sequence[Sequence[int]]) -> list[Blob]:
        try:
            return self._pieces(thread_key, channel, spans)
        except (KeyError, TypeError, ValueError):
            raise StoreCorrupt(f"thread {thread_key['thread_id']!r}", f"pieces of the channel {channel!r} are missing.") from None

    def _pieces(self, thread_key: ThreadKey, channel: str, spans: Sequence[Sequence[int]]) -> list[Blob]:
        key = {**thread_key, "channel": channel}
        seen = self._seen.setdefault(tuple(key.values()), {})
        if any(position not in seen for low, high in spans for position in (low, high - 1)):
            low, high = min(span[0] for span in spans), max(span[1] for span in spans)
            for position, kind, data in self._work.rows(_PIECES, **key, low=low, high=high):
                seen[position] = stored_blob(kind, data)
        return [seen[position] for low, high in spans for position in range(low, high)]
