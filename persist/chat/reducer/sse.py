"""A parser of server-sent event streams: bytes or text, cut anywhere, in; chunks out. It follows the HTML standard, except:

- An event whose first data line is a complete JSON object is returned when that line ends, without waiting for the blank line:
  only blanks could follow. If the line end is missing too, it is returned at the end of the call that completed the object.
- A line without a known field name is refused, not ignored: an error page is not an empty stream.

Callers may also give one line per call without its line end, as line splitters do. A line end in a call proves a stream, in
which each call continues where the last one ended. A new line after one without an end proves lines. Until then, text that
could be either is kept. A splitter that cuts at U+2028, as `str.splitlines` does, loses that character: such frames are
refused, not joined wrongly.
"""

import codecs
import json
import re
from itertools import islice
from typing import Any

from orjson import JSONDecodeError
from orjson import loads as _loads

from persist.db.values.escaping import utf8_size
from persist.db.values.json import parse
from persist.errors import InvalidValue, PayloadTooLarge

# Parsing one frame of a server-sent event stream: the chunk in it, or the error that says why there is none.

Chunk = dict[str, Any]
DONE = "[DONE]"
FIELD = re.compile("(?:data|event|id|retry)?:")
_FIELDS = ("data:", "event:", "id:", "retry:")
_OPENING = re.compile(r"\{\s*(?:[\"}]|$)")
_RAW = "Feed the response's bytes or text as they come instead of its lines: splitters cut at U+2028 and its like, too."


def chunk_of(text: str) -> Chunk:
    """Parse the text as a JSON object. Raises InvalidValue if it is anything else."""
    try:
        chunk = parse(text)
    except (ValueError, RecursionError):
        chunk = None
    if not isinstance(chunk, dict):
        raise not_json_error(text.strip())
    return chunk


def opening_error(text: str) -> InvalidValue | None:
    """The error of a stream's first text, if no continuation can make it a chunk; None if one can. It may be a whole line."""
    if not text.startswith("data:"):
        known = FIELD.match(text) or any(field.startswith(text) for field in _FIELDS)
        return None if known else unknown_field_error(text)
    value = text[5:].strip()
    return None if DONE.startswith(value) or _OPENING.match(value) else not_json_error(value)


def may_continue(text: str) -> bool:
    """Whether the text is an object cut off between two tokens, so that another data line can complete it."""
    problem = _problem(text)
    return text.startswith("{") and problem is not None and problem[0] >= len(text)


def _problem(text: str) -> tuple[int, bool] | None:
    """(position of the syntax error, whether the text ends inside a string); None if the text is JSON."""
    try:
        parse(text)
    except json.JSONDecodeError as error:
        return error.pos, error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        return 0, False
    return None


def not_json_error(text: str) -> InvalidValue:
    """The error for text that is no chunk: not JSON, or not an object."""
    problem = _problem(text)
    if problem is None:
        return InvalidValue("line", "the frame is not a JSON object.")
    if problem[1]:
        return InvalidValue("line", f"the frame {text[:40]!r} is not JSON: it ends inside a string. {_RAW}")
    return InvalidValue("line", f"the frame {text[:40]!r} is not JSON.")


def unknown_field_error(text: str) -> InvalidValue:
    """The error for a line without a known field name."""
    return InvalidValue("line", f"{text[:40]!r} is not a line of a server-sent event stream.")


def not_utf8_error() -> InvalidValue:
    """The error for bytes that are not UTF-8."""
    return InvalidValue("line", "expected UTF-8 text.")


def too_large_error(size: int, limit: int) -> InvalidValue:
    """The error for a line, or an event's data, that is larger than what is kept in memory; sizes in bytes."""
    return PayloadTooLarge("line", size, limit, advice="Keep large content in a file and store its reference.")


Found = Chunk | InvalidValue
NOTHING: Chunk = {}
"""What `EventStream.single_frame` returns for a blank line."""
_BLANK = frozenset(("", "\n", "\r\n", b"", b"\n", b"\r\n"))
_NO_DATA = re.compile("(?:event|id|retry)?:")
_UNDECODED = re.compile("[\udc80-\udcff]")  # surrogateescape: a byte that is not UTF-8, until its line is refused


