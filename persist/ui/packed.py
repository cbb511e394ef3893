"""What a runner of graphs serialized, as a page shows it: MessagePack and JSON as values, all else as a number of bytes.

Only for looking: nothing is made of the names of classes in it, and what is large or deep is not read to its end.
"""

import json
import struct
from collections.abc import Callable
from typing import Any

from persist.framework_state.checkpoints.schemas import Blob, Stored

_MOST_BYTES, _MOST_VALUES, _DEEPEST = 1 << 20, 5_000, 40
_LAST = 20
"""How many elements of a list are shown, the last ones."""


class _UnreadableError(Exception):
    """Raised for data that is no MessagePack, or too much of it."""


def shown(stored: Stored | None) -> Any:
    """The value of a channel; of one that is stored by its elements the last of them."""
    if stored is None:
        return None
    if isinstance(stored, Blob):
        return shown_blob(stored)
    left = len(stored) - _LAST
    more = [f"{left:,} elements before"] if left > 0 else []
    return [*more, *map(shown_blob, stored[-_LAST:])]


def shown_blob(blob: Blob) -> Any:
    """The value that serialized bytes hold, or how many there are."""
    try:
        match blob.kind:
            case "null":
                return None
            case "msgpack" if len(blob.data) <= _MOST_BYTES:
                return unpacked(blob.data)
            case "json" if len(blob.data) <= _MOST_BYTES:
                return json.loads(blob.data)
    except (_UnreadableError, ValueError, RecursionError):
        pass
    return f"{len(blob.data):,} bytes of {blob.kind or 'no kind'}"


def unpacked(data: bytes) -> Any:
    """The value that MessagePack holds: what has no counterpart in JSON becomes text. Raises _UnreadableError."""
    reader = _Unpacker(bytes(data))
    value = reader.value(0)
    if not reader.ended:
        raise _UnreadableError
    return value


class _Unpacker:
    def __init__(self, data: bytes) -> None:
        self._data, self._at, self._left = data, 0, _MOST_VALUES

    @property
    def ended(self) -> bool:
        return self._at == len(self._data)

    def value(self, depth: int) -> Any:
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            raise _UnreadableError
        (code,) = self._take(1)
        if code <= 0x7F:
            return code
        if code >= 0xE0:
            return code - 0x100
        if code <= 0x8F:
            return self._map(code & 0x0F, depth)
        if code <= 0x9F:
            return self._list(code & 0x0F, depth)
        if code <= 0xBF:
            return self._text(code & 0x1F)
        read = _CODES.get(code)
        if read is None:
            raise _UnreadableError
        return read(self, depth)

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise _UnreadableError
        taken, self._at = self._data[self._at : end], end
        return taken

    def number(self, form: str) -> Any:
        return struct.unpack(f">{form}", self._take(struct.calcsize(f">{form}")))[0]

    def _text(self, size: int) -> str:
        return self._take(size).decode(errors="replace")

    def _list(self, count: int, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(min(count, self._left + 1))]

    def _map(self, count: int, depth: int) -> dict[str, Any]:
        found = {}
        for _ in range(min(count, self._left + 1)):
            key = self.value(depth + 1)
            found[key if isinstance(key, str) else repr(key)] = self.value(depth + 1)
        return found

    def _extension(self, size: int, depth: int) -> Any:
        """An object of a class: its name and what it was made of. The outermost two levels of its data are MessagePack, too."""
        _, data = self.number("b"), self._take(size)
        inner = _Unpacker(data)
        inner._left = self._left
        try:
            value = inner.value(depth + 1)
        except _UnreadableError:
            return f"{size:,} bytes"
        self._left = inner._left
        named = isinstance(value, list) and len(value) >= 3 and all(isinstance(one, str) for one in value[:2])
        return {value[1]: value[2]} if named else value


Read = Callable[[_Unpacker, int], Any]


def _number(form: str) -> Read:
    return lambda reader, _: reader.number(form)


def _sized(form: str, read: Callable[[_Unpacker, int, int], Any]) -> Read:
    return lambda reader, depth: read(reader, reader.number(form), depth)


def _extension_of(size: int) -> Read:
    return lambda reader, depth: reader._extension(size, depth)


def _bytes(reader: _Unpacker, size: int, _: int) -> str:
    reader._take(size)
    return f"{size:,} bytes"


_CODES: dict[int, Read] = {
    0xC0: lambda reader, _: None,
    0xC2: lambda reader, _: False,
    0xC3: lambda reader, _: True,
    **{0xC4 + place: _sized(form, _bytes) for place, form in enumerate("BHI")},
    **{0xC7 + place: _sized(form, _Unpacker._extension) for place, form in enumerate("BHI")},
    **{0xCA + place: _number(form) for place, form in enumerate("fdBHIQbhiq")},
    **{0xD4 + place: _extension_of(1 << place) for place in range(5)},
    **{0xD9 + place: _sized(form, lambda reader, size, _: reader._text(size)) for place, form in enumerate("BHI")},
    **{0xDC + place: _sized(form, _Unpacker._list) for place, form in enumerate("HI")},
    **{0xDE + place: _sized(form, _Unpacker._map) for place, form in enumerate("HI")},
}
