"""Which line every event becomes."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.sessionlog import (
    LogMessage,
    SessionLogWriter,
    is_safe_project_slug,
    normalize_session_id,
    read_session_log,
    slug_for_cwd,
    tail_session_log,
    truncate_tool_result,
)
from tests.cases import each
from tests.sessionlog.scenes import AT_TEXT, call, contents, event, fresh, lines, log_path, message, text, writer


def test_the_prompt_comes_before_the_first_later_event_even_one_that_writes_nothing(home: Path) -> None:
    writer(home, initial_prompt="Do it").feed_many([{"type": "session", "id": "s1"}, event("turn_start")])
    assert lines(home) == [
        {"type": "user", "message": {"role": "user", "content": "Do it"}, "timestamp": AT_TEXT, "sessionId": "s1"}
    ]


def test_without_a_session_event_the_first_session_id_opens(home: Path) -> None:
    log = writer(home, initial_prompt="Do it")
    log.feed(event("turn_start"))
    assert (log.session_id, log.path) == ("s1", log_path(home))
    assert contents(home) == ["Do it"]


def test_events_without_a_session_id_write_nothing(home: Path) -> None:
    log = writer(home, initial_prompt="Do it")
    log.feed({"type": "session", "id": "s1"})
    for session in (None, "", 5, ["s1"]):
        log.feed(text("lost", session=session))
    assert not log_path(home).exists()
    assert not log.failed


def test_a_line_carries_the_session_id_of_its_event(home: Path) -> None:
    log = writer(home)
    log.feed({"type": "session", "id": "s1"})
    log.feed(text("from a child", session="s2"))
    assert [line["sessionId"] for line in lines(home, "s1")] == ["s2"]
    assert not log_path(home, "s2").exists()


def test_another_session_event_goes_on_in_another_file_without_the_prompt(home: Path) -> None:
    log = writer(home, initial_prompt="Do it")
    log.feed_many([text("one"), {"type": "session", "id": "s2"}, text("two", session="s2"), {"type": "session", "id": "s1"}])
    log.feed(text("three"))
    assert contents(home, "s1") == ["Do it", [{"type": "text", "text": "one"}], [{"type": "text", "text": "three"}]]
    assert contents(home, "s2") == [[{"type": "text", "text": "two"}]]


def test_a_message_keeps_texts_and_calls_in_order(home: Path) -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": ""},
        {"type": "toolCall", "id": "t1", "name": "bash"},
        {"type": "toolCall", "id": "t2", "name": "read", "arguments": {"path": "é"}},
        {"type": "image", "data": "…"},
        {"type": "text", "text": "done"},
    ]
    writer(home, model="p/m").feed(message(*blocks))
    assert lines(home) == [
        {
            "type": "assistant",
            "message": {
                "role": "assistant",
                "model": "p/m",
                "content": [
                    {"type": "text", "text": ""},
                    {"type": "tool_use", "id": "t1", "name": "bash", "input": {}},
                    {"type": "tool_use", "id": "t2", "name": "read", "input": {"path": "é"}},
                    {"type": "text", "text": "done"},
                ],
            },
            "timestamp": AT_TEXT,
            "sessionId": "s1",
        }
    ]


def test_thinking_is_kept_on_request_unless_it_is_empty(home: Path) -> None:
    blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "thinking", "thinking": ""}]
    writer(home, keep_thinking=True).feed_many([message(*blocks), message(blocks[1])])
    assert contents(home) == [[{"type": "thinking", "thinking": "hm"}]]


@each(
    "block",
    [
        {"type": "thinking", "thinking": "hm"},
        {"type": "toolCall", "name": "bash"},
        {"type": "toolCall", "id": "t1"},
        {"type": "toolCall", "id": "", "name": "bash"},
        {"type": "toolCall", "id": "t1", "name": ""},
        {"type": "toolCall", "id": 1, "name": "bash"},
        {"type": "text"},
        {"type": "text", "text": None},
        {"type": "text", "text": ["a"]},
        {},
        None,
        "text",
    ],
)
def test_a_message_with_nothing_left_is_no_line(home: Path, block: Any) -> None:
    writer(home).feed(message(block))
    assert not log_path(home).exists()


def test_only_messages_of_the_assistant_are_written(home: Path) -> None:
    block = {"type": "text", "text": "a"}
    log = writer(home)
    strangers: list[Any] = [{"role": "user", "content": [block]}, {"content": [block]}, {"role": "assistant", "content": "a"}]
    for given in [*strangers, None, [], "a"]:
        log.feed(event("message_end", message=given))
    log.feed(event("message_end"))
    assert not log_path(home).exists()
    assert not log.failed


def test_usage_is_written_when_one_of_its_numbers_is_not_zero(home: Path) -> None:
    block = {"type": "text", "text": "a"}
    given: list[Any] = [
        {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 10},
        {"cacheRead": 5, "input": None, "output": "7", "cacheWrite": True},
        {"input": 0, "output": 0},
        {"input": float("nan"), "output": float("inf"), "total": 9},
        {"input": 10**400},
        "12",
        None,
    ]
    writer(home).feed_many(message(block, usage=usage) for usage in given)
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert [line["message"].get("usage") for line in lines(home)] == [
        dict(zip(names, (1, 2, 3, 4), strict=True)),
        dict(zip(names, (0, 0, 5, 0), strict=True)),
        None,
        None,
        dict(zip(names, (10**400, 0, 0, 0), strict=True)),
        None,
        None,
    ]


@each(
    ("given", "content"),
    [
        ({"result": "r", "output": "o", "error": "e"}, "r"),
        ({"result": None, "output": "o", "error": "e"}, "o"),
        ({"error": "e"}, "e"),
        ({"result": None, "output": None, "error": None}, ""),
        ({}, ""),
        ({"result": ""}, ""),
        ({"result": 0}, "0"),
        ({"result": False}, "false"),
        ({"result": {"a": [1, 2.5, "é"], "b": None}}, '{"a":[1,2.5,"é"],"b":null}'),
        ({"result": []}, "[]"),
        ({"result": "a", "isError": True}, "a"),
    ],
)
def test_the_content_of_a_tool_result(home: Path, given: dict[str, Any], content: str) -> None:
    home = fresh(home)
    writer(home).feed_many([call(), event("tool_execution_end", toolCallId="t1", **given)])
    assert lines(home)[1]["message"]["role"] == "user"
    block = {"type": "tool_result", "tool_use_id": "t1", "content": content}
    assert contents(home)[1] == [block | {"is_error": True} if given.get("isError") else block]


@each("flag", [False, None, 1, "true", {}])
def test_a_result_is_an_error_only_when_it_says_true(home: Path, flag: Any) -> None:
    writer(home).feed_many([call(), event("tool_execution_end", toolCallId="t1", result="a", isError=flag)])
    assert "is_error" not in contents(home)[1][0]


def test_the_id_of_a_result_may_be_its_own(home: Path) -> None:
    writer(home).feed_many([call(), event("tool_execution_end", id="t1", toolCallId=None, result="a")])
    assert contents(home)[1][0]["tool_use_id"] == "t1"


@each("ids", [{}, {"toolCallId": "t2"}, {"toolCallId": ""}, {"toolCallId": 1}, {"toolCallId": ["t1"]}])
def test_a_result_without_its_call_is_left_out(home: Path, ids: dict[str, Any]) -> None:
    home = fresh(home)
    writer(home).feed_many([call(), call(id=None), event("tool_execution_end", result="a", **ids)])
    assert len(lines(home)) == 1


def test_a_call_of_another_writer_does_not_count(home: Path) -> None:
    writer(home).feed(call())
    writer(home).feed(event("tool_execution_end", toolCallId="t1", result="a"))
    assert len(lines(home)) == 1


@each(
    ("error", "said"),
    [
        ({"message": "boom", "name": "Err"}, "boom"),
        ({"message": None, "name": "Err"}, "Err"),
        ({"message": ""}, ""),
        ({"message": {"code": 5}}, '{"code":5}'),
        ({}, "fatal error"),
        (None, "fatal error"),
        ([], "fatal error"),
    ],
)
def test_fatal_errors(home: Path, error: Any, said: str) -> None:
    home = fresh(home)
    writer(home).feed(event("fatal_error", error=error))
    assert lines(home) == [
        {"type": "assistant", "isApiErrorMessage": True, "error": said, "timestamp": AT_TEXT, "sessionId": "s1"}
    ]


def test_an_extension_status_is_a_system_line_with_what_it_says(home: Path) -> None:
    log = writer(home)
    log.feed(event("extension_status", extension="github", status="active", toolCount=4, reason=None, secret="x"))
    log.feed(event("extension_status", status="active"))
    log.feed(event("extension_status", extension=None, status="active"))
    assert lines(home) == [
        {
            "type": "system",
            "subtype": "extension_status",
            "extension": "github",
            "status": "active",
            "toolCount": 4,
            "reason": None,
            "timestamp": AT_TEXT,
            "sessionId": "s1",
        }
    ]


@each("type", ["usage_snapshot", "turn_end", "session_end", "", None, 5, ["message_end"], {"a": 1}])
def test_other_events_write_nothing(home: Path, type: Any) -> None:
    log = writer(home)
    log.feed(event(type, cost=1, message={"role": "assistant", "content": [{"type": "text", "text": "a"}]}))
    assert not log_path(home).exists()
    assert not log.failed


HERE = Path(__file__).parent
WRITER: dict[str, Any] = json.loads((HERE / "session-log-writer.json").read_text(encoding="utf-8"))
READER: dict[str, Any] = json.loads((HERE / "session-log-reader.json").read_text(encoding="utf-8"))

TOTALS = {
    "finalText": "result",
    "turns": "num_turns",
    "costUsd": "total_cost_usd",
    "inputTokens": "total_input_tokens",
    "outputTokens": "total_output_tokens",
    "cacheReadInputTokens": "total_cache_read_input_tokens",
    "cacheCreationInputTokens": "total_cache_creation_input_tokens",
    "stopReason": "subtype",
    "durationMs": "duration_ms",
}


def writer_cases() -> Iterator[Any]:
    for case in WRITER["cases"]:
        for key, keep_thinking in (("expected", False), ("expected_seed", False), ("expected_today", True)):
            if key in case:
                yield pytest.param(case, case[key], keep_thinking, id=f"{case['name']}-{key}")


def run(home: Path, case: dict[str, Any], ops: list[Any], keep_thinking: bool) -> list[Any]:
    """Make a writer and do the calls; returns what the fallbacks returned."""
    options = case["options"]
    writer = SessionLogWriter(
        home,
        options["projectSlug"],
        initial_prompt=options["initialPrompt"],
        model=options["model"],
        keep_thinking=keep_thinking,
        clock=lambda: datetime.fromisoformat(WRITER["clock"]),
    )
    returned: list[Any] = []
    for verb, given, *rest in ops:
        if verb == "feed":
            writer.feed(given)
            continue
        totals = {TOTALS[name]: value for name, value in given.items()}
        if verb == "finalize":
            writer.finalize(**totals)
        else:
            assert verb == "finalizeWithFallback"
            session_id, error = rest
            returned.append(writer.finalize_with_fallback(session_id, error=error, **totals))
    writer.close()
    return returned


@each(("case", "expected", "keep_thinking"), list(writer_cases()))
def test_writer(case: dict[str, Any], expected: dict[str, Any], keep_thinking: bool, tmp_path: Path) -> None:
    tmp_path = fresh(tmp_path)
    returned = run(tmp_path, case, case["ops"], keep_thinking)
    if "resumeOps" in case:
        run(tmp_path, case, case["resumeOps"], keep_thinking)
    files = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    # as text, since the order of keys counts too
    wanted = {name: "".join(as_written(line) for line in lines) for name, lines in expected["files"].items()}
    assert {name: content.decode() for name, content in files.items()} == wanted
    assert returned == expected.get("returns", [])
    if "raw_text" in case:
        assert list(wanted.values()) == [case["raw_text"]]


def as_written(line: Any) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"


@each(("cwd", "slug"), WRITER["slug_for_cwd"])
def test_slug_for_cwd(cwd: str, slug: str) -> None:
    assert slug_for_cwd(cwd) == slug


@each(("session_id", "normal"), WRITER["normalize_session_id"])
def test_normalize_session_id(session_id: str, normal: str | None) -> None:
    assert normalize_session_id(session_id) == normal


@each(("slug", "safe"), WRITER["project_slug_is_safe"])
def test_project_slug_is_safe(slug: str, safe: bool, tmp_path: Path) -> None:
    assert is_safe_project_slug(slug) == safe
    if not safe:
        with pytest.raises(InvalidValue):
            SessionLogWriter(tmp_path, slug)


@each(("text", "limit", "cut"), WRITER["truncate"])
def test_truncate(text: str, limit: int, cut: str) -> None:
    assert truncate_tool_result(text, limit) == cut


@each("case", READER["reader"], ids=lambda case: case["name"])
def test_reader(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(case["text"].encode())
    assert read_session_log(path) == [LogMessage(**message) for message in case["messages"]]


@each("name", READER["tails"])
def test_tail(name: str, tmp_path: Path) -> None:
    tmp_path = fresh(tmp_path)
    tmp_path.mkdir()
    case = READER["tails"][name]
    path = tmp_path / "log.jsonl"
    if case["start"] is not None:
        path.write_bytes(case["start"].encode())
    tail = tail_session_log(path, since_index=case.get("sinceIndex", -1) + 1, poll=0.001)
    batches = [next(tail)]
    for write in case["writes"]:
        if isinstance(write, dict):
            path.write_bytes(write["truncate"].encode())
        else:
            with path.open("ab") as file:
                file.write(write.encode())
        batches.append(next(tail))
    assert batches == [[LogMessage(**message) for message in batch] for batch in case["want_batches"]]
