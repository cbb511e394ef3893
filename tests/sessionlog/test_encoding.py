"""Any text comes back as it was, and whatever else is inside of an event does no harm."""

import json
import logging
from collections import OrderedDict
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.db.values.json import join_halves
from persist.errors import InvalidValue
from persist.sessionlog import iter_session_log, truncate_tool_result
from tests.cases import each
from tests.sessionlog.scenes import call, contents, event, fresh, lines, log_path, text, writer

AWKWARD = ["\n", "\r", "\r\n", "\x00", "\x85", "\u2028", "\u2029", "\ufeff", "\ud83d", "\ude00", "😀", "\\ud83d", '"', "\\", "é"]
texts = st.text(st.characters()) | st.lists(st.sampled_from([*AWKWARD, "a"]), max_size=8).map("".join)


@given(texts, texts, texts)
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, prompt: str, said: str, result: str) -> None:
    home = tmp_path_factory.mktemp("home")
    log = writer(home, initial_prompt=prompt, strict=True)
    log.feed_many([text(said + "."), call(), event("tool_execution_end", toolCallId="t1", result=result)])
    assert log_path(home).read_bytes().count(b"\n") == 4
    messages = [entry.msg for entry in iter_session_log(log_path(home))]
    assert [message["role"] for message in messages] == ["user", "assistant", "assistant", "tool"]
    assert messages[0]["content"] == join_halves(prompt)
    assert messages[1]["content"] == join_halves(said + ".")
    assert messages[3]["content"] == join_halves(truncate_tool_result(result))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)


def joined(value: Any) -> Any:
    if isinstance(value, str):
        return join_halves(value)
    if isinstance(value, list):
        return [joined(item) for item in value]
    return {join_halves(key): joined(item) for key, item in value.items()} if isinstance(value, dict) else value


@given(json_values)
def test_any_json_comes_back(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    home = tmp_path_factory.mktemp("home")
    log = writer(home, strict=True)
    log.feed_many([call(arguments={"value": value}), event("tool_execution_end", toolCallId="t1", result=[value])])
    assert contents(home)[0][0]["input"] == {"value": joined(value)}
    cut = contents(home)[1][0]["content"]
    assert "[truncated" in cut or json.loads(cut) == [joined(value)]


def test_halves_are_escaped_and_the_rest_is_not(home: Path) -> None:
    writer(home, initial_prompt="é\ud83d☕\ud83d\ude00\udc00").feed(event("turn_start"))
    assert '"content":"é\\ud83d☕😀\\udc00"'.encode() in log_path(home).read_bytes()


class Colour(Enum):
    RED = "red"


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError


class Text(str):
    pass


@each(
    ("value", "written"),
    [
        ((1, (2,)), [1, [2]]),
        (2**70, 2**70),
        ({0: "a", None: "b", True: "c", 2.5: "d"}, {"0": "a", "null": "b", "true": "c", "2.5": "d"}),
        (float("nan"), None),
        ([float("inf"), "\ud83d"], [None, "\ud83d"]),
        (OrderedDict(a=1), {"a": 1}),
        (MappingProxyType({"a": [1]}), {"a": [1]}),
        (Colour.RED, "red"),
        ([Colour.RED, "\ud83d"], ["red", "\ud83d"]),
        ([Text("a"), "\ud83d"], ["a", "\ud83d"]),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([datetime(2026, 1, 2, tzinfo=UTC), "\ud83d"], ["2026-01-02T00:00:00+00:00", "\ud83d"]),
    ],
)
def test_what_has_a_form_in_json_is_written_in_it(home: Path, value: Any, written: Any) -> None:
    home = fresh(home)
    log = writer(home, strict=True)
    log.feed(call(arguments={"value": value}))
    assert contents(home)[0][0]["input"] == {"value": written}


def test_one_value_in_two_places_is_no_loop(home: Path) -> None:
    shared = ["\ud83d"]
    writer(home, strict=True).feed(call(arguments={"a": shared, "b": [shared, shared]}))
    assert contents(home)[0][0]["input"] == {"a": shared, "b": [shared, shared]}


class Looping:
    """Values that hold themselves."""

    def __init__(self) -> None:
        self.list: list[Any] = [1]
        self.list.append(self.list)
        self.dict: dict[str, Any] = {}
        self.dict["again"] = [self.dict]


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (PurePosixPath("/a"), "/a"),
        ({1, 2}, "{1, 2}"),
        (b"a", "b'a'"),
        (Unprintable(), "<Unprintable>"),
        ({PurePosixPath("/a"): 1}, {"/a": 1}),
        (10**5000, hex(10**5000)),
        (Looping().list, [1, "[a value inside of itself]"]),
        (Looping().dict, {"again": ["[a value inside of itself]"]}),
    ],
    ids=["path", "set", "bytes", "unprintable", "key", "huge", "list in itself", "dict in itself"],
)
def test_what_has_none_is_written_as_text_and_noted(
    home: Path, caplog: pytest.LogCaptureFixture, value: Any, written: Any
) -> None:
    log = writer(home)
    with caplog.at_level(logging.WARNING, "persist"):
        log.feed_many([text("before"), call(arguments={"value": value}), text("after")])
    assert [blocks[0].get("input", {}).get("value") for blocks in contents(home)] == [None, written, None]
    assert isinstance(log.error, InvalidValue)
    assert log.error.path.startswith("message.content[0].input.value")
    assert "is not a JSON value" in log.error.reason
    assert len(caplog.records) == 1


def test_a_strict_writer_refuses_it_and_writes_nothing_of_the_batch(home: Path) -> None:
    log = writer(home, strict=True)
    with pytest.raises(InvalidValue, match=r"message\.content\[0\]\.input\.a\[1\]"):
        log.feed_many([text("before"), call(arguments={"a": [0, {1}]})])
    assert not home.exists()


def test_results_of_tools_may_be_anything(home: Path) -> None:
    log = writer(home)
    log.feed_many([call(), event("tool_execution_end", toolCallId="t1", result={"path": PurePosixPath("/a"), "n": 2**70})])
    assert contents(home)[1][0]["content"] == '{"path":"/a","n":1180591620717411303424}'
    assert isinstance(log.error, InvalidValue)
    assert log.error.path == "result.path"


@each("levels", [100, 240, 260, 900, 5000])
def test_deep_values_are_cut_where_no_reader_could_follow(home: Path, levels: int) -> None:
    home = fresh(home)
    log = writer(home)
    log.feed(call(arguments=deep(levels)))
    assert log.failed == (levels > 250)
    line = log_path(home).read_text(encoding="utf-8")
    assert ("nested too deep" in line) == log.failed
    assert len(lines(home)) == len(list(iter_session_log(log_path(home)))) == 1


def test_events_need_not_be_dicts(home: Path) -> None:
    frozen = MappingProxyType(
        event("message_end", message=MappingProxyType({"role": "assistant", "content": ({"type": "text", "text": "a"},)}))
    )
    writer(home, strict=True).feed(frozen)
    assert contents(home) == [[{"type": "text", "text": "a"}]]


def test_events_are_not_changed(home: Path) -> None:
    given = [call(arguments={"a": [1, {2}, "\ud83d"]}), event("tool_execution_end", toolCallId="t1", result={"b": "x" * 70_000})]
    before = repr(given)
    writer(home).feed_many(given)
    assert repr(given) == before
