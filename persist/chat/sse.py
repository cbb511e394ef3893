"""The bytes or the text of a server-sent event stream, cut anywhere, to its chunks: by the rules of the HTML standard, but

- an event whose first data line is a complete JSON object is given when that line ends, not at the blank line behind it, for
  nothing but blanks could follow; if the line end is missing too, at the end of the call that brought the line whole;
- a line of no known field is refused instead of ignored: an error page is not an empty stream.

Callers may also give one line at a time without its end, as line splitters do. A line end proves a stream, in which calls go on
where the former one ended; a line after one that had no end proves lines. Before either, what could be both waits. A splitter
that cuts at U+2028, as `str.splitlines` does, loses the character: what it cut is refused, not put together wrongly.
"""

import codecs
import re
from itertools import islice

from orjson import JSONDecodeError
from orjson import loads as _loads

from persist.chat.frames import DONE, FIELD, Chunk, broken_off, chunk_of, cut, hopeless, may_go_on, no_line, not_utf8, too_large
from persist.db.escape import utf8_size
from persist.errors import InvalidValue

Found = Chunk | InvalidValue

NOTHING: Chunk = {}
"""What `EventStream.whole` gives for a blank line."""

_BLANK = frozenset(("", "\n", "\r\n", b"", b"\n", b"\r\n"))
_NO_DATA = re.compile("(?:event|id|retry)?:")
_UNDECODED = re.compile("[\udc80-\udcff]")  # how a byte that is no UTF-8 is marked until its line is refused


