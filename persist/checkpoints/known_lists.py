"""The lists of channels that a runner remembers to have stored, which the database need not be asked about before a put."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from persist.checkpoints.schemas import Blob


@dataclass(frozen=True, slots=True)
class KnownList:
    """A stored list: its version, its ranges of pieces, its digest, and the first position after all pieces of its channel."""

    version: str
    spans: Sequence[Sequence[int]]
    digest: bytes
    free: int

    @property
    def length(self) -> int:
        """The number of elements."""
        return sum(high - low for low, high in self.spans)


class Digest:
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


class GrownList:
    """A list to store under a version, on top of a stored one if it begins with that.

    key      the parameters that name its channel
    added    the rows of its pieces that are not stored yet
    stored   how it is stored then
    """

    def __init__(self, key: Mapping[str, Any], version: str, value: Sequence[Blob], base: KnownList | None) -> None:
        self.key, self._version, self._value = dict(key), version, value
        kept = 0 if base is None else base.length
        self._digest = Digest(value[:kept])
        self.base = base if base is not None and kept <= len(value) and self._digest.digest() == base.digest else None
        """The stored list that it begins with, None if there is none."""
        self.added: list[dict[str, Any]] = []

    def place(self, free: int, known: Mapping[bytes, int]) -> None:
        """Give its new elements positions from `free` on. `known`: the positions of stored pieces by their digests."""
        kept = 0 if self.base is None else self.base.length
        if self.base is None:
            self._digest = Digest(())
        spans = [] if self.base is None else [list(span) for span in self.base.spans]
        positions = dict(known)
        for piece in self._value[kept:]:
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
        self._digest.add(self._value[kept:])
        self.stored = KnownList(self._version, spans, self._digest.digest(), free)

    @property
    def row(self) -> dict[str, Any]:
        """The row of `checkpoint_values` for this list."""
        stored = {"spans_json": self.stored.spans, "digest": self.stored.digest}
        return {**self.key, "version": self._version, "kind": None, "data": None, **stored}
