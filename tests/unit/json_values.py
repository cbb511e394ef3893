"""Strategies for the JSON domain, and what a value is after a round trip."""

from typing import Any

from hypothesis import strategies as st

from persist.db.values.escaping import join_halves
from persist.db.values.json import INT_MAX, INT_MIN

LEAD = "\ufdd0"

AWKWARD = [
    "\x00",
    "\ud83d",
    "\ude00",
    "\ud83d\ude00",
    LEAD,
    LEAD + "0000",
    LEAD + LEAD,
    "\\u0000",
    "\\",
    '"',
    "\u2028",
    "😀",
    "\uffff",
    "d83d",
]

texts = st.text(st.characters()) | st.lists(st.sampled_from([*AWKWARD, "a"]), max_size=8).map("".join)
"""Any Python string, lone halves and all; and what an escape could stumble over."""

integers = st.integers(INT_MIN, INT_MAX) | st.sampled_from([INT_MIN, INT_MAX, 2**53 + 1, 2**63, -1, 0])
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 1e15, 1e16, 1e22, 1e23, 1e100, 1e308, -1e308, 5e-324, 2.0**53, 9007199254740993.0, 0.1, 1 / 3, 3.0]
)
scalars = st.none() | st.booleans() | integers | floats | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=20
)


def normal(value: Any) -> Any:
    """The value that comes back: halves joined, -0.0 as 0.0."""
    if isinstance(value, str):
        return join_halves(value)
    if isinstance(value, list):
        return [normal(item) for item in value]
    if isinstance(value, dict):
        return {join_halves(key): normal(item) for key, item in value.items()}
    return 0.0 if isinstance(value, float) and value == 0 else value


def same(left: Any, right: Any) -> bool:
    """Equal in value, in type and in the order of keys, all the way down; 1, 1.0 and True are three values."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return bool(left == right) and repr(left) == repr(right)
