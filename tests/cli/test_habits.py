"""What every command has in common: paths as databases, one shape of lists and of errors, words that were meant."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from persist import Store
from persist.cli import main
from persist.cli.database import place_of, to_age
from persist.cli.root import COMMANDS
from tests.cases import each
from tests.cli.conftest import Command
from tests.markdown import ROOT

pytestmark = pytest.mark.one_database

LISTS: list[tuple[str, ...]] = [
    *(("ls", domain) for domain in ("chat", "workflows")),
    *((group, "ls") for group in ("agent_tasks", "app_sessions", "approvals", "blobs", "checkpoints", "consumers")),
    *(
        (group, "ls")
        for group in ("budgets", "conversations", "events", "histories", "limits", "messaging", "overrides", "programs")
    ),
    *((group, "ls") for group in ("quarantine", "replay_streams", "runs", "schedules", "telemetry", "transcripts")),
    ("histories", "runs"),
    ("signals", "ls", "run_nobody"),
    *(("telemetry", what, "--instance", "box") for what in ("status", "tools", "links")),
    ("schedules", "fire"),
    ("doctor",),
    ("conversations", "doctor", "--dry-run"),
]


OF_NOTHING: dict[tuple[str, ...], str] = {
    ("approvals", "ls"): "Nothing waits for an answer.",
    ("ls", "chat"): "No sessions.",
    ("ls", "workflows"): "No runs.",
    ("runs", "ls"): "No runs.",
    **dict.fromkeys([("conversations", "ls"), ("messaging", "ls")], "No sessions."),
}
"""What some of them say where there is nothing to list."""
UNKNOWN: list[tuple[str, str]] = [
    *((f"approvals answer nobody {answer}", "approval") for answer in ("--approve", "--reject", "--reply x")),
    *((f"runs {verb} nobody", "workflow run") for verb in ("show", "cancel", "pause", "resume", "restart", "retry")),
    *((f"quarantine {verb} nobody", "row in quarantine") for verb in ("show", "restore")),
    ("conversations show nobody", "session"),
    ("messaging show nobody", "messaging session"),
    ("signals ls nobody", "workflow run"),
    ("signals send nobody paid", "workflow run"),
    ("show nobody", "session or run"),
]
"""Commands with an id that nothing has, and the kind of what there is not."""
ON_A_FILE = [
    *("ls", "show x", "current", "check", "stats", "doctor --fix", "watch --timeout 0", "record --session ses_x"),
    *("runs ls", "runs show x", "runs cancel x", "runs pause x", "runs resume x", "runs restart x"),
    *("approvals ls", "approvals answer x --approve", "prune chat --older-than 1d"),
    *("conversations ls", "conversations show x", "conversations prune", "conversations prune --dry-run", "conversations doctor"),
    *("events on", "events off", "events status", "events trim --keep 1"),
    *("telemetry status", "telemetry usage", "telemetry tools", "telemetry links"),
    *("backup copy.db", "checkpoint", "vacuum"),
]
"""Commands that make no file."""
OTHERS = ("chat", "key", "--rate", "1", "--json")


def run(*args: Any) -> Result:
    return CliRunner().invoke(main, list(map(str, args)), env={"PERSIST_DATABASE_URL": None, "PERSIST_SCHEMA_NAME": None})


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of one session, beside which the commands run."""
    monkeypatch.chdir(tmp_path)
    with Store.open(Path("state.db")) as store:
        store.chat.sessions.create(agent="build", model={})
    return tmp_path / "state.db"


