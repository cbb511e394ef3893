"""What the session store refuses: arguments of wrong kinds; and its example."""

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeSDKError
from click.testing import CliRunner

from persist import AsyncStore, Store
from persist.cli import main
from persist.errors import InvalidValue, PersistError
from persist.integrations.claude_agent_sdk import InvalidEntry, PersistSessionStore
from persist.schema.migrate import upgrade
from tests.integrations.claude_agent_sdk.worker import KEY
from tests.integrations.kits import Do
from tests.integrations.telling import SECRET, require_silence
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, require
from tests.subprocesses import ROOT


def test_arguments_of_a_wrong_kind(
    store: Store | AsyncStore, database_url: str, do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    do(PersistSessionStore(store).append(KEY, [{"type": "x"}]))
    local = tmp_path / "projects" / "p" / "s.jsonl"
    local.parent.mkdir(parents=True)
    local.write_text('{"type": "user", "uuid": "1", "sessionId": "s"}\n')
    valid: dict[str, dict[str, Any]] = {
        "append": {"key": KEY, "entries": [{"type": "user", "uuid": "1", "message": {"role": "user", "content": "hi"}}]},
        "load": {"key": KEY},
        "tail": {"key": KEY, "limit": 1},
        "list_sessions": {"project_key": "p"},
        "list_session_summaries": {"project_key": "p"},
        "list_subkeys": {"key": KEY},
        "import_session": {"session_id": "s", "home": str(tmp_path), "directory_key": "p", "project_key": "q"},
        "write_session": {"key": KEY, "home": tmp_path, "overwrite": True},
        "delete": {"key": {**KEY, "subpath": "a"}},
    }
    require_typed_errors(lambda: PersistSessionStore(store), valid, do=do, database_url=database_url, error=ClaudeSDKError)


@pytest.mark.parametrize("name", ["sub_path", "Subpath", 1, None], ids=repr)
def test_a_key_with_a_name_that_no_key_has_is_refused(sessions: Any, do: Do, name: Any) -> None:
    key = {**KEY, name: "subagents/agent-1"}
    for call in (sessions.append(key, [{"type": "x"}]), sessions.load(key), sessions.delete(key), sessions.list_subkeys(key)):
        with pytest.raises(InvalidEntry, match="only project_key, session_id, subpath"):
            do(call)
    assert do(sessions.load(KEY)) is None


@pytest.mark.parametrize("wrong", WRONG, ids=KINDS)
def test_what_is_no_store(wrong: Any) -> None:
    with pytest.raises(InvalidEntry, match="expected a Store or an AsyncStore"):
        PersistSessionStore(wrong)


# The example survives its kill, and the command line shows, writes and imports what it left.


SESSION = "6f0c1c3e-8f6a-4d55-9a52-0d1f5a9b7c11"


def run(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "examples" / "claude_agent_sdk_app.py"), "--url", url, *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)


def said(url: str, *arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments, "--url", url])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.long
def test_the_example_survives_its_kill(database_url: str, tmp_path: Path) -> None:
    upgrade(database_url)
    killed = run(database_url, "--crash-in", "Faro")
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "Lisbon is booked.\nPorto is booked.\n")
    resumed = run(database_url)
    assert (resumed.returncode, resumed.stdout) == (0, "Faro is booked.\n1 session with all of them\n")

    assert said(database_url, "ls", "transcripts", "-q") == f"{SESSION}\n"
    assert "Porto is booked." in said(database_url, "show", SESSION)
    written = Path(said(database_url, "transcripts", "write", SESSION, "--home", str(tmp_path)).strip())
    assert len(written.read_text(encoding="utf-8").splitlines()) == 6
    counts = json.loads(said(database_url, "transcripts", "import", "--home", str(tmp_path), "--json"))
    assert counts == {"sessions": 1, "entries": 0, "skipped": 0}
    file = tmp_path / "exported.jsonl"
    said(database_url, "export", str(file), "--session", SESSION)
    assert "transcript_entries" in file.read_text(encoding="utf-8")
    said(database_url, "prune", "transcripts", "--older-than", "0m", "--yes")
    assert said(database_url, "ls", "transcripts", "-q") == ""


# How often a session store of the Claude Agent SDK waits for an answer of Postgres.


ROWS = (
    Row("append", 2, goal=2),
    Row("append to a subpath", 2, goal=2),
    Row("delete", 2, goal=2),
    Row("list_session_summaries", 2, goal=1),
    Row("list_sessions", 2, goal=1),
    Row("list_subkeys", 2, goal=1),
    Row("load", 2, goal=1),
    Row("tail", 2, goal=1),
)
SUB: Any = {**KEY, "subpath": "subagents/agent-1"}
BATCH: Any = [{"type": "user", "uuid": str(number)} for number in range(50)] + [{"type": "tag", "tag": "t"}]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_method_keeps_its_bound(row: Row, meter: Meter, do: Do) -> None:
    with Store.open(meter.url) as store:
        sessions = PersistSessionStore(store)
        methods: dict[str, Callable[[], object]] = {
            "append": lambda: do(sessions.append(KEY, BATCH)),
            "append to a subpath": lambda: do(sessions.append(SUB, BATCH)),
            "delete": lambda: do(sessions.delete(KEY)),
            "list_session_summaries": lambda: do(sessions.list_session_summaries("p")),
            "list_sessions": lambda: do(sessions.list_sessions("p")),
            "list_subkeys": lambda: do(sessions.list_subkeys(KEY)),
            "load": lambda: do(sessions.load(KEY)),
            "tail": lambda: do(sessions.tail(KEY, 5)),
        }
        methods["append"]()
        methods["append to a subpath"]()
        require(complaint(row.name, row.bound, meter.flights(methods[row.name], bound=row.bound)))


# What is stored, or refused, stands in no error of a session store and not in the log.


UNREADABLE = (f'["{SECRET}",', json.dumps([SECRET]), json.dumps({"data": {SECRET: [SECRET]}, "created_at": SECRET}))


def test_entries_and_summaries_that_cannot_be_read_or_stored_are_not_told(
    sessions: Any, do: Do, execute: Callable[[str], int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    do(sessions.append(KEY, [{"type": "user", "uuid": "1"}]))
    for column in ("transcript_entries SET entry", "transcript_sessions SET summary"):
        for bad in UNREADABLE:
            assert execute(f"UPDATE {column} = '{bad}'") > 0
            calls = [sessions.load(KEY), sessions.list_session_summaries("p"), sessions.append(KEY, [{"type": "user"}])]
            for call in calls:
                try:
                    do(call)
                except PersistError as error:
                    require_silence(pytest.ExceptionInfo.from_exception(error))
    assert SECRET not in caplog.text
    with pytest.raises(InvalidValue) as caught:
        do(sessions.append(KEY, [{"type": "user", "said": {SECRET, 1}}]))
    require_silence(caught, caplog)
