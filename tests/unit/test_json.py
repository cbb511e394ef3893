"""JSON: the domain, what is refused and where, and the reversible escape."""

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import math
import uuid
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from persist.db.values.escaping import escape_json, escape_text, join_halves, unescape_json, unescape_text
from persist.db.values.json import JsonLimits, JsonText, check, decode, encode, frame_of, merge_patch
from persist.errors import InvalidValue, PayloadTooLarge
from tests.cases import each
from tests.unit.json_values import LEAD, normal, same, texts, values

# ---------------------------------------------------------------- what comes back


@given(values)
@example({"a": [1, 1.0, True, None, "\x00\ud83d", -0.0, 1e16]})
def test_any_value_comes_back(value: Any) -> None:
    text = encode(value)
    assert same(decode(text), normal(value))
    assert same(decode(text.encode()), normal(value))
    assert same(json.loads(text), normal(value))  # other programs read it too
    assert encode(text) is text


@given(values)
@example(LEAD)
@example("\ud800" + LEAD + "0000")
@example({LEAD: "\\u0000", "\x00": "\\\x00", "\\\\u0000": "\ud83d\ude00\ud83d"})
def test_any_value_comes_back_through_the_escape(value: Any) -> None:
    escaped = escape_json(encode(value))
    assert same(decode(unescape_json(escaped)), normal(value))
    # the database undoes escapes, and writes its own text from what it then holds
    rewritten = json.dumps(json.loads(escaped), ensure_ascii=False)
    assert "\\u0000" not in rewritten.replace("\\\\", "")
    rewritten.encode()
    assert same(decode(unescape_json(rewritten)), normal(value))


@given(texts, st.booleans())
@example(LEAD + "0000", True)
@example("\ud83d" + "\ude00", False)
@example("\ud83d" + LEAD + "\ude00", True)
def test_any_text_comes_back_through_the_escape(text: str, nul: bool) -> None:
    escaped = escape_text(text, nul=nul)
    escaped.encode()
    assert not (nul and "\x00" in escaped)
    assert unescape_text(escaped) == join_halves(text)


@given(st.dictionaries(texts, values, max_size=4), st.dictionaries(texts, values, max_size=4), st.text())
@example({}, {}, "")
@example({"a": '"text":""'}, {"b": 1e16}, '"')
def test_what_is_around_a_text_is_the_rest_of_it(before: Any, after: Any, text: str) -> None:
    rest = {key: value for key, value in after.items() if key not in before}
    whole = {**before, "text": text, **{key: value for key, value in rest.items() if key != "text"}}
    frame = frame_of(whole, "text")
    assert frame.head + encode(text)[1:-1] + frame.foot == encode(whole)


def test_ordinary_text_is_stored_as_it_is() -> None:
    for text in ("", "plain", "Grüße 😀 \u2028", "back\\slash \\u0000"):
        assert escape_text(text, nul=True) == text
    assert escape_text("a\x00b", nul=False) == "a\x00b"
    assert escape_json('{"a":"Grüße"}') == '{"a":"Grüße"}'


def test_minus_zero_becomes_zero() -> None:
    assert encode([-0.0, {"a": -0.0}]) == '[0.0,{"a":0.0}]'
    back = decode(encode(-0.0))
    assert (back, math.copysign(1, back), type(back)) == (0.0, 1.0, float)


@each("number", [1e15, 1e16, 1e22, 1e23, 1.5e300, 1e308, -1e308, 1.7976931348623157e308])
def test_a_float_is_written_as_a_float(number: float) -> None:
    text = encode(number)
    assert "." in text
    assert "e" not in text
    assert same(decode(text), number)


@each("number", [-(2**63), 2**63 - 1, 2**63, 2**64 - 1])
def test_the_widest_integers(number: int) -> None:
    assert same(decode(encode({"n": [number]})), {"n": [number]})


def test_halves_of_one_character_are_joined() -> None:
    assert decode(encode({"\ud83d\ude00": "\ud83d\ude00"})) == {"😀": "😀"}
    assert decode(encode(["\ude00\ud83d", "\ud83d"])) == ["\ude00\ud83d", "\ud83d"]


# ---------------------------------------------------------------- what is refused, and where


