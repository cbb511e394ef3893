"""Cursors: what they carry, and that any other text is refused."""

import base64
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.db.values.pages import Page, check_limit, decode_cursor, encode_cursor
from persist.errors import InvalidValue
from tests.cases import each

FILTERS = {"agent": "build", "include_archived": False, "workspace_root": None}
KEY = [1_767_323_045_678, "ses_1"]
KINDS = (int, str)


def cursor() -> str:
    return encode_cursor("chat.sessions", FILTERS, KEY)


def decoded(
    text: str, name: str = "chat.sessions", filters: dict[str, Any] = FILTERS, kinds: tuple[type, ...] = KINDS
) -> list[Any]:
    return decode_cursor(text, name, filters, kinds)


def forged(*content: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([*content])).rstrip(b"=").decode()


def test_a_cursor_gives_its_key_back() -> None:
    assert decoded(cursor()) == KEY


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_any_key_comes_back(key: list[Any]) -> None:
    text = encode_cursor("list", {}, key)
    assert decode_cursor(text, "list", {}, tuple(type(part) for part in key)) == key
    assert text.isascii()
    assert not set(text) & set("+/=&? ")


def test_filters_in_another_order_are_the_same_filters() -> None:
    assert decoded(cursor(), filters=dict(reversed(FILTERS.items()))) == KEY


@each(
    "other",
    [
        {"name": "chat.messages"},
        {"filters": FILTERS | {"agent": "plan"}},
        {"filters": FILTERS | {"include_archived": True}},
        {"filters": {"agent": "build"}},
    ],
)
def test_the_cursor_of_another_list(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="another list, or to other filters") as caught:
        decoded(cursor(), **other)
    assert caught.value.path == "after"


@each("kinds", [(str, str), (int,), (int, str, str), (bool, str), (float, str)])
def test_a_key_of_another_shape(kinds: tuple[type, ...]) -> None:
    with pytest.raises(InvalidValue, match="not a cursor"):
        decoded(cursor(), kinds=kinds)


def test_a_flag_is_no_number() -> None:
    with pytest.raises(InvalidValue, match="not a cursor"):
        decoded(encode_cursor("chat.sessions", FILTERS, [True, "ses_1"]))


@each(
    "text",
    [
        "",
        "x",
        "not a cursor",
        "%%%",
        "é",
        "\x00",
        "\ud83d",
        forged(),
        forged(1, "chat.sessions"),
        forged(2, "chat.sessions", "0", KEY),
        forged(1, "chat.sessions", "0", KEY),
        forged(1, "chat.sessions", None, None),
        base64.urlsafe_b64encode(b"7").decode(),
        base64.urlsafe_b64encode(b'{"a":1,"b":2,"c":3,"d":4}').decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        decoded(text)
    assert caught.value.path == "after"


@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        decoded(text)


@given(st.integers(0, len(cursor()) - 1), st.sampled_from("!\n =-_Az09"))
def test_a_changed_cursor_is_refused_or_is_another_key(position: int, letter: str) -> None:
    good = cursor()
    for changed in (good[:position] + letter + good[position:], good[:position] + good[position + 1 :]):
        try:
            key = decoded(changed)
        except InvalidValue:
            continue
        assert key != KEY
        assert [type(part) for part in key] == [int, str]


@each("limit", [1, 20, 1000])
def test_a_limit(limit: int) -> None:
    assert check_limit(limit) == limit


@each("limit", [0, -1, 1001, 2**70, 1.0, "20", None, True])
def test_no_limit(limit: object) -> None:
    with pytest.raises(InvalidValue) as caught:
        check_limit(limit)
    assert caught.value.path == "limit"


def test_pages_compare_by_what_they_hold() -> None:
    assert Page([1, 2], "c") == Page([1, 2], "c")
    assert Page([1, 2], "c") != Page([1, 2], None)
    assert Page([1], None) != [1]
    assert repr(Page([1], None)) == "Page(items=[1], cursor=None)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Page([], None))
