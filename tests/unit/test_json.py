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

from persist.chat.reducer.partial_json import ABSENT, parse_partial, readings_may_differ
from persist.db.values.escaping import escape_json, escape_text, join_halves, unescape_json, unescape_text
from persist.db.values.json import (
    MARK,
    JsonFrame,
    JsonLimits,
    JsonText,
    check,
    decode,
    encode,
    from_jsonb,
    joined_from_jsonb,
    merge_patch,
    to_jsonb,
    value_of_jsonb,
)
from persist.errors import InvalidValue, PayloadTooLarge
from persist.settings import AiSdk
from tests.cases import each
from tests.streams.vectors import cases
from tests.unit.json_values import LEAD, normal, same, texts, values


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
    frame = JsonFrame(whole, "text")
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


# Keys inside JSONB: the order of writing, in a form that a database which sorts keys keeps.


keys = texts | st.sampled_from(["type", "text", "a", "b", "aa", "é", MARK, MARK[0] + MARK])
objects = st.dictionaries(keys, values, max_size=6)


def jsonb(text: str) -> str:
    """What a server gives back: its own spaces, and keys by length and bytes."""
    return json.dumps(_sorted(json.loads(text)), ensure_ascii=False)


def _sorted(value: Any) -> Any:
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=lambda key: (len(key.encode()), key.encode()))}
    return value


@given(values | objects | st.lists(objects, max_size=3))
def test_every_value_comes_back_in_its_order(value: Any) -> None:
    stored = jsonb(to_jsonb(encode(value)))
    assert same(value_of_jsonb(stored), normal(value))
    assert same(decode(from_jsonb(stored)), normal(value))


@given(st.lists(values | objects, min_size=1, max_size=5))
def test_joined_values_come_back_in_their_order(found: list[Any]) -> None:
    joined = ",".join(jsonb(to_jsonb(encode(value))) for value in found)
    assert same(decode(f"[{joined_from_jsonb(joined)}]"), normal(found))


@each(
    "value",
    [
        {},
        [],
        {"a": 1},
        {"type": "text", "text": "hello", "state": "done"},
        {"type": "x", "a": {"b": 1, "aa": [{"c": 1, "d": 2}]}},
        {"a": 1, "b": 2, "é": 3, "aaa": 4},
    ],
)
def test_nothing_is_added_to_the_default_order(value: Any) -> None:
    assert json.loads(to_jsonb(encode(value))) == value


@each("mark", ["0", "0,1,2", "1,1", "a,b", "", "0,-1", "01,0", 7, None, ["1,0"], {}])
def test_a_mark_that_does_not_fit_counts_for_nothing(mark: Any) -> None:
    stored = jsonb(json.dumps({"input": {"a": 1, "b": 2, MARK: mark}}))
    assert same(value_of_jsonb(stored), {"input": {"a": 1, "b": 2}})


def test_an_object_that_lost_or_gained_a_key_is_read() -> None:
    marked = json.loads(to_jsonb(encode({"b": 1, "a": 2, "c": 3})))
    del marked["a"]
    assert value_of_jsonb(jsonb(json.dumps(marked))) == {"b": 1, "c": 3}
    marked |= {"a": 2, "d": 4}
    assert value_of_jsonb(jsonb(json.dumps(marked))) == {"a": 2, "b": 1, "c": 3, "d": 4}


def test_large_floats_stay_floats_where_a_mark_is_added() -> None:
    value = {"b": 1e16, "a": 2**63, "0": -0.0}
    assert "10000000000000000.0" in to_jsonb(encode(value))


# parse_partial against the real parsePartialJson, and what Python alone would do differently.


CASES = cases("partial_json")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def without_prototypes(value: Any) -> bool:
    if isinstance(value, dict):
        return not {"__proto__", "constructor"} & value.keys() and all(map(without_prototypes, value.values()))
    return all(map(without_prototypes, value)) if isinstance(value, list) else True


@each(("ai_sdk", "case"), CASES, ids=lambda one: f"{one[0]:d}, {one[1]['text'][:40]!r}")
def test_same_result_as_the_sdk(ai_sdk: AiSdk, case: dict[str, Any]) -> None:
    assert parse_partial(case["text"], ai_sdk) == (case["state"], case.get("value", ABSENT))


@given(st.lists(st.text(alphabet='{}[],:"-+.0tfn \nx', max_size=4), max_size=8))
def test_the_majors_read_the_same_unless_an_array_has_begun_with_no_value(pieces: list[str]) -> None:
    text, may_differ = "", False
    for piece in pieces:
        text += piece
        may_differ = readings_may_differ(piece, after_open=may_differ)
        assert may_differ == readings_may_differ(text)
        assert may_differ or parse_partial(text, AiSdk.V6) == parse_partial(text, AiSdk.V7)


@given(json_values.filter(without_prototypes), st.booleans())
def test_complete_json_is_parsed_as_it_is(value: Any, ascii_only: bool) -> None:
    assert parse_partial(json.dumps(value, ensure_ascii=ascii_only)) == ("successful-parse", value)


@given(st.dictionaries(st.text(max_size=3), json_values, min_size=1, max_size=4).filter(without_prototypes), st.data())
def test_every_prefix_of_an_object_is_repaired(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    state, repaired = parse_partial(cut)
    assert state in ("repaired-parse", "failed-parse")  # the SDK ends a key at an escaped quote, so some cuts fail
    assert state == "failed-parse" or repaired.keys() <= value.keys()


@given(st.text(alphabet='{}[],:"\\ue1-+.0tfn rulasx\n\ud83d\ude00😀', max_size=30))
def test_no_text_raises(text: str) -> None:
    state, value = parse_partial(text)
    assert (state == "failed-parse") == (value is ABSENT)


@each("text", ["[" * 50_000, '{"a":' * 50_000, "[" * 50_000 + "]" * 50_000])
def test_nesting_deeper_than_the_stack_fails(text: str) -> None:
    assert parse_partial(text) == ("failed-parse", ABSENT)


def test_integers_are_exact_to_64_bits_and_floats_beyond() -> None:
    assert parse_partial("[18446744073709551615,-9223372036854775808")[1] == [2**64 - 1, -(2**63)]
    beyond = parse_partial("[18446744073709551616, -9223372036854775809, " + "9" * 30)[1]
    assert beyond == [2.0**64, -(2.0**63), 1e30]
    assert all(isinstance(number, float) for number in beyond)


@each("text", ["9" * 5000, "-" + "9" * 5000, "1e400"])
def test_a_number_beyond_floats_is_null_as_in_the_json_of_javascript(text: str) -> None:
    assert parse_partial(text) == ("successful-parse", None)
