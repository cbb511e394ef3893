"""The chunks of a stream, read line by line: server-sent events, or one JSON object a line."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from persist.chat.sse import parse_sse
from persist.cli.interrupts import Interrupts
from persist.db.json import decode
from persist.errors import InvalidValue

_LONGEST = 64 * 2**20
_BOM = b"\xef\xbb\xbf"


def lines_of(stream: BinaryIO, interrupts: Interrupts) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, each as soon as it has come."""
    number = 0
    while True:
        with interrupts.waiting():
            line = stream.readline(_LONGEST + 1)
        number += 1
        if not line:
            return
        yield number, line.removeprefix(_BOM) if number == 1 else line


def chunk_of(line: bytes) -> dict[str, Any] | None:
    """The chunk of one line; None for lines that carry none. InvalidValue for what is neither an event nor JSON."""
    if len(line) > _LONGEST:
        raise InvalidValue("line", f"it is longer than {_LONGEST:,} bytes.")
    if not line.lstrip().startswith(b"{"):
        return parse_sse(line)
    try:
        chunk = decode(line.decode())
    except (ValueError, RecursionError):
        raise InvalidValue("line", f"{line[:40].decode(errors='replace')!r} is not one JSON object.") from None
    assert isinstance(chunk, dict)  # it begins with a brace
    return chunk