class EventStream:
    """One stream. `read` takes what came; it never raises, a refused frame is an InvalidValue among what was found."""

    __slots__ = (
        "_cr",
        "_data",
        "_decoder",
        "_drop",
        "_lines",
        "_loose",
        "_most",
        "_open",
        "_short",
        "_sizes",
        "_skip",
        "_started",
        "held",
    )

    def __init__(self, most: int) -> None:
        self._most, self._short = most, most // 4
        self._decoder: codecs.IncrementalDecoder | None = None
        self._started = False
        self._cr = False
        """The former call ended with a CR, to which an LF at the beginning belongs."""
        self._lines: bool | None = None
        """Whether calls are lines without their ends; None: unknown."""
        self._open: list[str] = []
        """The line whose end has not come, piece by piece."""
        self._loose = False
        self._skip = False
        """The open line was given (`_loose`) or refused (`_skip`) already."""
        self._data: list[str] = []
        self._drop = False
        """Data lines of an event that takes several; or they were refused, and more of them count for nothing."""
        self._sizes = [0, 0]  # bytes of _open, of _data
        self.held = False  # whether anything waits, here or with whoever reads: then there is no short way

    def whole(self, data: str | bytes) -> Chunk | None:
        """The short way of a call that is one frame, or a blank line (NOTHING), when nothing waits; None: `read` it."""
        if self.held:
            return None
        try:
            if data.__class__ is str:
                if data[:5] != "data:":
                    return self._blank(data)
                last, chunk = data[-1], _loads(data[5:])
            elif data.__class__ is bytes:
                if data[:5] != b"data:":
                    return self._blank(data)
                last, chunk = chr(data[-1]), _loads(data[5:])
            else:
                return None
        except JSONDecodeError:
            return None
        if chunk.__class__ is not dict or not chunk or len(data) > self._short:
            return None
        if last == "\n":  # JSON ends before it
            self._lines = self._loose = False
        elif last == "}":
            if self._loose:
                self._lines = True
            self._loose = True
        else:
            return None
        return chunk

    def read(self, data: str | bytes) -> list[Found]:
        """What the stream held up to here and was not found yet, in order."""
        found: list[Found] = []
        text = self._text(data, found)
        if self._cr and text:
            text, self._cr = text.removeprefix("\n"), False
        if "\r" in text:
            self._cr = text[-1] == "\r"
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        *lines, tail = text.split("\n")
        for line in lines:
            line = self._ended(line, found)
            self._lines = False
            self._line(line, found)
        if tail:
            self._tail(tail, found)
        elif not lines and self._lines:
            self._skip = False  # a blank line
        self.held = self.waits()
        return found

    def waits(self) -> bool:
        """Whether the next call goes on with something."""
        return bool(self._open or self._data or self._skip or self._drop or self._cr or self._undecided())

    def end(self) -> list[Found]:
        """What the last frame is if only its end is missing; InvalidValue if more is."""
        line, pieces, waiting = "".join(self._open), len(self._open), bool(self._undecided())
        value = line[5:] if line.startswith("data:") else "" if _NO_DATA.match(line) else line
        text = "\n".join([*self._data, value]).strip()
        guessed = self._lines is None and pieces > 1
        self._open, self._data, self._decoder = [], [], None
        if not waiting and text in ("", DONE):
            return []
        try:
            if not (waiting or guessed):
                return [chunk_of(text)]
        except InvalidValue:
            pass
        return [broken_off(text)]

    def _blank(self, data: str | bytes) -> Chunk | None:
        if data not in _BLANK:
            return None
        if data:
            self._lines = self._loose = False
        return NOTHING

    def _text(self, data: str | bytes, found: list[Found]) -> str:
        """The text, without the mark of byte order that a stream may begin with."""
        if isinstance(data, str):
            if self._undecided():
                found.append(not_utf8())
                self._decoder = None
            text = data
        elif isinstance(data, bytes | bytearray | memoryview):
            if self._decoder is None:
                self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
            text = self._decoder.decode(bytes(data))
        else:
            found.append(InvalidValue("line", f"expected text or bytes of a stream, not {type(data).__name__}."))
            return ""
        if text and not self._started:
            self._started = True
            text = text.removeprefix("\ufeff")
        return text

    def _undecided(self) -> bytes:
        """Bytes of a character whose others have not come."""
        return self._decoder.getstate()[0] if self._decoder is not None else b""

    # -- lines, and what may be one

    def _ended(self, text: str, found: list[Found]) -> str:
        """The whole line that ends with this text."""
        if not (self._open or self._loose or self._skip):
            return text
        if not self._goes_on(text):
            self._turn_to_lines(found)
            return text
        if self._skip or self._loose:
            self._skip = self._loose = False
            return " "
        line, self._open, self._sizes[0] = "".join((*self._open, text)), [], 0
        return line

    def _tail(self, text: str, found: list[Found]) -> None:
        """Text without a line end: a line, or the beginning of one, or more of the open one."""
        if self._open or self._loose or self._skip:
            if self._goes_on(text):
                if self._open:
                    self._keep(self._open, text, found)
                return
            self._turn_to_lines(found)
        if self._lines:
            before = len(found)
            self._line(text, found)
            self._skip = any(isinstance(one, InvalidValue) for one in found[before:])
            return
        chunk = None if self._data or self._drop else self._frame(text)
        if chunk is not None:
            found.append(chunk)
            self._loose = True
        elif self._lines is None and (problem := not_utf8() if self._marked(text) else hopeless(text)) is not None:
            found.append(problem)
            self._skip = True
        else:
            self._keep(self._open, text, found)

    def _goes_on(self, text: str) -> bool:
        """Whether this is more of the open line, and not the next one of a caller that gives lines."""
        if self._loose:
            return not text.strip()
        if self._lines is False:
            return True
        if self._skip or _NO_DATA.match("".join(islice(self._open, len("retry:")))):
            return FIELD.match(text) is None
        return self._frame(text) is None

    def _turn_to_lines(self, found: list[Found]) -> None:
        """The open line had no end, and here is another one."""
        pieces, self._open, self._sizes[0] = self._open, [], 0
        self._lines, self._loose, self._skip = True, False, False
        if len(pieces) > 1:
            found.append(cut("".join(pieces)))
        elif pieces:
            self._line(pieces[0], found)

    def _keep(self, pieces: list[str], text: str, found: list[Found]) -> None:
        """Hold it until there is more, unless it is too much."""
        pieces.append(text)
        which = int(pieces is self._data)
        self._sizes[which] += utf8_size(text)
        if self._sizes[which] > self._most:
            found.append(too_large(self._sizes[which], self._most))
            self._skip, self._drop = pieces is self._open, bool(self._data)
            self._open, self._data, self._sizes = [], [], [0, 0]

    def _frame(self, text: str) -> Chunk | None:
        """The chunk of a line that is a whole frame."""
        if not text.startswith("data:") or not text.rstrip().endswith("}") or self._marked(text):
            return None
        try:
            return chunk_of(text[5:])
        except InvalidValue:
            return None

    def _line(self, line: str, found: list[Found]) -> None:
        """A line without its end."""
        if not line:
            self._event(found)
            return
        if self._drop or not line.strip():
            return
        try:
            chunk = self._chunk(line, found)
        except InvalidValue as problem:
            found.append(problem)
        else:
            if chunk is not None:
                found.append(chunk)

    def _chunk(self, line: str, found: list[Found]) -> Chunk | None:
        field, _, value = line.partition(":")
        if field != "data":
            if field in ("", "event", "id", "retry"):
                return None
            raise no_line(line)
        if self._marked(line):
            self._data, self._sizes[1], self._drop = [], 0, bool(self._data)
            raise not_utf8()
        if self._data:
            self._keep(self._data, value, found)
            return None
        if len(line) * 4 > self._most and (size := utf8_size(line)) > self._most:
            raise too_large(size, self._most)
        value = value.strip()
        if not value or value == DONE:
            return None
        try:
            return chunk_of(value)
        except InvalidValue:
            if self._lines or not may_go_on(value):
                raise
            self._keep(self._data, value, found)
            return None

    def _event(self, found: list[Found]) -> None:
        """A blank line: the event is complete."""
        self._drop = False
        if not self._data:
            return
        text, self._data, self._sizes[1] = "\n".join(self._data), [], 0
        try:
            found.append(chunk_of(text))
        except InvalidValue as problem:
            found.append(problem)

    def _marked(self, text: str) -> bool:
        return self._decoder is not None and not text.isascii() and _UNDECODED.search(text) is not None
