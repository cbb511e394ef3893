"""Sessions from local files and back: an imported session and a mirrored one are one thing."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from persist.errors import Conflict, NotFound
from persist.integrations.claude_agent_sdk import InvalidEntry
from persist.sessionlog import read_session_log
from tests.integrations.kits import Do

SESSION, SLUG = "ses-1", "-home-me"
KEY: Any = {"project_key": SLUG, "session_id": SESSION}
AGENT = "subagents/run/agent-1"
LINES: list[Any] = [
    {
        "type": "user",
        "uuid": "a",
        "message": {"role": "user", "content": "Hi \ud83d\x00"},
        "timestamp": "2026-01-01T00:00:00.000Z",
    },
    {"type": "custom-title", "customTitle": "t"},
    {"z": 1, "type": "x", "uuid": "b", "n": [10**30, math.inf, 0.1]},
    {"type": "attachment", "uuid": "c", "attachment": {"hookName": "SessionStart:startup"}},
    {"type": "attachment", "uuid": "c", "attachment": {"hookName": "SessionStart:resume"}},
    {"type": "custom-title", "customTitle": "t"},
]
PART: list[Any] = [{"type": "user", "uuid": "a"}, {"type": "mode"}]


def write(home: Path, lines: list[Any], part: list[Any], metadata: Any = None) -> None:
    log = home / "projects" / SLUG / f"{SESSION}.jsonl"
    below = home / "projects" / SLUG / SESSION / f"{AGENT}.jsonl"
    below.parent.mkdir(parents=True, exist_ok=True)
    for path, entries in ((log, lines), (below, part)):
        path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries), encoding="utf-8")
    if metadata is not None:
        below.with_name("agent-1.meta.json").write_text(json.dumps(metadata), encoding="utf-8")


def loaded(sessions: Any, do: Do, subpath: str | None = None) -> Any:
    return do(sessions.load({**KEY, "subpath": subpath}))


def test_an_import_adds_what_is_missing(sessions: Any, do: Do, tmp_path: Path) -> None:
    write(tmp_path, LINES, PART, {"agentType": "explore", "type": "shadowed"})
    assert do(sessions.import_session(SESSION, home=tmp_path)) == len(LINES) + len(PART) + 1
    assert do(sessions.import_session(SESSION, home=tmp_path)) == 0
    assert loaded(sessions, do) == LINES
    assert loaded(sessions, do, AGENT) == [*PART, {"type": "agent_metadata", "agentType": "explore"}]
    (summary,) = do(sessions.list_session_summaries(SLUG))
    assert summary["data"]["custom_title"] == "t"
    write(tmp_path, [*LINES, {"type": "custom-title", "customTitle": "u"}], PART, {"agentType": "plan"})
    assert do(sessions.import_session(SESSION, home=tmp_path)) == 2
    write(tmp_path, LINES, PART, {"agentType": "explore"})
    assert do(sessions.import_session(SESSION, home=tmp_path)) == 1
    assert loaded(sessions, do, AGENT)[-1] == {"type": "agent_metadata", "agentType": "explore"}


@pytest.mark.parametrize("mirrored", range(len(LINES) + 1))
def test_beside_a_mirrored_copy_it_adds_nothing_twice(sessions: Any, do: Do, tmp_path: Path, mirrored: int) -> None:
    write(tmp_path, LINES, PART)
    do(sessions.append(KEY, LINES[:mirrored]))
    do(sessions.append({**KEY, "subpath": AGENT}, PART))
    assert do(sessions.import_session(SESSION, home=tmp_path)) == len(LINES) - mirrored
    assert loaded(sessions, do) == LINES
    do(sessions.append(KEY, [LINES[0], {"type": "tag", "tag": "x"}]))
    assert do(sessions.import_session(SESSION, home=tmp_path)) == 0
    assert loaded(sessions, do) == [*LINES, {"type": "tag", "tag": "x"}]


def test_torn_lines_are_left_out_and_other_projects_are_apart(sessions: Any, do: Do, tmp_path: Path) -> None:
    write(tmp_path, LINES, [])
    log = tmp_path / "projects" / SLUG / f"{SESSION}.jsonl"
    with log.open("ab") as file:
        file.write(b'\n[1]\n\xff\n{"type": "torn')
    other = tmp_path / "projects" / "-home-you" / f"{SESSION}.jsonl"
    other.parent.mkdir()
    other.write_text('{"type": "theirs"}', encoding="utf-8")
    with pytest.raises(Conflict, match="name one"):
        do(sessions.import_session(SESSION, home=tmp_path))
    assert do(sessions.import_session(SESSION, home=tmp_path, directory_key=SLUG, project_key="tenant")) == len(LINES)
    assert do(sessions.load({**KEY, "project_key": "tenant"})) == LINES
    assert loaded(sessions, do) is None
    assert do(sessions.import_session(SESSION, home=tmp_path, directory_key="-home-you")) == 1
    with pytest.raises(NotFound):
        do(sessions.import_session("nobody", home=tmp_path))


def test_a_session_is_written_as_the_files_it_came_from(sessions: Any, do: Do, tmp_path: Path) -> None:
    do(sessions.append(KEY, LINES))
    do(sessions.append({**KEY, "subpath": AGENT}, [*PART, {"type": "agent_metadata", "agentType": "explore"}]))
    paths = do(sessions.write_session(KEY, home=tmp_path))
    folder = tmp_path / "projects" / SLUG
    assert paths == [folder / f"{SESSION}.jsonl", folder / SESSION / f"{AGENT}.jsonl", folder / SESSION / f"{AGENT}.meta.json"]
    assert [json.loads(line) for line in paths[0].read_text(encoding="utf-8").splitlines()] == LINES
    assert json.loads(paths[2].read_text(encoding="utf-8")) == {"agentType": "explore"}
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert [found.msg["role"] for found in read_session_log(paths[0])] == ["user"]
    assert do(sessions.import_session(SESSION, home=tmp_path)) == 0
    with pytest.raises(Conflict, match="is there already"):
        do(sessions.write_session(KEY, home=tmp_path))
    do(sessions.append(KEY, [{"type": "tag", "uuid": "d"}]))
    do(sessions.write_session(KEY, home=tmp_path, overwrite=True))
    do(sessions.delete(KEY))
    assert do(sessions.import_session(SESSION, home=tmp_path)) == len(LINES) + len(PART) + 2
    with pytest.raises(NotFound):
        do(sessions.write_session({**KEY, "session_id": "nobody"}, home=tmp_path))


@pytest.mark.parametrize("subpath", ["../../../x", "/x", "a/../../x", "a\\..\\x", "C:x", "a//x", "."])
def test_nothing_is_written_outside_of_the_session(sessions: Any, do: Do, tmp_path: Path, subpath: str) -> None:
    do(sessions.append({**KEY, "subpath": subpath}, [{"type": "x"}]))
    with pytest.raises(InvalidEntry, match="no path below"):
        do(sessions.write_session(KEY, home=tmp_path))
    assert list(tmp_path.rglob("*.jsonl")) == []


@pytest.mark.parametrize("name", [{"project_key": "a/b"}, {"project_key": ".."}, {"session_id": "../x"}], ids=str)
def test_names_that_are_no_files_are_refused(sessions: Any, do: Do, tmp_path: Path, name: Any) -> None:
    do(sessions.append({**KEY, **name}, [{"type": "x"}]))
    with pytest.raises(InvalidEntry):
        do(sessions.write_session({**KEY, **name}, home=tmp_path))
