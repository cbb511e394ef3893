"""Reading a log: what every kind of line says, in which order, and in how much memory."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.errors import InvalidValue, NotFound, PersistError
from persist.sessionlog import iter_session_log, messages_of, read_session_log, truncate_tool_result
from tests.cases import each
from tests.sessionlog.scenes import call, contents, event, lines, log_path, message, text, writer

T1, T2, T3 = (f"2026-06-15T11:00:0{second}.000Z" for second in (1, 2, 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def write(path: Path, *entries: Any) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")


def assistant(*blocks: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"role": "assistant", "content": list(blocks)}, "timestamp": T1} | fields


def user(content: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}, "timestamp": T1}


def test_a_line_with_a_role_is_a_message_already() -> None:
    line = {"role": "session_meta", "type": "result", "platform": "cli", "content": [1]}
    assert messages_of(line) == [line]


@each("content", ["hi", "", [{"type": "text", "text": "hi"}], {"a": 1}])
def test_a_user_says_what_it_says(content: Any) -> None:
    assert messages_of(user(content)) == [{"role": "user", "content": content, "timestamp": T1}]


def test_every_tool_result_is_a_message_and_the_text_beside_them_is_left_out() -> None:
    results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": f"r{n}", "is_error": True} for n in (1, 2)]
    assert messages_of(user([results[0], {"type": "text", "text": "beside"}, None, results[1]])) == [
        {"role": "tool", "content": "r1", "tool_call_id": "t1", "timestamp": T1},
        {"role": "tool", "content": "r2", "tool_call_id": "t2", "timestamp": T1},
    ]


def test_an_assistant_says_text_calls_and_its_last_thought() -> None:
    line = assistant(
        {"type": "thinking", "thinking": "first"},
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}},
        {"type": "thinking", "thinking": "last"},
        {"type": "text", "text": "b"},
    )
    line["message"] |= {"model": "m", "stop_reason": "end_turn"}
    assert messages_of(line) == [
        {
            "role": "assistant",
            "content": "a\nb",
            "tool_calls": [{"id": "t1", "function": {"name": "bash", "arguments": {"command": "ls"}}}],
            "reasoning": "last",
            "finish_reason": "end_turn",
            "model": "m",
            "timestamp": T1,
        }
    ]


def test_calls_alone_have_no_content() -> None:
    (found,) = messages_of(assistant({"type": "tool_use", "id": "t1", "name": "bash", "input": {}}))
    assert "content" not in found
    assert found["tool_calls"] == [{"id": "t1", "function": {"name": "bash", "arguments": {}}}]


@each(
    "line",
    [
        assistant(),
        assistant({"type": "thinking", "thinking": "hm"}),
        assistant({"type": "text", "text": ""}),
        assistant({"type": "text", "text": 5}, None, "x"),
        {"type": "assistant", "message": {"content": ""}},
        {"type": "assistant", "message": None},
        {"type": "assistant"},
        {"type": "result", "subtype": "success", "result": "a", "timestamp": T1},
        {"type": "system", "subtype": "extension_status"},
        {"type": "summary"},
        {"type": None, "role": None},
        {"type": ["user"], "role": 5},
        {},
    ],
)
def test_lines_that_say_nothing(line: dict[str, Any]) -> None:
    assert messages_of(line) == []


@each(
    ("line", "said"),
    [
        ({"isApiErrorMessage": True, "error": "boom"}, "boom"),
        ({"isApiErrorMessage": True}, "API error"),
        ({"error": "boom", "message": {"content": [{"type": "text", "text": "a"}]}}, "boom"),
        ({"error": {"code": "é"}}, '{"code":"é"}'),
        ({"isApiErrorMessage": True, "error": ""}, ""),
    ],
)
def test_errors_are_system_messages(line: dict[str, Any], said: str) -> None:
    assert messages_of({"type": "assistant", "timestamp": T1} | line) == [{"role": "system", "content": said, "timestamp": T1}]


def test_a_message_may_be_text_itself() -> None:
    inner = {"role": "assistant", "content": "hi", "model": "m"}
    assert messages_of({"type": "assistant", "message": json.dumps(inner)}) == [inner]
    assert messages_of({"type": "user", "message": "hi"}) == [{"role": "user", "content": "hi"}]
    assert messages_of({"type": "user", "message": "5", "content": "outer"}) == [{"role": "user", "content": "5"}]
    assert messages_of({"type": "user", "content": "outer"}) == [{"role": "user", "content": "outer"}]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"   \t",
        b"\r",
        b"{",
        b'{"role":"user"',
        b"5",
        b"null",
        b'["role"]',
        b'"role"',
        b'{"role":"user","content":"\xff"}',
        b'{"role":"user","content":"\xed\xa0\xbd"}',
        b"{'role':'user'}",
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b"\x00" * 4096,
    ],
    ids=range(15),
)
def test_bad_lines_are_passed_over(path: Path, bad: bytes) -> None:
    good = b'{"role":"user","content":"%d"}'
    path.write_bytes(b"\n".join([good % 1, bad, good % 2]) + b"\n" + bad)
    assert [entry.msg["content"] for entry in read_session_log(path)] == ["1", "2"]
    assert list(iter_session_log(path)) == read_session_log(path)


def test_messages_come_by_time_and_those_without_one_first(path: Path) -> None:
    def at(name: str, **fields: Any) -> dict[str, Any]:
        return {"role": "user", "content": name, **fields}

    write(
        path,
        at("c", timestamp=T3),
        at("a", timestamp=T1),
        at("none 1"),
        at("b1", timestamp="2026-06-15T13:00:02+02:00"),
        at("b2", timestamp=T2),
        at("b0", timestamp="2026-06-15T11:00:01.9Z"),
        at("b3", timestamp=1_781_521_202_000),
        at("none 2", timestamp=None),
    )
    assert [entry.msg["content"] for entry in read_session_log(path)] == ["none 1", "none 2", "a", "b0", "b1", "b2", "b3", "c"]
    assert [entry.index for entry in read_session_log(path)] == list(range(8))
    assert [entry.msg["content"] for entry in iter_session_log(path)][:3] == ["c", "a", "none 1"]
    assert [entry.index for entry in iter_session_log(path)] == list(range(8))


def test_timestamps_that_are_none_sort_as_text(path: Path) -> None:
    stamps: list[Any] = ["t10", "t2", "", []]
    write(path, *({"role": "user", "content": stamp, "timestamp": stamp} for stamp in stamps))
    assert [entry.msg["content"] for entry in read_session_log(path)] == ["", [], "t10", "t2"]


def test_a_log_that_is_not_there(path: Path) -> None:
    for read in (read_session_log, iter_session_log):
        with pytest.raises(NotFound) as caught:
            read(path)
        assert caught.value.id == str(path)
    assert not path.exists()


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(PersistError):
        read_session_log(tmp_path)


def test_memory_does_not_grow_with_the_log(home: Path) -> None:
    log = writer(home)
    batch = [text("x" * 2000) for _ in range(100)]
    for _ in range(100):
        log.feed_many(batch)
    size = log_path(home).stat().st_size
    assert size > 20_000_000
    tracemalloc.start()
    try:
        count = sum(1 for _ in iter_session_log(log_path(home)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 10_000
    assert peak < 500_000


# The cap on tool results: 65,536 UTF-16 units of what is written, and nothing else is ever cut.


LIMIT = 65_536


def marker(dropped: int) -> str:
    return f"\n…[truncated {dropped} chars]"


@given(st.lists(st.sampled_from(["a", "é", "😀", "\ud83d", "\ude00"]), max_size=12).map("".join), st.integers(1, 12))
def test_the_cut_is_the_longest_that_splits_no_character(whole: str, limit: int) -> None:
    def units(part: str) -> int:
        return len(part.encode("utf-16-le", "surrogatepass")) // 2

    cut = truncate_tool_result(whole, limit)
    if units(whole) <= limit:
        assert cut == whole
        return
    kept, _, said = cut.rpartition("\n…[truncated ")
    assert said == f"{units(whole) - units(kept)} chars]"
    joined = whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert joined.startswith(kept)
    assert limit - 1 <= units(kept) <= limit


@each("limit", [0, -1])
def test_a_limit_is_above_zero(limit: int) -> None:
    with pytest.raises(InvalidValue, match="limit"):
        truncate_tool_result("a", limit)


def test_results_are_cut_after_they_became_text(home: Path) -> None:
    result = ["x" * LIMIT]
    writer(home).feed_many([call(), event("tool_execution_end", toolCallId="t1", result=result)])
    assert contents(home)[1][0]["content"] == '["' + "x" * (LIMIT - 2) + marker(4)


def test_errors_of_tools_are_cut_too(home: Path) -> None:
    writer(home).feed_many([call(), event("tool_execution_end", toolCallId="t1", error="x" * (LIMIT + 1), isError=True)])
    assert contents(home)[1][0]["content"] == "x" * LIMIT + marker(1)


def test_text_prompts_arguments_and_errors_are_never_cut(home: Path) -> None:
    long = "😀" * 100_000
    log = writer(home, initial_prompt=long, keep_thinking=True)
    log.feed(text(long))
    log.feed(message({"type": "thinking", "thinking": long}))
    log.feed(call(arguments={"content": long}))
    log.finalize(result=long)
    *messages, result = lines(home)
    prompt, said, thought, called = (line["message"]["content"] for line in messages)
    assert prompt == long
    assert said[0]["text"] == long
    assert thought[0]["thinking"] == long
    assert called[0]["input"] == {"content": long}
    assert result["result"] == long
