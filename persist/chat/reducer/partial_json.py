"""The longest readable prefix of JSON that is still being streamed, judged as the AI SDK's reducer judges it."""

import json
import math
import re
from collections.abc import Iterator
from enum import IntEnum, auto
from typing import Any, Final, NoReturn

from persist.db.values.escaping import has_half, join_halves
from persist.settings import AiSdk


class Absent:
    """The type of `ABSENT`: no value at all, where None is JSON's null."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


def parse_partial(text: str, ai_sdk: AiSdk = AiSdk.V7) -> tuple[str, Any]:
    """Parse a prefix of JSON text; returns (state, value).

    An array whose first item is no value yet, such as `[-`: AI SDK 6 reads nothing from the text, 7 an empty array.

    States: "successful-parse", "repaired-parse" (cut and closed first), "failed-parse" (value is ABSENT).
    """
    try:
        return "successful-parse", _parse(text)
    except (ValueError, RecursionError):
        pass
    try:
        return "repaired-parse", _parse(_closed(text, keep_first=ai_sdk == AiSdk.V6))
    except (ValueError, RecursionError):
        return "failed-parse", ABSENT


_MAY_DIFFER = re.compile(r'\[[^\]"{\[0-9tfn]*\Z')


def readings_may_differ(text: str, *, after_open: bool = False) -> bool:
    """Whether AI SDK 6 and 7 may read different values from this text; `after_open` says so of the text before it."""
    return _MAY_DIFFER.search("[" + text if after_open else text) is not None


def _parse(text: str) -> Any:
    value = _decoder.decode(text)
    if ("__proto__" in text or "constructor" in text or "\\u" in text) and reaches_prototype(value):
        raise ValueError("a key would reach a JavaScript prototype")
    # The decoder joins a surrogate pair of two escapes itself, but not one with a raw half.
    return _with_joined_halves(value) if has_half(text) else value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _number(literal: str) -> float | None:
    number = float(literal)
    return number if math.isfinite(number) else None  # 1e999 is Infinity in JavaScript, and null once it is JSON


def _integer(literal: str) -> int | float | None:
    if len(literal) <= 20:  # -2**63 and 2**64-1 have twenty characters; int() refuses thousands of digits
        number = int(literal)
        if -(2**63) <= number < 2**64:
            return number
    return _number(literal)


_decoder = json.JSONDecoder(parse_float=_number, parse_int=_integer, parse_constant=_refuse_constant)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def reaches_prototype(value: Any) -> bool:
    """Whether an object in the value has a key by which JavaScript code may change the prototype of its objects."""
    for node in _objects(value):
        constructor = node.get("constructor")
        if "__proto__" in node or (isinstance(constructor, dict) and "prototype" in constructor):
            return True
    return False


def _with_joined_halves(value: Any) -> Any:
    if isinstance(value, str):
        return join_halves(value)
    if isinstance(value, list):
        return [_with_joined_halves(item) for item in value]
    if isinstance(value, dict):
        return {join_halves(key): _with_joined_halves(item) for key, item in value.items()}
    return value


class _Place(IntEnum):
    """The scanner's place in the grammar. The scanner keeps a stack of them: what is open, innermost last."""

    VALUE = auto()  # before the root value
    END = auto()  # after the root value: the remaining text is ignored
    FIRST_KEY = auto()
    NEXT_KEY = auto()
    KEY = auto()
    COLON = auto()
    MEMBER = auto()
    AFTER_MEMBER = auto()
    FIRST_ITEM = auto()
    NEXT_ITEM = auto()
    AFTER_ITEM = auto()
    STRING = auto()
    ESCAPE = auto()
    UNICODE = auto()
    NUMBER = auto()
    LITERAL = auto()


_OPENS = {'"': _Place.STRING, "{": _Place.FIRST_KEY, "[": _Place.FIRST_ITEM, "-": _Place.NUMBER}
_OPENS.update(dict.fromkeys("0123456789", _Place.NUMBER) | dict.fromkeys("tfn", _Place.LITERAL))
_THEN = {
    _Place.VALUE: _Place.END,
    _Place.MEMBER: _Place.AFTER_MEMBER,
    _Place.FIRST_ITEM: _Place.AFTER_ITEM,
    _Place.NEXT_ITEM: _Place.AFTER_ITEM,
}
_AFTER = {_Place.AFTER_MEMBER: ("}", _Place.NEXT_KEY), _Place.AFTER_ITEM: ("]", _Place.NEXT_ITEM)}
_IN_OBJECT = (_Place.FIRST_KEY, _Place.NEXT_KEY, _Place.KEY, _Place.COLON, _Place.MEMBER, _Place.AFTER_MEMBER)
_IN_ARRAY = (_Place.FIRST_ITEM, _Place.NEXT_ITEM, _Place.AFTER_ITEM)
_CLOSER = dict.fromkeys(_IN_OBJECT, "}") | dict.fromkeys(_IN_ARRAY, "]") | {_Place.STRING: '"'}
_LITERALS = ("true", "false", "null")
_STRING_STOP = re.compile(r'["\\]')


