"""The records of one line of a log, for every reader: whole ones are read, whatever a crash or an editor left before them.

A file may begin with a byte order mark; a crash may leave NULs, or a torn record that the next writer's whole one follows on the
same line; and two records may be on one line.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import orjson

Record = dict[str, Any]

_BLANK = "\ufeff \t\r\n"
_BETWEEN = _BLANK + "\0"
_BEGIN = re.compile(r'\{[ \t]*"')
_TOKENS = re.compile(r'\\.|["{}\[\]]', re.DOTALL)
_GAP = re.compile(f"[{_BETWEEN}]*")
_MOST, _DEEPEST = 10_000, 100
"""How many places of a torn line are looked at, and how deep in the torn record: a hostile line has a million."""
_OF_A_RECORD = ("timestamp", "uuid", "sessionId")
_EXACT = json.JSONDecoder()
_STRICT = json.JSONDecoder(parse_constant=lambda name: None)


class Line(NamedTuple):
    """The whole records of a line, and whether there was anything else on it."""

    records: list[Record]
    torn: bool


def read_line(line: bytes, *, exact: bool = False) -> Line:
    """What one line holds. `exact`: any integer and NaN stay what they are; otherwise NaN is None, as writers of JSON have it."""
    if not exact:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:  # also for escapes of lone surrogates and very deep values
            pass
        else:
            return Line([value], torn=False) if isinstance(value, dict) else Line([], torn=True)
    text = line.decode("utf-8", "surrogateescape")  # a record may be torn inside a character
    decoder = _EXACT if exact else _STRICT
    end = 0
    for start in _starts(text):
        if start >= end:  # what is whole before the place where another start failed ends there, too
            found, end = _whole(text, start, decoder)
            if end == len(text) and found:
                return Line(found, torn=bool(text[:start].strip(_BLANK)))
    return Line([], torn=bool(text.strip(_BLANK)))


def _starts(text: str) -> Iterator[int]:
    """Where records may begin: at the first sign, and behind a torn record, whose own values are none."""
    start = len(text) - len(text.lstrip(_BETWEEN))
    yield start
    torn = _Torn(text, start)
    for found in islice(_BEGIN.finditer(text, start + 1), _MOST):
        if torn.may_end_before(found.start()):
            yield found.start()


class _Torn:
    """A record that is cut off somewhere: which of its places an object of its own may be at."""

    def __init__(self, text: str, start: int) -> None:
        self._text, self._at, self._in_text = text, start, False
        self._inside: list[str] = []

    def may_end_before(self, end: int) -> bool:
        """Whether what begins there is no value of the torn record: inside of its text, or where no value may be."""
        for token in _TOKENS.finditer(self._text, self._at, end):
            sign = token[0]
            if sign == '"':
                self._in_text = not self._in_text
            elif not self._in_text and sign in "{[":
                self._inside.append(sign)
            elif not self._in_text and sign in "}]":
                del self._inside[-1:]
        self._at, last = end, end - 1
        while self._text[last].isspace():
            last -= 1
        before = self._text[last]
        if self._in_text or before not in ":,[":
            return True
        if before == "," and self._inside[-1:] != ["["]:
            return True
        return len(self._inside) <= _DEEPEST and self._is_a_record(end)

    def _is_a_record(self, start: int) -> bool:
        """Whether the object where a value may be has what records have, and values have not."""
        try:
            value, _ = _EXACT.raw_decode(self._text, start)
        except (ValueError, RecursionError):
            return False
        return isinstance(value.get("type"), str) and any(name in value for name in _OF_A_RECORD)


def _whole(text: str, start: int, decoder: json.JSONDecoder) -> tuple[list[Record], int]:
    """The objects from there on, and where something else follows them: at the end of the text nothing does."""
    found: list[Record] = []
    while start < len(text):
        try:
            value, end = decoder.raw_decode(text, start)
            text[start:end].encode()  # what was no UTF-8 is no text
        except (ValueError, RecursionError):
            break
        if not isinstance(value, dict) or not value:
            break
        found.append(value)
        gap = _GAP.match(text, end)
        start = end if gap is None else gap.end()
    return found, start
