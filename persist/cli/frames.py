"""The chunks of a stream, read line by line: server-sent events, or one JSON object a line."""

from collections.abc import Iterator
from typing import BinaryIO

from persist.chat.reducer.sse import EventStream, Found
from persist.cli.interrupts import Interrupts
from persist.db.values.json import decode
from persist.errors import InvalidValue

_LONGEST = 64 * 2**20
_BOM = b"\xef\xbb\xbf"


def frames_of(stream: BinaryIO, interrupts: Interrupts) -> Iterator[tuple[int, int, list[Found]]]:
    """Each line as soon as it has come: its number, its bytes, and what was found in it. The last is the end of the stream."""
    events, number = EventStream(_LONGEST), 0
    while True:
        with interrupts.waiting():
            line = stream.readline(_LONGEST + 1)
        if not line:
            break
        number += 1
        size = len(line)
        yield number, size, _found(events, line.removeprefix(_BOM) if number == 1 else line)
    yield number, 0, events.end()


def _found(events: EventStream, line: bytes) -> list[Found]:
    if len(line) > _LONGEST:
        return [InvalidValue("line", f"it is longer than {_LONGEST:,} bytes.")]
    if events.pending or not line.lstrip().startswith(b"{"):
        return events.read(line)
    try:
        chunk = decode(line.decode())
    except (ValueError, RecursionError):
        return [InvalidValue("line", f"{line[:40].decode(errors='replace')!r} is not one JSON object.")]
    assert isinstance(chunk, dict)  # it begins with a brace
    return [chunk]
