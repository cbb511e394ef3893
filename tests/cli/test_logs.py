"""logs ls, show and tail: no database anywhere."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from persist.cli import main
from persist.cli.logs import logs
from persist.sessionlog import SessionLogWriter
from tests.markdown import ROOT

Run = Callable[..., Result]
# A process that was started in the background of a shell may ignore SIGINT, and its children with it; a terminal's does not.
_LISTENS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
PERSIST = [sys.executable, "-c", f"{_LISTENS}; from persist.cli import main; main(prog_name='persist')"]


def said(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}, {"type": "toolCall", "id": "t1", "name": "bash", "arguments": {"command": "ls"}}]
    message = {"role": "assistant", "content": content}
    return {"type": "message_end", "sessionId": "s1", "timestamp": "2026-06-15T11:00:00Z", "message": message}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two logs: one of a conversation with text that would take over a terminal, and one of chat that is empty."""
    log = SessionLogWriter(
        tmp_path,
        "-home-agent",
        initial_prompt="Do it\x1b[2J\nnow",
        model="m",
        clock=lambda: datetime(2026, 6, 15, 12, tzinfo=UTC),
    )
    log.feed(said("hello \x1b[31m\x00 \ud83d"))
    result = {"type": "tool_execution_end", "toolCallId": "t1", "result": "x" * 1000}
    log.feed({"sessionId": "s1", "timestamp": "2026-06-15T11:00:01Z"} | result)
    log.finalize(api_error="quota \x9b")
    assert log.path is not None
    os.utime(log.path, (1_000, 1_000))
    chat = tmp_path / "projects" / "-app" / "s0.jsonl"
    chat.parent.mkdir()
    chat.touch()
    os.utime(chat, (2_000, 2_000))
    return tmp_path


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("ls", …)` with the home from the environment, and no database."""
    monkeypatch.delenv("PERSIST_DATABASE_URL", raising=False)
    monkeypatch.setenv("PERSIST_LOG_HOME", str(home))
    return lambda *args, **options: CliRunner().invoke(main, ["logs", *args], **options)


def test_ls_shows_the_last_written_first(run: Run) -> None:
    result = run("ls")
    assert result.exit_code == 0
    head, first, second = result.stdout.splitlines()
    assert head.split() == ["SESSION", "PROJECT", "STARTED", "(UTC)", "WRITTEN", "(UTC)", "BYTES"]
    assert first.split() == ["s0", "-app", "1970-01-01", "00:33:20", "1970-01-01", "00:33:20", "0"]
    assert second.split()[:6] == ["s1", "-home-agent", "2026-06-15", "11:00:00", "1970-01-01", "00:16:40"]


def test_ls_filters(run: Run) -> None:
    assert run("ls", "-q").stdout == "s0\ns1\n"
    assert run("ls", "-q", "--scope", "sandbox").stdout == "s1\n"
    assert run("ls", "-q", "--scope", "chat").stdout == "s0\n"
    assert run("ls", "-q", "--project", "-home-agent").stdout == "s1\n"
    result = run("ls", "--limit", "1")
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr == "There are 1 more: add --limit 2\n"
    assert run("ls", "--limit", "0").exit_code == 2
    assert run("ls", "--scope", "app").exit_code == 2


def test_ls_json(run: Run, home: Path) -> None:
    found = json.loads(run("ls", "--json", "--limit", "1").stdout)
    assert found == {
        "items": [
            {
                "session_id": "s0",
                "project_slug": "-app",
                "path": str(home / "projects" / "-app" / "s0.jsonl"),
                "started_at": "1970-01-01T00:33:20+00:00",
                "modified_at": "1970-01-01T00:33:20+00:00",
                "size": 0,
            }
        ],
        "cursor": None,
        "more": 1,
    }


def test_ls_of_nothing(run: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = str(tmp_path_factory.mktemp("empty"))
    result = run("ls", "--home", empty)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No session logs.\n")
    assert json.loads(run("ls", "--home", empty, "--json").stdout) == {"items": [], "cursor": None, "more": 0}


def test_show_is_a_conversation_that_cannot_harm(run: Run, home: Path) -> None:
    result = run("show", "s1")
    assert result.exit_code == 0
    assert not any(character in result.stdout for character in "\x1b\x00\x9b")
    header, user, assistant, tool, system = result.stdout.split("\n\n")
    fields = dict(line.split(maxsplit=1) for line in header.splitlines())
    assert fields["session"] == "s1"
    assert fields["project"] == "-home-agent"
    assert fields["file"] == str(home / "projects" / "-home-agent" / "s1.jsonl")
    assert fields["started"] == "2026-06-15 11:00:00 UTC"
    assert user.splitlines() == ["user  2026-06-15T11:00:00.000Z", "  Do it\\x1b[2J", "  now"]
    assert assistant.splitlines() == [
        "assistant  2026-06-15T11:00:00.000Z",
        "  hello \\x1b[31m\\x00 \\ud83d",
        "  tool bash  t1",
        '    input   {"command":"ls"}',
    ]
    assert tool.splitlines() == ["tool  2026-06-15T11:00:01.000Z  t1", f"  {'x' * 300}… (1,000 characters)"]
    assert system.splitlines() == ["system  2026-06-15T12:00:00.000Z", "  quota \\x9b"]
    assert "file" not in run("show", "s1", "-q").stdout


def test_show_of_lines_that_others_wrote(run: Run, home: Path) -> None:
    path = home / "projects" / "-home-agent" / "s2.jsonl"
    lines: list[Any] = [
        {"role": "user", "content": [{"type": "image"}], "timestamp": 5},
        {"role": "assistant", "tool_calls": "none", "reasoning": {"a": "\x1b"}},
        {"role": "assistant", "tool_calls": [5, {"function": {}}, {"function": None}]},
        {"role": "tool"},
        {"role": "\x1b[0m", "content": None},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, "torn"]), encoding="utf-8")
    result = run("show", "s2", "-q")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    assert '  [{"type":"image"}]' in result.stdout
    assert "  tool 5" in result.stdout
    assert '  > {"a":"\\u001b"}' in result.stdout
    assert "\\x1b[0m" in result.stdout


def test_show_json_is_everything_one_message_on_each_line(run: Run) -> None:
    result = run("show", "s1", "--json")
    messages = [json.loads(line) for line in result.stdout.splitlines()]
    assert [message["index"] for message in messages] == [0, 1, 2, 3]
    assert [message["msg"]["role"] for message in messages] == ["user", "assistant", "tool", "system"]
    assert messages[1]["msg"]["content"] == "hello \x1b[31m\x00 \ud83d"
    assert messages[2]["msg"]["content"] == "x" * 1000
    assert "\x9b" not in result.stdout


def test_tail_until_the_result(run: Run) -> None:
    result = run("tail", "s1", "--until-result")
    assert result.exit_code == 0
    assert "  tool bash  t1" in result.stdout
    assert "\x1b" not in result.stdout
    lines = [json.loads(line) for line in run("tail", "s1", "--until-result", "--json").stdout.splitlines()]
    assert [line["index"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line["msg"]["type"] for line in lines] == ["user", "assistant", "user", "assistant", "result"]
    late = run("tail", "s1", "--until-result", "--json", "--since", "3", "--poll", "0.01")
    assert [json.loads(line)["index"] for line in late.stdout.splitlines()] == [3, 4]


def test_tail_waits_for_lines_and_for_the_log_itself(home: Path) -> None:
    command = [*PERSIST, "logs", "tail", "s9", "--home", str(home), "--project", "-new", "--json", "--poll", "0.01"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        with SessionLogWriter(home, "-new", initial_prompt="é") as log:
            log.feed({"type": "turn_start", "sessionId": "s9"})
            assert json.loads(process.stdout.readline())["msg"]["message"]["content"] == "é"
            log.finalize()
            assert json.loads(process.stdout.readline())["index"] == 1
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(30)
    assert (process.returncode, out, err) == (130, b"", b"Interrupted.\n")


@pytest.mark.parametrize("command", ["show", "tail"])
def test_a_session_without_a_log(run: Run, command: str) -> None:
    result = run(command, "nobody")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: There is no session log 'nobody'.\n"


@pytest.mark.parametrize("command", ["show", "tail"])
def test_a_session_in_two_projects(run: Run, home: Path, command: str) -> None:
    (home / "projects" / "-app" / "s1.jsonl").write_text('{"type":"result"}\n', encoding="utf-8")
    result = run(command, "s1")
    assert result.exit_code == 1
    assert "-app, -home-agent" in result.stderr
    extra = ["--until-result"] if command == "tail" else []
    assert run(command, "s1", "--project", "-app", *extra).exit_code == 0


@pytest.mark.parametrize("args", [("ls",), ("show", "s1"), ("tail", "s1")])
def test_the_home_must_be_named_and_there(
    run: Run, tmp_path: Path, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for missing in (tmp_path / "none", tmp_path / "projects" / "-app" / "s0.jsonl"):
        result = run(*args, "--home", str(missing))
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == f"Error: There is no folder '{missing}'.\n"
    monkeypatch.delenv("PERSIST_LOG_HOME")
    result = run(*args)
    assert result.exit_code == 2
    assert "PERSIST_LOG_HOME" in result.stderr


def test_help_names_every_command() -> None:
    listed = CliRunner().invoke(main, ["logs", "-h"])
    assert listed.exit_code == 0
    assert sorted(logs.commands) == ["ls", "show", "tail"]
    for name, command in logs.commands.items():
        assert isinstance(command, click.Command)
        assert str(command.short_help) in listed.stdout
        shown = CliRunner().invoke(main, ["logs", name, "-h"])
        assert shown.exit_code == 0
        for option in ("--home", "--project", "--json", "-h, --help"):
            assert option in shown.stdout