def _closed(text: str, *, keep_first: bool) -> str:
    """Cut `text` after its last closable character and close everything open there. Invalid JSON stays invalid."""
    scan = _Scan(text, keep_first=keep_first)
    scan.run()
    ends = [text[: scan.keep]]
    for state in reversed(scan.stack):
        if state is _Place.LITERAL:
            begun = text[scan.literal :]
            ends.append(next((word[len(begun) :] for word in _LITERALS if word.startswith(begun)), ""))
        else:
            ends.append(_CLOSER.get(state, ""))
    return "".join(ends)


class _Scan:
    """One pass over a prefix of JSON. Lenient on purpose, as the SDK: an unexpected character is skipped, not refused."""

    def __init__(self, text: str, *, keep_first: bool) -> None:
        self.text = text
        self.keep_first = keep_first  # AI SDK 6 keeps whatever stands at an array's first item
        self.stack = [_Place.VALUE]
        self.keep = 0  # length of the longest prefix that can be closed
        self.literal = 0  # where the current literal began
        self.digits = 0  # hex digits seen of the current \u escape

    def run(self) -> None:
        text, stack, position, length = self.text, self.stack, 0, len(self.text)
        while position < length and stack and stack[-1] is not _Place.END:
            state = stack[-1]
            if state is _Place.STRING:
                stop = _STRING_STOP.search(text, position)
                end = stop.start() if stop else length
                if end > position:
                    self.keep = end
                position = end
                if stop:
                    self.in_string(text[end], end)
            elif state is _Place.KEY:
                end = text.find('"', position)  # an escaped quote ends a key too, as in the SDK
                position = length if end < 0 else end
                if end >= 0:
                    stack[-1] = _Place.COLON
            else:
                self.step(state, text[position], position)
                if state is not stack[-1] is _Place.AFTER_ITEM and text[position] > "\uffff":
                    self.keep = position + 1  # JavaScript sees two characters: the second one after the item
            position += 1

    def in_string(self, char: str, at: int) -> None:
        if char == '"':
            self.stack.pop()
            self.keep = at + 1
        else:
            self.stack.append(_Place.ESCAPE)

    def step(self, state: _Place, char: str, at: int) -> None:
        stack = self.stack
        if state in _THEN:
            if state is _Place.FIRST_ITEM and (self.keep_first or char == "]"):
                self.keep = at + 1
            if state is _Place.FIRST_ITEM and char == "]":
                stack.pop()
            else:
                self.open_value(state, char, at)
        elif state in _AFTER:
            if state is _Place.AFTER_ITEM and char != ",":
                self.keep = at + 1
            self.after_value(char, at)
        elif state is _Place.FIRST_KEY or state is _Place.NEXT_KEY:
            if char == '"':
                stack[-1] = _Place.KEY
            elif char == "}" and state is _Place.FIRST_KEY:
                stack.pop()
                self.keep = at + 1
        elif state is _Place.COLON:
            if char == ":":
                stack[-1] = _Place.MEMBER
        elif state is _Place.NUMBER:
            self.in_number(char, at)
        elif state is _Place.LITERAL:
            self.in_literal(char, at)
        else:
            self.in_escape(state, char, at)

    def open_value(self, state: _Place, char: str, at: int) -> None:
        opened = _OPENS.get(char)
        if opened is None:
            return
        self.stack[-1] = _THEN[state]
        self.stack.append(opened)
        if opened is _Place.LITERAL:
            self.literal = at
        if char != "-":  # a minus sign alone cannot be closed
            self.keep = at + 1

    def after_value(self, char: str, at: int) -> None:
        closer, following = _AFTER.get(self.stack[-1], ("", _Place.END))
        if char == "," and closer:
            self.stack[-1] = following
        elif char == closer:
            self.stack.pop()
            self.keep = at + 1

    def in_number(self, char: str, at: int) -> None:
        if char in "0123456789":
            self.keep = at + 1
        elif char not in "eE-.":
            self.stack.pop()
            if char in ",}]":
                self.after_value(char, at)

    def in_literal(self, char: str, at: int) -> None:
        begun = self.text[self.literal : at + 1]
        if any(word.startswith(begun) for word in _LITERALS):
            self.keep = at + 1
        else:
            self.stack.pop()
            self.after_value(char, at)

    def in_escape(self, state: _Place, char: str, at: int) -> None:
        if state is _Place.ESCAPE:
            self.stack.pop()
            if char == "u":
                self.digits = 0
                self.stack.append(_Place.UNICODE)
            else:
                self.keep = at + 1
        elif char in "0123456789abcdefABCDEF":
            self.digits += 1
            if self.digits == 4:
                self.stack.pop()
                self.keep = at + 1
