"""Lists that a saver stored or read, as bytes under digests for which every read asks the database: never an old state."""

import hashlib
import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import PurePath
from typing import Any, Generic, TypeVar

import ormsgpack
from langgraph.checkpoint.serde.types import SendProtocol
from langgraph.store.base import Item

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import InvalidValue
from persist.framework_state.checkpoints.schemas import Blob, Stored, check_blobs
from persist.framework_state.checkpoints.states import CheckpointStates
from persist.framework_state.checkpoints.storing import NewState, extend, growing, store
from persist.framework_state.checkpoints.values import Addition, Digest, KeptLists, KnownList, Reading
from persist.integrations.langgraph.strict import MESSAGES, StrictSerializer

# Detecting text that LangGraph's serializer would change silently: it writes a lone surrogate as a question mark.

OPTIONS = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
"""The options of LangGraph's serializer, but text that is not valid UTF-8 is refused."""


def check_text(name: str, value: Any) -> None:
    """Raises InvalidValue if any text in a value cannot be encoded as UTF-8."""
    try:
        ormsgpack.packb(value, default=_serialized_parts, option=OPTIONS)
    except ormsgpack.MsgpackEncodeError as error:
        raise InvalidValue(name, f"it would not be stored as it is: {error}.") from None


def _serialized_parts(value: Any) -> Any:
    """The part of an object that the serializer writes, if it is or contains text; None otherwise."""
    for method in ("model_dump", "get_secret_value", "dict", "_asdict"):
        if callable(found := getattr(value, method, None)):
            return found()
    if isinstance(value, set | frozenset | deque):
        return tuple(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PurePath):
        return value.parts
    if isinstance(value, re.Pattern):
        return value.pattern
    if isinstance(value, BaseException):
        return repr(value)
    if isinstance(value, SendProtocol):
        return (value.node, value.arg)
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, Item):
        return (value.value, value.key, value.namespace)
    return None


_KINDS = {cls: number for number, cls in enumerate((dict, list, str, int, float, bool, tuple, bytes, *MESSAGES))}
_FIRST_MESSAGE = _KINDS[bytes] + 1
"""The least number of a class of messages."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The length of a list, and a digest of everything in it that the serializer writes."""

    length: int
    digest: bytes


class Fingerprinting:
    """Makes the fingerprint of a list to which elements are added."""

    def __init__(self) -> None:
        self._length = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, content: bytes | None, length: int) -> bool:
        """Add the content of `length` elements. False, and nothing is added, for None."""
        if content is None:
            return False
        self._digest.update(memoryview(content)[(1 if length < 16 else 3 if length < 2**16 else 5) :])
        self._length += length
        return True

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self._length, self._digest.digest())


def content(elements: Sequence[Any]) -> bytes | None:
    """All that the elements hold now, so that a change in place shows; None if one is no message of LangChain or plain data."""
    try:
        return ormsgpack.packb([_content(element) for element in elements], option=OPTIONS)
    except (ormsgpack.MsgpackEncodeError, KeyError):
        return None


def _content(element: Any) -> Any:
    kind = _KINDS[type(element)]
    if kind < _FIRST_MESSAGE:
        return kind, element
    return kind, element.__dict__, element.__pydantic_extra__


K = TypeVar("K")
V = TypeVar("V")


