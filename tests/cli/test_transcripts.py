"""`persist transcripts`: sessions, their files, and which one is meant."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from persist import Store
from persist.testing import FrozenClock

pytestmark = pytest.mark.one_database

Command = Callable[..., Result]
SLUG = "-home-me"
ENTRIES: list[dict[str, Any]] = [
    {"type": "user", "uuid": "a", "message": {"role": "user", "content": "Hi \x1b[31m"}},
    {"type": "assistant", "uuid": "b", "message": {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}},
    {"type": "custom-title", "customTitle": "t"},
]


@pytest.fixture
def stored(database_url: str, clock: FrozenClock) -> str:
    """Two sessions; another project has one of them, too."""
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        append = tx.transcripts.entries.append
        append(SLUG, "one", ENTRIES)
        append(SLUG, "one", ENTRIES[:1], subpath="subagents/agent-1")
        append(SLUG, "two", ENTRIES[:1])
        append("-home-you", "two", ENTRIES[:1])
    return database_url


def test_ls_and_show(command: Command, stored: str) -> None:
    assert sorted(command("transcripts", "ls", "-q").stdout.split()) == ["one", "two", "two"]
    assert command("transcripts", "ls", "-q", "--project", "-home-you").stdout == "two\n"
    listed = json.loads(command("transcripts", "ls", "--json", "--limit", "2").stdout)
    assert len(listed["items"]) == 2
    assert len(json.loads(command("transcripts", "ls", "--json", "--after", listed["cursor"]).stdout)["items"]) == 1
    shown = command("transcripts", "show", "one").stdout
    assert "subagents/agent-1" in shown
    assert "Hello." in shown
    assert "\x1b[31m" not in shown
    assert command("transcripts", "show", "one", "-q").stdout == command("show", "one", "-q").stdout
    found = json.loads(command("transcripts", "show", "one", "--json", "--limit", "2").stdout)
    assert found["entries"] == ENTRIES[1:]
    assert found["subpaths"] == ["subagents/agent-1"]
    part = json.loads(
        command("transcripts", "show", found["transcript"]["id"], "--json", "--subpath", "subagents/agent-1").stdout
    )
    assert part["entries"] == ENTRIES[:1]


def test_which_one_is_meant(command: Command, stored: str, tmp_path: Path) -> None:
    for arguments in (("transcripts", "show", "two"), ("show", "two"), ("transcripts", "write", "two", "--home", str(tmp_path))):
        result = command(*arguments)
        assert result.exit_code == 2
        assert "--project" in result.stderr
    assert json.loads(command("transcripts", "show", "two", "--project", "-home-you", "--json").stdout)["entries"] == ENTRIES[:1]
    nobody = command("transcripts", "show", "nobody")
    assert (nobody.exit_code, nobody.stderr) == (1, "Error: There is no transcript 'nobody'.\n")
    file = str(tmp_path / "x.jsonl")
    assert "names several: trn_" in command("export", file, "--session", "two").stderr
    assert command("export", file, "--session", "one", "-q").exit_code == 0
    lines = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    assert [line["table"] for line in lines if "table" in line] == ["transcript_sessions", *["transcript_entries"] * 4]


def test_files_and_back(command: Command, stored: str, tmp_path: Path) -> None:
    written = command("transcripts", "write", "one", "--home", str(tmp_path)).stdout.splitlines()
    log = tmp_path / "projects" / SLUG / "one.jsonl"
    assert written == [str(log), str(log.with_suffix("") / "subagents" / "agent-1.jsonl")]
    assert [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] == ENTRIES
    again = command("transcripts", "write", "one", "--home", str(tmp_path))
    assert (again.exit_code, again.stdout) == (1, "")
    assert "is there already" in again.stderr
    assert command("transcripts", "write", "one", "--home", str(tmp_path), "--force", "-q").output == ""
    with log.open("a", encoding="utf-8") as file:
        file.write('{"type": "tag"}\n{"type": "to')
    said = command("transcripts", "import", "--home", str(tmp_path)).stdout
    assert said == "1 new entries of 1 sessions; 1 broken lines were skipped\n"
    counts = json.loads(command("transcripts", "import", "one", "--home", str(tmp_path), "--as", "tenant", "--json").stdout)
    assert counts == {"sessions": 1, "entries": 5, "skipped": 1}
    assert command("transcripts", "ls", "-q", "--project", "tenant").stdout == "one\n"
    missing = command("transcripts", "import", "nobody", "--home", str(tmp_path))
    assert (missing.exit_code, missing.stderr) == (1, "Error: There is no session log 'nobody'.\n")
    assert command("transcripts", "import", "one").exit_code == 2
