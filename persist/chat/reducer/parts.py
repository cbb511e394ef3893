"""One part of a message while it streams: its JSON as of the last structural change, and the text received since."""

from collections.abc import Iterable, Mapping
from typing import Any

from persist.chat.reducer.chunks import InputEncoding
from persist.chat.reducer.partial_json import ABSENT, parse_partial
from persist.db.values.escaping import join_halves
from persist.db.values.json import JsonFrame, frame_of
from persist.settings import AiSdk

Part = dict[str, Any]

TEXT_TYPES = frozenset(("text", "reasoning"))

LONG = 262_144  # bytes; longer text is folded by the database, which costs more than folding text kept in memory

MAX_INPUT_DEPTH = 150  # below the JSON encoder's limit of 200: a derived input was not sent, so no sender can fix it


class PartState:
    """One part of a message: {"type", ...} plus the pieces of text that extend it.

    `data` is replaced, never mutated, so an undo can restore the former value.

    The recorder uses these fields; the reducer only sets `index`, to the part's position in the message:
    id         the id of the part's row
    index      the `index` column of its row
    seq        the number of its latest delta row
    tail       bytes of text in its delta rows that are not folded yet
    base       bytes of its whole text
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
        self.frame: JsonFrame | None = None
        """Set when only the database has the text (done, or over 256 KB): the stored JSON before and after the text.

        `data["text"]` is empty then, and `pieces` holds only text that is not stored yet.
        """

    def snapshot(self) -> Part:
        """The complete part as JSON, equal to the SDK's at this point of the stream."""
        assert self.frame is None, "the database has its text"
        return grow(self.data, self.pending_text()) if self.pieces else dict(self.data)

    def pending_text(self) -> str:
        """The text in `pieces`, joined."""
        if len(self.pieces) != 1:
            self.pieces = ["".join(self.pieces)]  # a new list: an undo may still refer to the old one
        return self.pieces[0]

    def restore(self, data: Part, pieces: list[str]) -> None:
        self.data, self.pieces = data, pieces

    def part_stored(self) -> None:
        """The part's row is durable with all of its text. Text that is done or long is from now on kept only in the database."""
        if self.frame is None:
            if self.data["type"] not in TEXT_TYPES or (self.base < LONG and self.data.get("state") != "done"):
                return
            self.data = {**self.data, "text": ""}
        self.pieces = []
        self.frame = frame_of(self.data, "text")

    def remove_piece(self, pieces: list[str]) -> None:
        """Remove the piece that was last added to `pieces`, and make that list the current one."""
        pieces.pop()
        self.pieces = pieces


def picked(source: Mapping[str, Any], *keys: str) -> Part:
    """The named keys that `source` has: an absent key stays absent, null stays null."""
    return {key: source[key] for key in keys if key in source}


def is_part(data: object) -> bool:
    """Whether stored data is an object with a type. Other programs may have written it."""
    return isinstance(data, dict) and isinstance(data.get("type"), str)


def can_grow(data: Part) -> bool:
    """Whether `grow` can add text to a stored part. Other programs may have written it."""
    return isinstance(data.get("text" if data["type"] in TEXT_TYPES else "rawInput") or "", str)


def grow(data: Part, text: str) -> Part:
    """A stored part with more text added: to `text`, or to a tool's `rawInput`, from which its `input` is derived anew."""
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


def derived_input(raw_input: str, encoding: str | None, ai_sdk: AiSdk = AiSdk.V7) -> Any:
    """The tool input parsed from what came of `rawInput` so far; ABSENT if there is nothing to show yet."""
    if encoding == InputEncoding.TEXT:
        return raw_input
    value = parse_partial(raw_input, ai_sdk)[1]
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
