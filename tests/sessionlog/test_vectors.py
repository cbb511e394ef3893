"""Every sample in the two JSON files beside this one."""

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
from tests.sessionlog.scenes import fresh

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