class Latest(Generic[K, V]):
    """Keeps the entries put last, in about `most` bytes. Each step is one operation of a dict: a lock might be held at a fork."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[K, tuple[V, int]] = {}
        self._added = 0

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        return None if found is None else found[0]

    def put(self, key: K, value: V, size: int) -> None:
        self._entries.pop(key, None)
        if size > self._most:
            return
        self._entries[key] = value, size
        self._added += size
        if self._added > self._most // 8:
            self._shrink()

    def pop(self, key: K) -> V | None:
        found = self._entries.pop(key, None)
        return None if found is None else found[0]

    def clear(self) -> None:
        self._entries.clear()

    def _shrink(self) -> None:
        self._added = 0
        keys = list(self._entries)
        excess = sum(found[1] for key in keys if (found := self._entries.get(key)) is not None) - self._most
        for key in keys:
            if excess <= 0:
                break
            if (found := self._entries.pop(key, None)) is not None:
                excess -= found[1]


_MOST_BYTES = 8 * 2**20
_OF, _AT = "of", "at"
ThreadKey = tuple[str, str]
"""(thread id, namespace)."""
Value = Stored | Addition | None


@dataclass(frozen=True, slots=True)
class KnownValues:
    """What a saver stored or read last of a namespace, by channel: `versions`, latest `lists`, and `fingerprints` of these."""

    versions: Mapping[str, str]
    lists: Mapping[str, KnownList]
    fingerprints: Mapping[str, Fingerprint]

    @property
    def size(self) -> int:
        return 700 + 400 * len(self.versions) + sum(known.size for known in self.lists.values())


NOTHING = KnownValues({}, {}, {})


class KnownThreads:
    """What a saver stored or read last, by thread and namespace: it need not query for that before a put."""

    def __init__(self) -> None:
        self._known: Latest[ThreadKey, KnownValues] = Latest(_MOST_BYTES)

    def note(self, thread_key: ThreadKey, known: KnownValues) -> None:
        self._known.put(thread_key, known, known.size)

    def of(self, thread_key: ThreadKey) -> KnownValues:
        return self._known.get(thread_key) or NOTHING

    def forget(self) -> None:
        """Forget everything, because what is stored may have been deleted."""
        self._known.clear()


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of stored values by channel after a put; `relied_on`: only those of values known before."""

    stored: Mapping[str, str]
    relied_on: Mapping[str, str]


class CheckpointPut:
    """A checkpoint to store: values `known` to be stored, new `values`, old ones `carried` along, and `fingerprints` of lists."""

    def __init__(
        self,
        thread_key: ThreadKey,
        id: str,
        arguments: dict[str, Any],
        values: Mapping[str, tuple[str, Value]],
        carried: Mapping[str, Stored],
        versions: Versions,
        known: KnownValues,
        fingerprints: Mapping[str, Fingerprint | None],
    ) -> None:
        self.thread_key, self.id, self.known = thread_key, id, known
        self._arguments, self._carried, self._values = arguments, carried, values
        self._versions, self._fingerprints = versions, fingerprints
        self.stored = NOTHING
        """What is stored of the thread after the put."""
        self.lists: Mapping[str, KnownList] = {}
        """How the lists among the new values are stored after the put."""

    def run(self, work: UnitOfWork) -> None:
        """Store the checkpoint, and set `stored`. Raises RequirementMissed if what is stored is not as known."""
        thread_id, namespace = self.thread_key
        versions, values, at = self._carrying(work)
        added = {channel: pair for channel, pair in values.items() if isinstance(pair[1], Addition)}
        given = {channel: pair for channel, pair in values.items() if channel not in added}
        states = SaverStates(work, {} if self._carried else self.known.lists, added, relies_on=self._versions.relied_on)
        states.put(thread_id, self.id, namespace=namespace, **{**self._arguments, "versions": versions, "values": given})
        self.lists = states.stored
        all_of = {**self.known.fingerprints, **{channel: self._fingerprints.get(channel) for channel in states.stored}}
        fingerprints = {channel: found for channel, found in all_of.items() if found is not None}
        self.stored = KnownValues(at, {**self.known.lists, **states.stored}, fingerprints)

    def additions(self) -> Mapping[str, Addition]:
        """The lists among the new values that are known ones with something added."""
        return {channel: value for channel, (_, value) in self._values.items() if isinstance(value, Addition)}

    def pieces(self) -> Mapping[str, Sequence[Blob]]:
        values = {channel: value for channel, (_, value) in self._values.items()}
        return {name: value for name, value in values.items() if value is not None and not isinstance(value, Addition | Blob)}

    def _carrying(self, work: UnitOfWork) -> tuple[dict[str, str], dict[str, tuple[str, Value]], dict[str, str]]:
        """All versions; the values to store, carried ones among them; and the versions at which values are stored then."""
        thread_id, namespace = self.thread_key
        versions, values = dict(self._arguments["versions"]), dict(self._values)
        named = {channel: versions[channel] for channel in self._carried if channel in versions}
        found = CheckpointStates(work).values(thread_id, named, namespace=namespace) if named else {}
        at = {**self._versions.stored, **named}
        for channel, value in self._carried.items():
            if channel in named and channel not in found:
                values[channel] = named[channel], value
            elif channel not in named or found[channel] != value:
                own_version = {_AT: self.id} | ({_OF: json.loads(named[channel])} if channel in named else {})
                at.pop(channel, None)
                versions[channel] = json.dumps(own_version)
                values[channel] = versions[channel], value
        return versions, values, at