def test_every_list_has_one_shape(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    for args in LISTS:
        if args in OF_NOTHING:
            result = command(*args)
            assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{OF_NOTHING[args]}\n"), args
        result = command(*args, "--json")
        assert result.exit_code == (1 if args[0] == "signals" else 0), (args, result.output)
        if result.exit_code == 0:
            found = json.loads(result.stdout)
            assert (found["items"], found["cursor"]) == ([], None), args


def every_command(group: click.Group, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        if isinstance(found, click.Group):
            yield from every_command(found, *names, name)
        elif found is not None:
            yield (*names, name), found


def test_every_command_ls_is_in_that_test() -> None:
    """A new list is looked at, too; those of logs and of tenants need no database, and have tests of their own."""
    lists = {names for names, _ in every_command(main) if "ls" in names} - {("ls",), ("logs", "ls"), ("tenants", "ls")}
    assert lists <= {args[:2] for args in LISTS}


@each(("line", "kind"), UNKNOWN)
def test_an_id_that_nothing_has_is_named(command: Command, line: str, kind: str) -> None:
    command("upgrade")
    result = command(*line.split())
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: There is no {kind} 'nobody'.\n")


@each("line", ON_A_FILE)
def test_a_missing_file_stays_missing(tmp_path: Path, line: str) -> None:
    result = run(*line.split(), "--url", f"sqlite:///{(tmp_path / 'none.db').as_posix()}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: There is no SQLite file ")
    assert list(tmp_path.iterdir()) == []
    unnamed = run(*line.split())
    assert unnamed.exit_code == 2
    assert "--url FILE" in unnamed.stderr
    assert "PERSIST_DATABASE_URL" in unnamed.stderr


def test_every_command_of_a_group_has_the_options_of_all() -> None:
    for names, command in every_command(main):
        if names[0] in ("approvals", "conversations", "messaging", "runs", "signals"):
            shown = run(*names, "-h").stdout
            assert all(option in shown for option in ("--url", "--schema", "--json", "-q, --quiet", "-h, --help")), names
            assert str(command.short_help) in run(*names[:-1], "-h").stdout


LONGEST_AGES: list[tuple[str, ...]] = [
    ("conversations", "doctor", "--hours"),
    ("conversations", "prune", "--keep-days"),
    ("events", "trim", "--older-than"),
    ("limits", "set", "key", "--rate", "1", "--per"),
    ("otel", "export", "--json", "--since"),
    ("prune", "chat", "--older-than"),
    ("usage", "--since"),
    ("usage", "--until"),
]


def test_an_age_beyond_the_calendar_is_an_age(command: Command, database_url: str) -> None:
    """Nothing is as old as that; no command ends with an error of the interpreter."""
    Store.open(database_url).close()
    for args in LONGEST_AGES:
        result = command(*args, "999999999" if args[0] == "conversations" else "999999999d")
        assert result.exception is None or isinstance(result.exception, SystemExit), (args, result.exception)
        assert "OverflowError" not in result.output, (args, result.output)


def test_every_command_with_an_age_is_in_that_test() -> None:
    found = {
        (*names, option)
        for names, command in every_command(main)
        for one in command.params
        if one.callback is to_age or one.name in ("hours", "keep_days")
        for option in one.opts
    }
    assert found == {(*(word for word in args[:-1] if word not in OTHERS), args[-1]) for args in LONGEST_AGES}


def test_a_path_is_a_database(file: Path) -> None:
    by_url = run("ls", "--url", f"sqlite:///{file.as_posix()}")
    assert len(by_url.stdout.splitlines()) == 2
    for args in (
        ("ls", "state.db"),
        ("ls", "./state.db", "chat"),
        ("ls", "chat", str(file)),
        ("ls", "--url", "state.db"),
        ("ls", f"sqlite:///{file.as_posix()}"),
    ):
        assert run(*args).stdout == by_url.stdout, args
    for words in (("check",), ("current",), ("stats",), ("doctor",), ("vacuum",), ("checkpoint",), ("maintain",), ("runs", "ls")):
        assert run(*words, "state.db").exit_code == 0, words
    assert run("copy", "state.db", "copy.db").exit_code == 0
    assert run("ls", "copy.db").stdout == by_url.stdout
    assert run("programs", "ls", "--url", "state.db").exit_code == 0
    assert "Needs no adopting" in run("adopt", "--url", "state.db").stdout.replace("needs", "Needs")
    assert run("upgrade", "odd ?name%20#.db").exit_code == 0
    assert (file.parent / "odd ?name%20#.db").exists() or os.name == "nt"
    assert run("tenants", "ls", "--url", str(file.parent)).exit_code == 0


def test_a_database_is_named_once(file: Path) -> None:
    result = run("stats", "state.db", "--url", "other.db")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Which database?" in result.stderr
    assert run("ls", "state.db", "other.db").exit_code == 2
    missing = run("ls", "missing.db")
    assert (missing.exit_code, missing.stderr) == (1, "Error: There is no SQLite file 'missing.db'.\n")
    assert sorted(path.name for path in file.parent.glob("*.db")) == ["state.db"]


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:///:memory:"])
def test_a_database_in_memory_is_none_for_a_command(url: str) -> None:
    """As a URL is whose file comes from a variable that is not set: what is written would be gone at once."""
    for words in (("ls",), ("upgrade",), ("show", "ses_nobody")):
        result = run(*words, "--url", url)
        assert (result.exit_code, result.stdout) == (2, ""), words
        assert f"{url} is a database in memory" in result.stderr


def test_what_is_a_path() -> None:
    windows = str(PureWindowsPath("C:/Users/me/state.db"))
    assert place_of(windows) == Path(windows)
    assert place_of("sqlite:///state.db") == "sqlite:///state.db"
    assert place_of("postgresql://me@host/db") == "postgresql://me@host/db"
    assert place_of("me:geheim@host/db") == "me:geheim@host/db"
    wrong = run("ls", "me:geheim@host/db")
    assert (wrong.exit_code, wrong.stdout, "geheim" in wrong.stderr) == (1, "", False)


def test_errors_are_objects_with_json(file: Path) -> None:
    missing = run("show", "ses_nobody", "--url", "state.db", "--json")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert json.loads(missing.stderr) == {
        "error": {
            "type": "NotFound",
            "message": "There is no session or run 'ses_nobody'.",
            "kind": "session or run",
            "id": "ses_nobody",
        }
    }
    wrong = run("ls", "state.db", "--limit", "0", "--json")
    assert (wrong.exit_code, json.loads(wrong.stderr)["error"]["type"]) == (2, "UsageError")
    failed = run("runs", "cancel", "run_nobody", "--url", "postgresql://me:geheim@127.0.0.1:1/x?password=geheim", "--json")
    assert (failed.exit_code, json.loads(failed.stderr)["error"]["type"]) == (1, "Unavailable")
    assert "geheim" not in failed.stderr
    unknown = run("runs", "lss", "--json")
    assert (unknown.exit_code, "Did you mean ls?" in json.loads(unknown.stderr)["error"]["message"]) == (2, True)
    setting = CliRunner().invoke(main, ["ls", "state.db", "--json"], env={"PERSIST_SCHEMA_NAME": "a-b"})
    assert (setting.exit_code, json.loads(setting.stderr)["error"]["path"]) == (1, "PERSIST_SCHEMA_NAME")
    assert run("show", "ses_nobody", "--url", "state.db").stderr == "Error: There is no session or run 'ses_nobody'.\n"


def test_a_word_that_was_meant(file: Path) -> None:
    assert "No such command 'run'. Did you mean runs" in run("run").stderr
    assert run("telemetry", "statsu").stderr.endswith("No such command 'statsu'. Did you mean status?\n")
    assert run("xyzzy").stderr.endswith("Error: No such command 'xyzzy'.\n")
    assert "Did you mean workflows?" in run("ls", "workflow").stderr
    assert "--limit" in run("ls", "--limt", "3").stderr


def test_an_option_before_its_command() -> None:
    """It belongs behind it: the whole line is said, without a password that is in it."""
    early = run("--json", "ls", "state.db")
    assert (early.exit_code, early.stdout) == (2, "")
    assert "Did you mean `main ls state.db --json`?" in json.loads(early.stderr)["error"]["message"]
    wrong = run("--actor", "me", "--url", "postgresql://me:geheim@x/y", "runs", "ls").stderr
    assert "Did you mean `main --actor me runs ls --url postgresql://me:***@x/y`?" in wrong
    assert "Did you mean `main runs ls -q`?" in run("runs", "-q", "ls").stderr
    assert "Did you mean `" not in run("--jsn", "nothing").stderr


@each("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    script = run("completion", shell)
    assert (script.exit_code, f"_PERSIST_COMPLETE={shell}_complete" in script.stdout) == (0, True)


def test_completion_in_a_process_and_python_minus_m(file: Path) -> None:
    """What the script for bash calls, through `python -m persist`; the names of commands import none of them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERSIST_")}
    words = {"_PERSIST_COMPLETE": "bash_complete", "COMP_WORDS": "persist sche", "COMP_CWORD": "1"}
    environment = {**kept, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "persist"]
    options: dict[str, Any] = {"capture_output": True, "text": True, "cwd": file.parent, "timeout": 60, "check": False}
    completed = subprocess.run(line, env=environment | words, **options)
    assert completed.stdout.split() == ["plain,schedules"], completed.stderr
    listed = subprocess.run([*line, "ls", "state.db", "-q"], env=environment, **options)
    assert (listed.returncode, listed.stdout[:4]) == (0, "ses_")


def test_every_command_of_the_table_is_there() -> None:
    assert {names[0] for names, _ in every_command(main)} == set(COMMANDS)


def test_a_command_without_an_argument_takes_the_database_as_one() -> None:
    """But for those that name a folder of runs, or servers."""
    assert [" ".join(names) for names, command in every_command(main) if _only_by_option(command)] == [
        "blobs databases",
        "programs ls",
        "tenants ls",
    ]


def _only_by_option(command: click.Command) -> bool:
    named = {name for parameter in command.params for name in parameter.opts}
    return "--url" in named and not any(isinstance(parameter, click.Argument) for parameter in command.params)
