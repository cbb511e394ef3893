"""Any text comes back as it was, and whatever else is inside of an event does no harm."""

import json
import logging
import math
import os
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

from persist.db.values.escaping import join_halves
from persist.errors import InvalidValue
from persist.sessionlog import iter_session_log, list_session_logs, read_session_log, tail_session_log, truncate_tool_result
from persist.sessionlog.reader import read_line
from persist.sessionlog.session_files import read_session_files
from tests.cases import each
from tests.sessionlog.scenes import Watched, call, contents, event, fresh, lines, log_path, said, text, writer

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


# Whole records are read by every reader, whatever a crash, an editor or another writer left on their line.


SESSION = "6f1c2d3e-0000-4000-8000-000000000001"
T1 = "2026-06-15T11:00:01.000Z"
FIRST: dict[str, Any] = {
    "type": "user",
    "uuid": "u-1",
    "timestamp": "2026-06-15T11:00:00.000Z",
    "message": {"role": "user", "content": [{"type": "text", "text": 'say "{"a": 1}", [ü🦊] \\ {"type": "user"'}]},
    "list": [{"type": "x"}, {"type": "y", "n": [1, 2, {"z": {}}]}],
    "n": -12.5e3,
}
SECOND: dict[str, Any] = {"type": "user", "uuid": "u-2", "timestamp": T1, "message": {"role": "user", "content": "second"}}


def line(entry: Any) -> bytes:
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode()


