"""The pages of session logs, which are files, and what they tell while one grows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ui.visitor import Visitor

AT = "2026-03-01T12:00:00.000Z"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def looking(visit: Callable[..., Visitor], home: Path) -> Visitor:
    home.mkdir()
    return visit(session_logs=home)


def user(text: Any) -> dict[str, Any]:
    return {"type": "user", "timestamp": AT, "message": {"role": "user", "content": text}}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"type": "assistant", "timestamp": AT, "message": {"role": "assistant", "model": "m-1", "content": list(blocks)}}


def written(home: Path, *lines: Any, slug: str = "-work", session: str = "s1") -> Path:
    path = home / "projects" / slug / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return path


def test_without_a_folder_the_page_says_how_to_name_one(visitor: Visitor) -> None:
    shown = visitor.get("/logs")
    assert shown.status == 200
    assert "persist ui --session-logs FOLDER" in shown.main
    assert visitor.json("/logs")["items"] == []
    assert visitor.get("/logs/-work/s1").status == 404


def test_logs_are_listed_and_filtered_and_json_is_that_of_the_command(looking: Visitor, home: Path) -> None:
    assert "No session logs" in looking.get("/logs").main
    written(home, user("a"))
    written(home, user("b"), slug="-app", session="s2")
    assert "2 logs" in looking.get("/logs").main
    assert {one["session_id"] for one in looking.json("/logs")["items"]} == {"s1", "s2"}
    assert [one["session_id"] for one in looking.json("/logs", scope="chat")["items"]] == ["s2"]
    assert [one["session_id"] for one in looking.json("/logs", project="-work")["items"]] == ["s1"]
    assert looking.json("/logs", limit=1)["more"] == 1
    assert 'href="/logs/-app/s2"' in looking.get("/logs", session="s2").text
    assert looking.get("/logs", scope="none").status == 400


def test_a_list_has_pages(looking: Visitor, home: Path) -> None:
    for number in range(5):
        written(home, user("a"), session=f"s{number}")
    first = looking.get("/logs", limit=3)
    (after,) = [part.split('"')[0] for part in first.text.split("after=")[1:2]]
    second = looking.get(f"/logs?limit=3&after={after}")
    assert first.text.count("<tr>") + second.text.count("<tr>") == 5 + 2
    assert "next page" not in second.main


def test_a_log_is_shown_as_a_conversation(looking: Visitor, home: Path) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}
    result = user([{"type": "tool_result", "tool_use_id": "c1", "content": "README.md"}])
    ended = {"type": "result", "subtype": "success", "num_turns": 3, "total_cost_usd": 0.25, "timestamp": AT}
    thought = {"type": "thinking", "thinking": "They want files."}
    written(home, user("List **files**"), assistant(thought, {"type": "text", "text": "Here"}, call), "torn {", result, ended)
    shown = looking.get("/logs/-work/s1")
    assert "<strong>files</strong>" in shown.text
    for said in ("They want files.", "m-1", "Bash", "ls", "README.md", "success", "turns 3", "cost $0.2500"):
        assert said in shown.main
    assert "data-live-rows" in shown.text
    items = looking.json("/logs/-work/s1")["items"]
    assert [(one["index"], one["msg"]["role"]) for one in items] == [(0, "user"), (1, "assistant"), (2, "tool")]


def test_a_long_log_begins_at_its_end_and_has_parts(looking: Visitor, home: Path) -> None:
    written(home, *(user(f"word {number:03}.") for number in range(25)))
    end = looking.get("/logs/-work/s1", limit=10)
    assert "word 024." in end.main
    assert "word 014." not in end.main
    assert "earlier" in end.main
    middle = looking.get("/logs/-work/s1", limit=10, before=16)
    assert "word 014." in middle.main
    assert "word 015." not in middle.main
    first = looking.get("/logs/-work/s1?limit=10&from=1")
    assert "word 000." in first.main
    assert "word 010." not in first.main
    assert "from=11" in first.text
    assert "data-live-rows" not in first.text
    page = looking.json("/logs/-work/s1", limit=20)
    rest = looking.json("/logs/-work/s1", limit=20, after=page["cursor"])
    assert [one["index"] for one in page["items"] + rest["items"]] == list(range(25))
    assert rest["cursor"] is None


def test_a_long_text_is_cut_and_has_an_address_of_its_own(looking: Visitor, home: Path) -> None:
    written(home, user("short"), user("x" * 20_000 + "the end"))
    assert "the end" not in looking.get("/logs/-work/s1").main
    assert "3,623 characters more" in looking.get("/logs/-work/s1").main
    whole = looking.get("/logs/-work/s1?limit=1&whole=1&from=2").main
    assert "the end" in whole
    assert "short" not in whole


@pytest.mark.parametrize("path", ["-work/none", "none/s1", "%2e%2e/s1", "-work/..%252Fs1", "-work/s%00", "-work/" + "x" * 300])
def test_a_log_that_is_not_there_is_named(looking: Visitor, home: Path, path: str) -> None:
    written(home, user("a"))
    written(home.parent, user("secret"), slug="..")
    answer = looking.get(f"/logs/{path}")
    assert answer.status == 404
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    "line",
    [
        user("<script>x</script><img src=x>"),
        user([{"type": "text", "text": {"a": 1}}, 3, None]),
        user({"a": ["<script>x"]}),
        assistant({"type": "tool_use", "id": {"a": 1}, "name": ["<img"], "input": "<script>x"}),
        {"role": "<img src=x>", "content": 3, "tool_calls": [3, {"function": {"arguments": "{"}}], "model": {}, "timestamp": 5},
        {"type": "result", "subtype": {}, "num_turns": "x", "total_cost_usd": True, "duration_ms": 1e308, "result": ["<img"]},
        {"type": "assistant", "error": {"a": "<img"}},
        {"type": ["user"], "message": 3},
        "[" * 5_000,
    ],
)
def test_what_other_programs_wrote_is_shown(looking: Visitor, home: Path, line: Any) -> None:
    written(home, user("before"), line, user("after"))
    shown = looking.get("/logs/-work/s1")
    assert shown.status == 200
    assert "before" in shown.main
    assert "after" in shown.main
    assert not any(tag in shown.text for tag in ("<script>x", "<img"))


def test_lines_come_in_while_somebody_looks(looking: Visitor, home: Path) -> None:
    written(home, user("seen"), user("missed"))
    (missed,) = looking.listen("/logs/-work/s1/live", after=1)
    assert (missed.event, missed.id, "missed" in missed.data, "seen" in missed.data) == ("rows", "2", True, False)
    (came,) = looking.listen("/logs/-work/s1/live", 1, lambda: written(home, user("<b>came")), after=2)
    assert (came.id, "&lt;b&gt;came" in came.data) == ("3", True)


def test_a_log_that_is_not_there_is_not_followed(looking: Visitor) -> None:
    assert looking.get("/logs/-work/none/live").status == 404