class SaverStates(CheckpointStates):
    """`tx.checkpoints.states` of a saver, which knows how lists are stored, and adds to them without looking at them again."""

    def __init__(
        self,
        work: UnitOfWork,
        known: Mapping[str, KnownList],
        added: Mapping[str, tuple[str, Value]] | None = None,
        kept: KeptLists | None = None,
        relies_on: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(work)
        self._known, self._added, self._kept, self._relies_on = known, added or {}, kept, relies_on or {}
        self.stored: Mapping[str, KnownList] = {}
        """How the lists are stored after `put`."""

    def _store(self, new: NewState) -> None:
        work = self._work
        for channel, (version, value) in self._added.items():
            work.label("channel", channel, empty=True)
            work.label(f"values.{channel}.version", version, empty=True)
            if isinstance(value, Addition):
                check_blobs(f"values.{channel}", value.added)
        new = replace(new, values={**new.values, **self._added}, relies_on=self._relies_on)
        lists = growing(new, self._known) if work.is_alone else None
        self.stored = store(work, new) if lists is None else extend(work, new, lists)

    def _reading(self) -> Reading:
        return Reading(self._work, self._kept)


def version_of(stored: str) -> tuple[bool, Any]:
    """(whether the runner gave a version, that or one made from the checkpoint's id). Raises ValueError for text that is none."""
    version = json.loads(stored)
    named = True
    if isinstance(version, dict):
        named, version = _OF in version, version.get(_OF)
    if named and not isinstance(version, str | int | float):
        raise ValueError("neither text nor a number")
    return named, version


PACKED = "msgpack"
_CLASSES = dict(enumerate(MESSAGES))
_NUMBERS = {cls: number for number, cls in _CLASSES.items()}
_PLAIN = -1
_MOST_CHUNKS = 16
_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class KeptList(Blob):
    """A list: elements in chunks that are rebuilt quickly, and then MessagePack of `count` further elements."""

    key: bytes = b""
    chunks: tuple[bytes, ...] = ()
    count: int = 0
    plain: bool = True
    """Whether all elements that were built so far can be rebuilt."""

    @property
    def size(self) -> int:
        return 500 + 2 * len(self.key) + len(self.data) + sum(map(len, self.chunks))


class ListMemory:
    """The lists that a serializer read or wrote, up to a number of bytes."""

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
        """Replace the kept list `base` by the same list with `added` pieces."""
        if base == key or (kept := self._lists.pop(base)) is None or not all(piece.kind == PACKED for piece in added):
            return
        data = kept.data + b"".join([piece.data for piece in added])
        self._keep(KeptList(PACKED, data, key, kept.chunks, kept.count + len(added), kept.plain))

    def _keep(self, kept: KeptList) -> KeptList:
        self._lists.put(kept.key, kept, kept.size)
        return kept

    def elements(self, kept: KeptList) -> list[Any]:
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
    """The kept lists of a thread, and the known versions of its channels."""

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
