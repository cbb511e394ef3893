"""One part of a message while it grows: the JSON as of its last structural change, and the text that came since."""

from collections.abc import Iterable, Mapping
from typing import Any

from persist.chat.chunks import InputEncoding
from persist.chat.partial_json import ABSENT, parse_partial
from persist.db.escape import join_halves
from persist.db.json import Frame, around

Part = dict[str, Any]

TEXT_TYPES = frozenset(("text", "reasoning"))

LONG = 262_144  # bytes: text beyond is left to the database, where a fold costs more than of text that is at hand

MAX_INPUT_DEPTH = 150  # a derived input may not be what the JSON encoder refuses (200): nobody sent it, nobody could react


class PartState:
    """One part of a message: {"type", ...} plus the pieces of text that extend it.

    `data` is replaced, never changed, so that whoever holds the former value can put it back.
    `id`, `index`, `seq`, `tail`, `base` and `frame` belong to the recorder; `index` starts as the position in the message.
    """

    __slots__ = ("base", "data", "frame", "id", "index", "pieces", "seq", "tail")

    def __init__(self, data: Part, index: int = 0) -> None:
        self.data = data
        self.pieces: list[str] = []
        self.id: str | None = None
        self.index = index
        self.seq = 0
        self.tail = 0
        self.base = 0
        self.frame: Frame | None = None
        """What is stored around a text that only the database has: `data` has an empty one, `pieces` what is not stored yet."""

    def snapshot(self) -> Part:
        """The whole part exactly as the SDK holds it now."""
        assert self.frame is None, "the database has its text"
        return grow(self.data, self.more()) if self.pieces else dict(self.data)

    def more(self) -> str:
        """What the pieces come to."""
        if len(self.pieces) != 1:
            self.pieces = ["".join(self.pieces)]  # a new list: an undo may still hold the old one
        return self.pieces[0]

    def restore(self, data: Part, pieces: list[str]) -> None:
        self.data, self.pieces = data, pieces

    def grew(self, size: int) -> None:
        """What was fed of it and not stored is stored, in a row of that many bytes."""
        self.seq += 1
        self.tail += size
        if self.frame is not None:
            self.pieces = []

    def stored(self) -> None:
        """The database has all of it. A text that is complete, or long, is from here on held nowhere else."""
        if self.frame is None:
            if self.data["type"] not in TEXT_TYPES or (self.base < LONG and self.data.get("state") != "done"):
                return
            self.data = {**self.data, "text": ""}
        self.pieces = []
        self.frame = around(self.data, "text")

    def retract(self, pieces: list[str]) -> None:
        """Take back the piece that was last added to `pieces`."""
        pieces.pop()
        self.pieces = pieces


def picked(source: Mapping[str, Any], *keys: str) -> Part:
    """Those of the named keys that are there: an absent one stays absent, null stays null."""
    return {key: source[key] for key in keys if key in source}


def is_part(data: object) -> bool:
    """Whether what is stored as a part, which others may have written, is an object with a type."""
    return isinstance(data, dict) and isinstance(data.get("type"), str)


def can_grow(data: Part) -> bool:
    """Whether `grow` makes sense of a stored part, which others may have written."""
    return isinstance(data.get("text" if data["type"] in TEXT_TYPES else "rawInput") or "", str)


def grow(data: Part, text: str) -> Part:
    """Apply the concatenated tail to a stored part -> the whole part: `text`, or a tool's `rawInput` and `input`."""
    if data["type"] in TEXT_TYPES:
        return {**data, "text": join_halves((data.get("text") or "") + text)}
    raw_input = join_halves((data.get("rawInput") or "") + text)
    grown = {**data, "rawInput": raw_input}
    value = derived_input(raw_input, data.get("inputEncoding"))
    if value is ABSENT:
        grown.pop("input", None)
    else:
        grown["input"] = value
    return grown


def derived_input(raw_input: str, encoding: str | None) -> Any:
    """The input that a streamed `rawInput` shows so far, ABSENT when there is none to show."""
    if encoding == InputEncoding.TEXT:
        return raw_input
    value = parse_partial(raw_input)[1]
    return ABSENT if _deeper_than(value, MAX_INPUT_DEPTH) else value


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [item for node in level for item in _children(node)]
        if not level:
            return False
    return True


def _children(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()
