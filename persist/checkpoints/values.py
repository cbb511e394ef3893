"""The values of channels: a list is kept as ranges of its channel's pieces, so that one that grew costs what was added."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import and_, bindparam, delete, func, or_, select

from persist.checkpoints.models import pieces, values
from persist.checkpoints.schemas import Blob, Stored
from persist.db.hot import Hot, param
from persist.db.insert import upsert
from persist.db.spoilt import Spoilt
from persist.db.types import Label, Whole
from persist.db.work import Work
from persist.errors import StoreCorrupt
from persist.quoting import named

Place = dict[str, str]
"""The thread and the namespace, as parameters."""

_V, _P = values.c, pieces.c
_AT_ONCE = 16  # channels that one statement reads

_of_list = (_P.thread_id == param("thread_id"), _P.namespace == param("namespace"), _P.channel == param("channel"))
_of_channel = (_V.thread_id == param("thread_id"), _V.namespace == param("namespace"), _V.channel == param("channel"))
# Versions grow, so this is nearly always the list that the new one grew from; any other costs only time.
_last_piece = select(func.max(_P.position)).where(*_of_list)
_LATEST = Hot(
    select(_V.spans_json, _V.digest, _last_piece.scalar_subquery())
    .where(*_of_channel, _V.digest.is_not(None))
    .order_by(_V.version.desc())
    .limit(1)
)
_LAST_PIECE = Hot(_last_piece)
_DIGESTS = Hot(select(_P.digest, _P.position).where(*_of_list))
_PIECES = Hot(
    select(_P.position, _P.kind, _P.data)
    .where(*_of_list, _P.position >= bindparam("low", type_=Whole()), _P.position < bindparam("high", type_=Whole()))
    .order_by(_P.position),
    spoilt=Spoilt.RAISE,
)
_ADD_PIECE = Hot(pieces.insert())
_PUT = Hot(upsert(values, "thread_id", "namespace", "channel", "version"))
_DROP = Hot(delete(values).where(*_of_channel, _V.version == param("version")))


def put_values(work: Work, place: Place, new: Mapping[str, tuple[str, Stored | None]]) -> None:
    """Store the values of channels, each at its version; None: there is none."""
    rows, gone = [], []
    for channel, (version, value) in new.items():
        key: dict[str, Any] = {**place, "channel": channel, "version": version}
        if value is None:
            gone.append(key)
        elif isinstance(value, Blob):
            rows.append({**key, "kind": value.kind, "spans_json": None, "digest": None, "data": value.data})
        else:
            spans, digest = _put_list(work, {**place, "channel": channel}, value)
            rows.append({**key, "kind": None, "spans_json": spans, "digest": digest, "data": None})
    work.run_many(_DROP, gone)
    work.run_many(_PUT, rows)


def _put_list(work: Work, key: Place, value: Sequence[Blob]) -> tuple[list[list[int]], bytes]:
    """Store what is new of a list; its ranges, and the digest of the whole."""
    latest = work.row(_LATEST, **key)
    last = (work.row(_LAST_PIECE, **key) if latest is None else latest[2:]) or (None,)
    free = 0 if last[0] is None else last[0] + 1
    spans = [] if latest is None else [list(span) for span in stored_spans(key["thread_id"], latest[0])]
    kept = sum(high - low for low, high in spans)
    so_far = _Digest(value[:kept])
    if latest is None or kept > len(value) or so_far.made() != latest[1]:
        spans, kept, so_far = [], 0, _Digest(())
    known = {} if kept or free == 0 else {bytes(digest): position for digest, position in work.rows(_DIGESTS, **key)}
    added = []
    for piece in value[kept:]:
        digest = _Digest((piece,)).made()
        position = known.get(digest)
        if position is None:
            position = known[digest] = free
            free += 1
            added.append({**key, "position": position, "digest": digest, "kind": piece.kind, "data": piece.data})
        if spans and spans[-1][1] == position:
            spans[-1][1] += 1
        else:
            spans.append([position, position + 1])
    work.run_many(_ADD_PIECE, added)
    so_far.add(value[kept:])
    return spans, so_far.made()


class _Digest:
    """Of the pieces of a list: all their bytes at once, and then how long each is and of what kind."""

    def __init__(self, pieces: Sequence[Blob]) -> None:
        self._bytes = hashlib.blake2b(digest_size=16)
        self._kinds: list[str] = []
        self._lengths: list[int] = []
        self.add(pieces)

    def add(self, pieces: Sequence[Blob]) -> None:
        """Those that follow."""
        self._bytes.update(b"".join([piece.data for piece in pieces]))
        self._kinds += [piece.kind for piece in pieces]
        self._lengths += [len(piece.data) for piece in pieces]

    def made(self) -> bytes:
        """Of what was added so far."""
        made = self._bytes.copy()
        shape = repr((self._lengths, self._kinds)).encode()
        made.update(shape + len(shape).to_bytes(8, "little"))
        return made.digest()


def stored_blob(kind: str, data: object) -> Blob:
    """What a row holds; StoreCorrupt for what was never bytes."""
    if not isinstance(data, bytes | memoryview):
        raise StoreCorrupt("checkpoints", f"{data!r:.40} is stored, which is no value.")
    return Blob(kind, bytes(data))


def stored_versions(thread_id: str, stored: object) -> dict[str, str]:
    """The versions of channels that a row holds; StoreCorrupt for what are none."""
    if isinstance(stored, dict) and all(isinstance(version, str) for version in stored.values()):
        return stored
    raise StoreCorrupt(f"thread {named(thread_id)}", "what is stored as versions of channels is none.")


def stored_spans(thread_id: str, stored: object) -> list[list[int]]:
    """The ranges of pieces that a row holds; StoreCorrupt for what are none."""
    if isinstance(stored, list) and all(isinstance(span, list) and [type(end) for end in span] == [int, int] for span in stored):
        return stored
    raise StoreCorrupt(f"thread {named(thread_id)}", "what is stored as ranges of a list is none.")


@cache
def _reading(count: int) -> Hot:
    """The values of so many channels, each at a version."""
    one_of = (
        and_(_V.channel == bindparam(f"c_{n}", type_=Label()), _V.version == bindparam(f"v_{n}", type_=Label()))
        for n in range(count)
    )
    wanted = select(_V.channel, _V.kind, _V.spans_json, _V.data)
    return Hot(
        wanted.where(_V.thread_id == param("thread_id"), _V.namespace == param("namespace"), or_(*one_of)), spoilt=Spoilt.RAISE
    )


class Reading:
    """Reads values within one transaction, and the pieces that checkpoints have in common once."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._seen: dict[tuple[str, ...], dict[int, Blob]] = {}

    def values(self, place: Place, versions: Mapping[str, str]) -> dict[str, Stored]:
        """Those of the channels that have one at that version, in the order of `versions`."""
        found = {}
        named = stored_versions(place["thread_id"], versions)
        for channel, kind, spans, data in self._rows(place, list(named.items())):
            found[channel] = self._list(place, channel, spans) if kind is None else stored_blob(kind, data)
        return {channel: found[channel] for channel in versions if channel in found}

    def _rows(self, place: Place, wanted: list[tuple[str, str]]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            named = {f"c_{n}": channel for n, (channel, _) in enumerate(some)}
            named |= {f"v_{n}": version for n, (_, version) in enumerate(some)}
            yield from self._work.rows(_reading(len(some)), **place, **named)

    def _list(self, place: Place, channel: str, spans: Sequence[Sequence[int]]) -> list[Blob]:
        try:
            return self._pieces(place, channel, spans)
        except (KeyError, TypeError, ValueError):
            raise StoreCorrupt(f"thread {place['thread_id']!r}", f"pieces of the channel {channel!r} are missing.") from None

    def _pieces(self, place: Place, channel: str, spans: Sequence[Sequence[int]]) -> list[Blob]:
        key = {**place, "channel": channel}
        seen = self._seen.setdefault(tuple(key.values()), {})
        if any(position not in seen for low, high in spans for position in (low, high - 1)):
            low, high = min(span[0] for span in spans), max(span[1] for span in spans)
            for position, kind, data in self._work.rows(_PIECES, **key, low=low, high=high):
                seen[position] = stored_blob(kind, data)
        return [seen[position] for low, high in spans for position in range(low, high)]
