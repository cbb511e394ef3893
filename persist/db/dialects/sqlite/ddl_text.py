"""Normalises and splits the text of CREATE statements in a SQLite file, which any program may have written."""

import re
from collections.abc import Iterable

_LITERAL = re.compile(r"('(?:[^']|'')*')")


def plain(text: str) -> str:
    """Normalise SQL for comparison: drop comments, identifier quotes and extra spaces, fold case; literals stay."""
    pieces = _LITERAL.split(re.sub(r"--[^\n]*", " ", text))
    for index in range(0, len(pieces), 2):
        words = re.sub(r'["`\[\]]', "", pieces[index]).casefold()
        words = re.sub(r"\bif not exists\b|\bmain\.", "", words)
        pieces[index] = re.sub(r"\s*([(),=<>])\s*", r"\1", re.sub(r"\s+", " ", words))
    return re.sub(r"\s+asc$", "", "".join(pieces).strip())


def closing_bracket(text: str, start: int) -> int:
    """The position of the bracket that closes the one at `start`; quoted text and comments are skipped."""
    depth = 0
    for place, character in _outside_of_quotes(text, start):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return place
    return len(text)


def split_at_commas(text: str) -> list[str]:
    """Split SQL at commas outside of brackets, quotes and comments."""
    parts, depth, begun = [], 0, 0
    for place, character in _outside_of_quotes(text, 0):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[begun:place])
            begun = place + 1
    return [*parts, text[begun:]]


_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL)


def _outside_of_quotes(text: str, start: int) -> Iterable[tuple[int, str]]:
    place = start
    while place < len(text):
        quoted = _QUOTED.match(text, place)
        if quoted is None:
            yield place, text[place]
            place += 1
        else:
            place = quoted.end()
