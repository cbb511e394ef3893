"""Keys inside JSONB: the order of writing, in a form that a database which sorts keys keeps."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from persist.db.values.json import MARK, decode, encode, from_jsonb, joined_from_jsonb, to_jsonb, value_of_jsonb
from tests.cases import each
from tests.unit.json_values import normal, same, texts, values

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