@each(
    ("content", "records", "torn"),
    [
        (b"\xef\xbb\xbf" + line(SECOND), [SECOND], False),
        (b"\0" * 4096 + line(SECOND), [SECOND], True),
        (line(SECOND) + b"\0" * 10, [SECOND], False),
        (line(FIRST) + line(SECOND), [FIRST, SECOND], False),
        (line(FIRST) + b" \0\0 " + line(SECOND), [FIRST, SECOND], False),
        (b"garbage " + line(SECOND), [SECOND], True),
        (line(FIRST) + b",", [], True),
        (line(FIRST) + b'{"type":"us' + line(SECOND), [FIRST, SECOND], True),
        (line(FIRST) + b"\xff" + line(SECOND) * 2, [FIRST, SECOND, SECOND], True),
        (b"\0" + line(FIRST) + b"{" + line(SECOND), [FIRST, SECOND], True),
        (b"", [], False),
        (b" \r\n", [], False),
        (b"[1]", [], True),
        (b'{"a":{"role":"user","content":"not a record"}', [], True),
        (b'{"a":[{"b":1},{"role":"user"}', [], True),
        (b'{"content":"a text with {}', [], True),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_what_a_line_holds(content: bytes, records: list[Any], torn: bool, exact: bool) -> None:
    assert read_line(content, exact=exact) == (records, torn)


def test_a_record_behind_one_that_is_torn_anywhere_is_read_alone() -> None:
    """Cut at every byte, inside of characters, texts, lists and numbers; with NULs in place of what was not written, too."""
    whole = line(FIRST)
    for cut in range(1, len(whole)):
        assert read_line(whole[:cut]).records == [], cut
        for between in (b"", b"\0" * 7):
            found = read_line(whole[:cut] + between + line(SECOND) + b"\n")
            assert found == ([SECOND], True), (cut, whole[:cut])


@each(
    "other",
    [
        {"type": "summary", "summary": "s", "leafUuid": "u-1"},
        {"type": "file-history-snapshot", "messageId": "u-1", "snapshot": {"trackedFileBackups": {}}},
    ],
)
def test_a_record_without_an_instant_is_read_behind_one_that_is_torn_at_a_values_place(other: dict[str, Any]) -> None:
    for torn in (b'{"type":', b'{"type":"user","list":[', b'{"list":[{"a":1},', b'{"message":{"role":'):
        assert read_line(torn + line(other) + b"\n") == ([other], True), torn


def test_no_value_of_a_last_record_that_is_cut_off_is_a_record() -> None:
    """A writer that goes on behind it ends the line."""
    whole = line({"type": "progress", "data": {"message": SECOND}, "list": [FIRST, SECOND], "uuid": "u-3"})
    for cut in range(1, len(whole)):
        assert read_line(whole[:cut]).records == [], whole[:cut]


def test_a_hostile_line_is_read_in_bounded_time() -> None:
    assert read_line(b'{"a":' * 200_000) == ([], True)
    assert read_line(b'{"a":1} ' * 200_000 + b"x") == ([], True)
    many = FIRST | {"list": [{"n": number} for number in range(3000)]}
    assert read_line(line(many)[:-9] + line(SECOND) + b"\n") == ([SECOND], True)
    assert read_line(b'{"type":"a","uuid":"b","c":[' * 50_000) == ([], True)


def test_every_reader_finds_the_same_records(tmp_path: Path) -> None:
    path = tmp_path / "projects" / "-app" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    number = line({**SECOND, "uuid": "u-3", "n": math.nan})
    glued = line(FIRST)[:70] + line(SECOND)
    path.write_bytes(b"\n".join([b"\xef\xbb\xbf" + line(FIRST), glued, number, b"\0\0" + line(SECOND) * 2, b"torn {", b""]))
    ids = ["u-1", "u-2", "u-3", "u-2", "u-2"]
    session = read_session_files(tmp_path, SESSION)
    assert [entry["uuid"] for entry in session.parts[""]] == ids
    assert math.isnan(session.parts[""][2]["n"])
    assert session.skipped == 3
    (batch,) = tail_session_log(path, stop=lambda: True)
    assert [(entry.index, entry.msg["uuid"]) for entry in batch] == list(zip([0, 1, 2, 3, 3], ids, strict=True))
    assert batch[2].msg["n"] is None
    assert len(list(iter_session_log(path))) == len(read_session_log(path)) == 5
    (info,) = list_session_logs(tmp_path)
    assert info.started_at.isoformat() == "2026-06-15T11:00:00+00:00"


# What reaches the file: whole batches, each in one append, and never into a line of another writer.


def test_a_batch_is_one_append(home: Path, watched: type[Watched]) -> None:
    log = writer(home, initial_prompt="Do it")
    log.feed_many(text(str(number)) for number in range(100))
    assert [part.count(b"\n") for part in watched.writes] == [101]
    log.finalize(api_error="boom")
    assert [part.count(b"\n") for part in watched.writes] == [101, 2]


def test_a_fallback_is_one_append(home: Path, watched: type[Watched]) -> None:
    writer(home, initial_prompt="Do it").finalize_with_fallback("s1", error="died")
    assert [part.count(b"\n") for part in watched.writes] == [3]


def test_a_batch_for_two_sessions_is_two_appends(home: Path, watched: type[Watched]) -> None:
    writer(home).feed_many([text("a"), text("b"), {"type": "session", "id": "s2"}, text("c"), text("d")])
    assert [part.count(b"\n") for part in watched.writes] == [2, 2]
    assert contents(home, "s2") == [said("c"), said("d")]


def test_a_short_write_is_continued(home: Path, watched: type[Watched]) -> None:
    watched.takes = iter([1, 5, 0, 7])
    writer(home).feed_many([text("a"), text("b")])
    assert [len(part) for part in watched.writes[:4]] == [1, 5, 0, 7]
    assert contents(home) == [said("a"), said("b")]


def test_a_torn_last_line_does_not_swallow_the_next_one(home: Path) -> None:
    writer(home).feed(text("whole"))
    with log_path(home).open("ab") as file:
        file.write(b'{"type":"assistant","mess')
    log = writer(home)
    log.feed(text("after"))
    log.feed(text("later"))
    first, torn, after, later, end = log_path(home).read_bytes().split(b"\n")
    assert torn == b'{"type":"assistant","mess'
    assert [b"whole" in first, b"after" in after, b"later" in later, end] == [True, True, True, b""]


def test_a_line_torn_by_another_writer_meanwhile_is_noticed(home: Path) -> None:
    log = writer(home)
    log.feed(text("whole"))
    with log_path(home).open("ab") as file:
        file.write(b"torn")
    log.feed(text("after"))
    assert log_path(home).read_bytes().split(b"\n")[1] == b"torn"


def test_a_file_that_was_removed_is_made_again(home: Path) -> None:
    log = writer(home)
    log.feed(text("a"))
    log_path(home).unlink()
    log.feed(text("b"))
    assert contents(home) == [said("b")]


def test_writers_need_no_close(home: Path, recwarn: pytest.WarningsRecorder) -> None:
    before = len(os.listdir("/dev/fd"))
    for number in range(50):
        writer(home, initial_prompt="Do it").feed(text("a", session=f"s{number}"))
    assert len(os.listdir("/dev/fd")) == before
    assert list(recwarn) == []