class EventStream:
    """One event stream. `read` never raises: a refused frame is an InvalidValue among the results."""

    __slots__ = (
        "_calls_are_lines",
        "_data",
        "_decoder",
        "_ended_with_cr",
        "_event_refused",
        "_line_pieces",
        "_line_refused",
        "_line_returned",
        "_max_single_frame",
        "_maximum",
        "_sizes",
        "_started",
        "pending",
    )

    def __init__(self, maximum: int) -> None:
        self._maximum, self._max_single_frame = maximum, maximum // 4
        self._decoder: codecs.IncrementalDecoder | None = None
        self._started = False
        self._ended_with_cr = False
        """Whether the last call ended with CR: a leading LF of the next call then belongs to the same line end."""
        self._calls_are_lines: bool | None = None
        """True: each call is a line without its end. False: calls are a stream. None: not known yet."""
        self._line_pieces: list[str] = []
        """Pieces of the line whose end has not come yet."""
        self._line_returned = False
        self._line_refused = False
        """Whether the line without an end was already returned as a frame (`_line_returned`) or refused (`_line_refused`)."""
        self._data: list[str] = []
        """Data lines of an event that has several."""
        self._event_refused = False
        """Whether the event's data was refused: its further data lines are ignored."""
        self._sizes = [0, 0]  # bytes in _line_pieces and in _data
        self.pending = False  # whether anything is pending here or in the caller: then single_frame cannot be used

    def single_frame(self, data: str | bytes) -> Chunk | None:
        """Fast path for a call that is one frame, or a blank line (NOTHING), while nothing is pending. None: use `read`."""
        if self.pending:
            return None
        try:
            if data.__class__ is str:
                if data[:5] != "data:":
                    return self._blank_line(data)
                last, chunk = data[-1], _loads(data[5:])
            elif data.__class__ is bytes:
                if data[:5] != b"data:":
                    return self._blank_line(data)
                last, chunk = chr(data[-1]), _loads(data[5:])
            else:
                return None
        except JSONDecodeError:
            return None
        if chunk.__class__ is not dict or not chunk or len(data) > self._max_single_frame:
            return None
        if last == "\n":  # the JSON ends before the newline
            self._calls_are_lines = self._line_returned = False
        elif last == "}":
            if self._line_returned:
                self._calls_are_lines = True
            self._line_returned = True
        else:
            return None
        return chunk

    def read(self, data: str | bytes) -> list[Found]:
        """Add data to the stream and return the frames that it completes, in order."""
        found: list[Found] = []
        text = self._decode(data, found)
        if self._ended_with_cr and text:
            text, self._ended_with_cr = text.removeprefix("\n"), False
        if "\r" in text:
            self._ended_with_cr = text[-1] == "\r"
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        *lines, tail = text.split("\n")
        for line in lines:
            line = self._complete_line(line, found)
            self._calls_are_lines = False
            self._read_line(line, found)
        if tail:
            self._read_unended(tail, found)
        elif not lines and self._calls_are_lines:
            self._line_refused = False  # a blank line
        self.pending = self.waits()
        return found

    def waits(self) -> bool:
        """Whether something is pending that the next call continues."""
        return bool(
            self._line_pieces
            or self._data
            or self._line_refused
            or self._event_refused
            or self._ended_with_cr
            or self._partial_character()
        )

    def end(self) -> list[Found]:
        """End the stream: the last frame if only its end was missing, InvalidValue if it is incomplete."""
        line, pieces, waiting = "".join(self._line_pieces), len(self._line_pieces), bool(self._partial_character())
        value = line[5:] if line.startswith("data:") else "" if _NO_DATA.match(line) else line
        text = "\n".join([*self._data, value]).strip()
        guessed = self._calls_are_lines is None and pieces > 1
        self._line_pieces, self._data, self._decoder = [], [], None
        if not waiting and text in ("", DONE):
            return []
        try:
            if not (waiting or guessed):
                return [chunk_of(text)]
        except InvalidValue:
            pass
        return [InvalidValue("line", f"the stream ended in the middle of a frame: {text[-40:]!r}.")]

    def _blank_line(self, data: str | bytes) -> Chunk | None:
        if data not in _BLANK:
            return None
        if data:
            self._calls_are_lines = self._line_returned = False
        return NOTHING

    def _decode(self, data: str | bytes, found: list[Found]) -> str:
        """Decode a call's data, without the byte order mark that may begin a stream."""
        if isinstance(data, str):
            if self._partial_character():
                found.append(not_utf8_error())
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

    def _partial_character(self) -> bytes:
        """The first bytes of a character whose other bytes have not come yet."""
        return self._decoder.getstate()[0] if self._decoder is not None else b""

    # -- lines and possible lines

    def _complete_line(self, text: str, found: list[Found]) -> str:
        """The complete line that ends with this text."""
        if not (self._line_pieces or self._line_returned or self._line_refused):
            return text
        if not self._continues_line(text):
            self._turn_to_lines(found)
            return text
        if self._line_refused or self._line_returned:
            self._line_refused = self._line_returned = False
            return " "
        line, self._line_pieces, self._sizes[0] = "".join((*self._line_pieces, text)), [], 0
        return line

    def _read_unended(self, text: str, found: list[Found]) -> None:
        """Read text without a line end: a whole line, the beginning of a line, or more of the open line."""
        if self._line_pieces or self._line_returned or self._line_refused:
            if self._continues_line(text):
                if self._line_pieces:
                    self._keep_piece(self._line_pieces, text, found)
                return
            self._turn_to_lines(found)
        if self._calls_are_lines:
            before = len(found)
            self._read_line(text, found)
            self._line_refused = any(isinstance(one, InvalidValue) for one in found[before:])
            return
        chunk = None if self._data or self._event_refused else self._complete_frame(text)
        if chunk is not None:
            found.append(chunk)
            self._line_returned = True
        elif (
            self._calls_are_lines is None
            and (problem := not_utf8_error() if self._has_bad_bytes(text) else opening_error(text)) is not None
        ):
            found.append(problem)
            self._line_refused = True
        else:
            self._keep_piece(self._line_pieces, text, found)

    def _continues_line(self, text: str) -> bool:
        """Whether the text continues the open line; False if it is the next line of a caller that gives lines."""
        if self._line_returned:
            return not text.strip()
        if self._calls_are_lines is False:
            return True
        if self._line_refused or _NO_DATA.match("".join(islice(self._line_pieces, len("retry:")))):
            return FIELD.match(text) is None
        return self._complete_frame(text) is None

    def _turn_to_lines(self, found: list[Found]) -> None:
        """The open line had no end and another line begins: from now on each call is a line."""
        pieces, self._line_pieces, self._sizes[0] = self._line_pieces, [], 0
        self._calls_are_lines, self._line_returned, self._line_refused = True, False, False
        if len(pieces) > 1:
            text = "".join(pieces)[:40]  # the characters between the pieces are lost
            found.append(InvalidValue("line", f"the frame {text!r} was cut. {_RAW}"))
        elif pieces:
            self._read_line(pieces[0], found)

    def _keep_piece(self, pieces: list[str], text: str, found: list[Found]) -> None:
        """Keep the text until more comes. Above the size limit, refuse the line and drop everything kept."""
        pieces.append(text)
        size_index = int(pieces is self._data)
        self._sizes[size_index] += utf8_size(text)
        if self._sizes[size_index] > self._maximum:
            found.append(too_large_error(self._sizes[size_index], self._maximum))
            self._line_refused, self._event_refused = pieces is self._line_pieces, bool(self._data)
            self._line_pieces, self._data, self._sizes = [], [], [0, 0]

    def _complete_frame(self, text: str) -> Chunk | None:
        """The chunk of a line that is a complete frame; None if it is not."""
        if not text.startswith("data:") or not text.rstrip().endswith("}") or self._has_bad_bytes(text):
            return None
        try:
            return chunk_of(text[5:])
        except InvalidValue:
            return None

    def _read_line(self, line: str, found: list[Found]) -> None:
        """Read one complete line, given without its line end."""
        if not line:
            self._end_event(found)
            return
        if self._event_refused or not line.strip():
            return
        try:
            if (chunk := self._chunk(line, found)) is not None:
                found.append(chunk)
        except InvalidValue as problem:
            found.append(problem)

    def _chunk(self, line: str, found: list[Found]) -> Chunk | None:
        field, _, value = line.partition(":")
        if field != "data":
            if field in ("", "event", "id", "retry"):
                return None
            raise unknown_field_error(line)
        if self._has_bad_bytes(line):
            self._data, self._sizes[1], self._event_refused = [], 0, bool(self._data)
            raise not_utf8_error()
        if self._data:
            self._keep_piece(self._data, value, found)
            return None
        if len(line) * 4 > self._maximum and (size := utf8_size(line)) > self._maximum:
            raise too_large_error(size, self._maximum)
        value = value.strip()
        if not value or value == DONE:
            return None
        try:
            return chunk_of(value)
        except InvalidValue:
            if self._calls_are_lines or not may_continue(value):
                raise
            self._keep_piece(self._data, value, found)
            return None

    def _end_event(self, found: list[Found]) -> None:
        """A blank line ends the event: parse its data lines."""
        self._event_refused = False
        if not self._data:
            return
        text, self._data, self._sizes[1] = "\n".join(self._data), [], 0
        try:
            found.append(chunk_of(text))
        except InvalidValue as problem:
            found.append(problem)

    def _has_bad_bytes(self, text: str) -> bool:
        return self._decoder is not None and not text.isascii() and _UNDECODED.search(text) is not None
