"""The lists of channels that a runner remembers to have stored, which the database need not be asked about before a put."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from persist.checkpoints.schemas import Blob


class Digest:
    """The digest of a list of pieces: of their joined bytes, then of their lengths and kinds."""

    def __init__(self, pieces: Sequence[Blob] = ()) -> None:
        self._bytes = hashlib.blake2b(digest_size=16)
        self._kinds = self._lengths = ""
        self.add(pieces)

    def add(self, pieces: Sequence[Blob]) -> None:
        """Append pieces to the list."""
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
    """A stored list: its version, its ranges of pieces, its digest, and the first position after all pieces of its channel."""

    version: str
    spans: Sequence[Sequence[int]]
    digest: bytes
    free: int
    pieces: Digest | None = field(default=None, compare=False, repr=False)
    """The digest while pieces can be added to it; None for a list that was read."""

    @property
    def length(self) -> int:
        """The number of elements."""
        return sum(high - low for low, high in self.spans)

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, about."""
        return 900 + 150 * len(self.spans) + (0 if self.pieces is None else self.pieces.size)

    @property
    def key(self) -> bytes:
        """The list's `key_of`."""
        return key_of(self.digest, self.spans)


def key_of(digest: bytes, spans: Sequence[Sequence[int]]) -> bytes:
    """The name of a stored list for those who keep it in memory: whatever is changed in its row, it has another one then."""
    return digest + repr(spans).encode()


@dataclass(frozen=True, slots=True)
class Addition:
    """The value of a list that is a known one plus some pieces, for a caller that need not look at the known ones again."""

    base: KnownList
    added: Sequence[Blob]


class GrownList:
    """A list to store under a version, on top of a stored one if it begins with that.

    key      the parameters that name its channel
    added    the rows of its pieces that are not stored yet
    stored   how it is stored then
    fits     False for an Addition to another list than the stored one: it cannot be stored
    """

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
        """The row of `checkpoint_values` for this list."""
        stored = {"spans_json": self.stored.spans, "digest": self.stored.digest}
        return {**self.key, "version": self._version, "kind": None, "data": None, **stored}
