"""parse_partial against the real parsePartialJson, and what Python alone would do differently."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from persist.chat.reducer.partial_json import ABSENT, parse_partial, readings_may_differ
from persist.settings import AiSdk
from tests.cases import each
from tests.streams.vectors import cases

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
