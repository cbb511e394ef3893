"""Lists that a saver stored or read, kept in memory under the digests of their pieces and where these are.

The digest in the row of a list says what the list is, and every read asks for the row. So what is kept can be missing but never
be an old state. What is kept are bytes, from which every read builds objects of its own: callers may change these in place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ormsgpack

from persist.checkpoints.known_lists import Digest, KnownList
from persist.checkpoints.schemas import Blob, Stored
from persist.checkpoints.values import KeptLists
from persist.integrations.langgraph.latest import Latest
from persist.integrations.langgraph.own_types import MESSAGES
from persist.integrations.langgraph.strict import StrictSerializer

PACKED = "msgpack"
_CLASSES = dict(enumerate(MESSAGES))
_NUMBERS = {cls: number for number, cls in _CLASSES.items()}
_PLAIN = -1
_MOST_CHUNKS = 16
_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class KeptList(Blob):
    """A list: elements that were built once, in chunks that are rebuilt quickly, and then MessagePack of `count` others."""

    key: bytes = b""
    chunks: tuple[bytes, ...] = ()
    count: int = 0
    plain: bool = True
    """Whether all elements that were built so far can be rebuilt."""

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, about."""
        return 500 + 2 * len(self.key) + len(self.data) + sum(map(len, self.chunks))


class ListMemory:
    """The lists that one serializer read or wrote, at most so many bytes of them."""

    def __init__(self, serde: Any, most: int) -> None:
        self._serde = serde
        self._rebuilds = type(serde) is StrictSerializer
        self._lists: Latest[bytes, KeptList] = Latest(most)

    def find(self, key: bytes) -> KeptList | None:
        """The list with that key."""
        return self._lists.get(key)

    def add(self, key: bytes, pieces: Sequence[Blob]) -> KeptList | None:
        """Keep a list; None if its pieces cannot be joined."""
        if not all(piece.kind == PACKED for piece in pieces):
            return None
        return self._keep(KeptList(PACKED, b"".join([piece.data for piece in pieces]), key, count=len(pieces)))

    def grow(self, base: bytes, added: Sequence[Blob], key: bytes) -> None:
        """Keep a list that is a kept one plus some pieces, instead of that one."""
        if base == key or (kept := self._lists.pop(base)) is None or not all(piece.kind == PACKED for piece in added):
            return
        data = kept.data + b"".join([piece.data for piece in added])
        self._keep(KeptList(PACKED, data, key, kept.chunks, kept.count + len(added), kept.plain))

    def _keep(self, kept: KeptList) -> KeptList:
        self._lists.put(kept.key, kept, kept.size)
        return kept

    def elements(self, kept: KeptList) -> list[Any]:
        """New objects of all elements."""
        found = [_rebuilt(*state) for chunk in kept.chunks for state in ormsgpack.unpackb(chunk)]
        if not kept.count:
            return found
        before = self._serde.plain_reads if self._rebuilds else 0
        built: list[Any] = self._serde.loads_typed((PACKED, array_header(kept.count) + kept.data))
        if self._rebuilds and kept.plain:
            chunk = None if self._serde.plain_reads != before else _chunk(built)
            if chunk is None:
                self._keep(KeptList(PACKED, kept.data, kept.key, kept.chunks, kept.count, plain=False))
            else:
                self._keep(KeptList(PACKED, b"", kept.key, _joined((*kept.chunks, chunk))))
        return found + built


class SavedLists(KeptLists):
    """The kept lists of one thread, with what the saver knows about the versions of its channels."""

    def __init__(self, memory: ListMemory, known: Mapping[str, KnownList]) -> None:
        self._memory, self._known = memory, known

    def expected(self, channel: str, version: str) -> bool:
        known = self._known.get(channel)
        return known is not None and known.version == version and self._memory.find(known.key) is not None

    def find(self, key: bytes) -> Stored | None:
        return self._memory.find(key)

    def keep(self, key: bytes, pieces: list[Blob]) -> Stored:
        if not key.startswith(Digest(pieces).digest()):
            return pieces  # somebody changed one; another list may have this key, and be as it was
        return self._memory.add(key, pieces) or pieces


def array_header(length: int) -> bytes:
    """MessagePack's header of an array, in the 32-bit form."""
    return b"\xdd" + length.to_bytes(4, "big")


def _rebuilt(number: int, state: Any, fields_set: list[str], extra: Any) -> Any:
    if number == _PLAIN:
        return state
    cls: Any = _CLASSES[number]
    message = cls.__new__(cls)
    _set(message, "__dict__", state)
    _set(message, "__pydantic_fields_set__", set(fields_set))
    _set(message, "__pydantic_extra__", extra)
    _set(message, "__pydantic_private__", None)
    return message


def _chunk(built: Sequence[Any]) -> bytes | None:
    """The elements as bytes; None unless they hold only messages of LangChain and plain values."""
    states: list[list[Any]] = []
    for element in built:
        number = _NUMBERS.get(type(element), _PLAIN)
        if number == _PLAIN:
            states.append([_PLAIN, element, None, None])
        elif element.__pydantic_private__ is None:
            states.append([number, element.__dict__, list(element.__pydantic_fields_set__), element.__pydantic_extra__])
        else:
            return None
    try:
        return ormsgpack.packb(states) if _is_plain(states) else None
    except (ormsgpack.MsgpackEncodeError, RecursionError):  # text that is no UTF-8, a large integer, a deep value
        return None


def _is_plain(value: Any) -> bool:
    """Whether MessagePack gives a value back with its exact types."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(_is_plain, value.values()))
    return kind is list and all(map(_is_plain, value))


_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})


def _joined(chunks: tuple[bytes, ...]) -> tuple[bytes, ...]:
    if len(chunks) < _MOST_CHUNKS:
        return chunks
    return (ormsgpack.packb([state for chunk in chunks for state in ormsgpack.unpackb(chunk)]),)