class Colour(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


class Pair(NamedTuple):
    a: int
    b: int


@dataclasses.dataclass
class Point:
    x: int = 1


def circular() -> Any:
    ring: list[Any] = []
    ring.append(ring)
    return ring


STRANGERS: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    2**64,
    -(2**63) - 1,
    10**400,
    (1, 2),
    {1, 2},
    b"bytes",
    bytearray(b"x"),
    datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    datetime.date(2026, 1, 1),
    uuid.UUID(int=1),
    decimal.Decimal("1.5"),
    Colour.RED,
    Number.ONE,
    Text("x"),
    collections.OrderedDict(a=1),
    Pair(1, 2),
    Point(),
    1j,
    object(),
    str,
    circular(),
]


@each("stranger", STRANGERS, ids=lambda stranger: type(stranger).__name__)
def test_a_stranger_is_refused_wherever_it_is(stranger: Any) -> None:
    for value, path in [
        (stranger, "metadata"),
        ({"a": [1, stranger]}, "metadata.a[1]"),
        ([{"ok": None}, {"deep": {"er": stranger}}], "metadata[1].deep.er"),
    ]:
        for refuse in (lambda given: encode(given, "metadata"), lambda given: check(given, "metadata")):
            with pytest.raises(InvalidValue) as caught:
                refuse(value)
            assert caught.value.path.startswith(path)
            assert isinstance(caught.value, ValueError)
            assert not isinstance(caught.value, PayloadTooLarge)


def test_the_reasons() -> None:
    for value, reason in [
        (math.nan, "nan is not a JSON number."),
        (2**64, "an integer must fit 64 bits (-2**63 to 2**64-1)."),
        ((1,), "tuple is not a JSON value."),
        ({1: 2}, "the key 1 is not a string."),
        ({None: 2}, "the key None is not a string."),
        ({Text("a"): 2}, "the key 'a' is not a string."),
        (circular(), "nested deeper than 200 levels."),
    ]:
        with pytest.raises(InvalidValue) as caught:
            encode(value, "metadata")
        assert caught.value.reason == reason


def test_a_bad_key_is_named_with_the_object_it_is_in() -> None:
    with pytest.raises(InvalidValue) as caught:
        encode({"a": [{"b": {2: 3}}]}, "patch")
    assert caught.value.path == "patch.a[0].b"


def nested(levels: int, leaf: Any, *, lists: bool) -> Any:
    value = leaf
    for _ in range(levels):
        value = [value] if lists else {"k": value}
    return value


@each("lists", [True, False], ids=["lists", "objects"])
@each("leaf", ["plain", "\ud83d", 1e20, -0.0], ids=["plain", "half", "big float", "minus zero"])
@each("depth", [1, 200, 250])
def test_depth_is_capped_exactly(lists: bool, leaf: Any, depth: int) -> None:
    limits = JsonLimits(max_depth=depth)
    value = nested(depth, leaf, lists=lists)
    assert same(decode(encode(value, "v", limits)), normal(value))
    with pytest.raises(InvalidValue, match=f"deeper than {depth} levels") as caught:
        encode([value] if lists else {"k": value}, "v", limits)
    assert len(caught.value.path) < 200  # the middle of a long path is left out


def test_a_million_levels_are_refused_without_looking_at_all() -> None:
    with pytest.raises(InvalidValue, match="deeper than 200"):
        encode(nested(100_000, 1, lists=True))


@each("letter", ["a", "ü", "😀", "\n", "\x00", "\ud83d"])
def test_size_is_capped_exactly_in_bytes(letter: str) -> None:
    size = len(encode({"k": letter * 10}).encode())
    assert decode(encode({"k": letter * 10}, "v", JsonLimits(max_bytes=size))) == {"k": letter * 10}
    with pytest.raises(PayloadTooLarge) as caught:
        encode({"k": letter * 10}, "metadata", JsonLimits(max_bytes=size - 1))
    assert (caught.value.path, caught.value.size, caught.value.limit) == ("metadata", size, size - 1)
    assert "Keep large content" in caught.value.reason


def test_text_that_was_encoded_before_is_trusted_only_as_a_whole() -> None:
    text = encode({"a": 1})
    assert isinstance(text, JsonText)
    with pytest.raises(InvalidValue):
        encode({"inner": text})


def test_what_is_no_json_is_a_value_error() -> None:
    for text in ("", "{", "nul", "[1,]", "{'a':1}"):
        with pytest.raises(ValueError, match=r".*"):
            decode(text)


# ---------------------------------------------------------------- merge patches


@each(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({"a": "foo"}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_rfc_7396(target: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]) -> None:
    before = json.dumps(target)
    assert merge_patch(target, patch) == result
    assert json.dumps(target) == before
