"""ls and show, and the commands about the tables, on both databases."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from persist import Store
from persist.cli import main
from persist.cli.root import COMMANDS
from persist.schema.metadata import HEAD
from persist.testing import FrozenClock

pytestmark = pytest.mark.one_database

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("ls", …)` against the test's database, named by the environment."""
    for name in [name for name in os.environ if name.startswith("PERSIST_")]:
        if not name.startswith("PERSIST_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PERSIST_DATABASE_URL", database_url)
    return lambda *args, **options: CliRunner().invoke(main, list(args), **options)


@pytest.fixture
def session_id(database_url: str) -> str:
    """A session with a question, a hidden answer, and text that would take over a terminal."""
    with Store.open(database_url, clock=FrozenClock()) as store, store.begin() as tx:
        tx.chat.sessions.create(agent="other", model={}, id="ses_other")
    with Store.open(database_url) as store, store.begin() as tx:
        session = tx.chat.sessions.create(
            agent="build",
            model={"provider_id": "p", "model_id": "m"},
            workspace_root="/srv/" + "long/" * 10 + "end",
            metadata={"title": "A title\x1b[2J"},
        )
        text = {"type": "text", "text": "hello \x1b[31m\x00 \ud83d"}
        question = tx.chat.messages.append(session.id, role="user", parts=[text], id="msg_q")
        answer = tx.chat.messages.append(session.id, role="assistant", parts=[{"type": "text", "text": "old"}], id="msg_a")
        tx.chat.messages.record_step_usage(answer.id, 0, input_tokens=1200, output_tokens=34, cost_usd=0.25)
        tx.chat.sessions.rewind(session.id, question.id)
    return session.id


def test_ls_shows_the_latest_first(run: Run, session_id: str) -> None:
    result = run("ls")
    assert result.exit_code == 0
    head, first, second = result.stdout.splitlines()
    assert head.split() == ["SESSION", "AGENT", "WORKSPACE", "UPDATED", "(UTC)", "TOKENS", "TITLE"]
    assert first.startswith(session_id)
    assert first.endswith("A title\\x1b[2J")
    assert "…" in first
    assert second.split()[:3] == ["ses_other", "other", "-"]


def test_ls_filters_and_pages(run: Run, session_id: str) -> None:
    assert run("ls", "-q", "--agent", "other").stdout == "ses_other\n"
    assert run("ls", "-q", "--workspace", "/srv/" + "long/" * 10 + "end").stdout == f"{session_id}\n"
    assert run("ls", "-q", "--agent", "nobody").stdout == ""
    first = run("ls", "--limit", "1")
    cursor = first.stderr.split()[-1]
    assert run("ls", "-q", "--limit", "1", "--after", cursor).stdout == "ses_other\n"
    page = json.loads(run("ls", "--limit", "1", "--json").stdout)
    assert page["cursor"] == cursor
    assert [item["id"] for item in page["items"]] == [session_id]
    last = json.loads(run("ls", "--limit", "1", "--json", "--after", cursor).stdout)
    assert last["cursor"] is None
    assert run("ls", "--agent", "other", "--after", cursor).exit_code == 1
    assert run("ls", "--after", "nonsense").exit_code == 1
    assert run("ls", "--limit", "0").exit_code == 2


def test_ls_leaves_out_the_archived(run: Run, session_id: str, database_url: str) -> None:
    with Store.open(database_url) as store, store.begin() as tx:
        tx.chat.sessions.archive("ses_other")
    assert run("ls", "-q").stdout == f"{session_id}\n"
    assert "(archived)" in run("ls", "--archived").stdout


def test_show_is_a_transcript_that_cannot_harm(run: Run, session_id: str) -> None:
    result = run("show", session_id)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "\x00" not in result.stdout
    assert "hello \\x1b[31m\\x00 \\ud83d" in result.stdout
    header = dict(line.split(maxsplit=1) for line in result.stdout.partition("\n\n")[0].splitlines())
    assert header["session"] == session_id
    assert header["agent"] == "build"
    assert header["model"] == "p/m"
    assert header["cost"] == "$0.2500"
    assert header["tokens"].startswith("-")  # the answer is hidden
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", header["created"])
    assert "updated" in header
    assert "old" not in result.stdout


def test_what_nobody_told_is_a_dash(run: Run, database_url: str) -> None:
    """Not a zero, which would say that the answer was free."""
    with Store.open(database_url) as store:
        id = store.chat.sessions.create(agent="quiet", model={}).id
    shown = run("show", id).stdout.splitlines()
    assert [line.split() for line in shown if line.startswith(("tokens", "cost"))] == [["tokens", "-"], ["cost", "-"]]
    (row,) = [line for line in run("ls").stdout.splitlines() if line.startswith(id)]
    assert row.split()[-1] == "-"


def test_show_hidden(run: Run, session_id: str) -> None:
    result = run("show", session_id, "--hidden", "-q")
    assert "assistant  msg_a (hidden)\n  old\n" in result.stdout
    assert "agent" not in result.stdout


def test_show_json_is_everything(run: Run, session_id: str, database_url: str) -> None:
    shown = json.loads(run("show", session_id, "--json").stdout)
    with Store.open(database_url) as store, store.read() as tx:
        assert shown["messages"] == tx.chat.messages.list(session_id)
        assert shown["session"] == {**tx.chat.sessions.get(session_id).model_dump(mode="json"), "running": False}
    assert len(json.loads(run("show", session_id, "--json", "--hidden").stdout)["messages"]) == 2


def test_colours_only_for_terminals(run: Run, session_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in run("ls").stdout
    monkeypatch.setattr("persist.cli.output.Paint.__init__", lambda self, on=None: setattr(self, "on", True))
    assert "\x1b[1m" in run("ls").stdout


def test_current_and_check(run: Run, session_id: str) -> None:
    assert run("current").stdout == f"{HEAD} (head)\n"
    assert run("current", "-q").stdout == f"{HEAD}\n"
    assert json.loads(run("current", "--json").stdout) == {"revision": HEAD, "head": HEAD}
    assert run("check").exit_code == 0
    assert run("check", "-q").stdout == ""
    assert json.loads(run("check", "--json").stdout) == {"revision": HEAD, "head": HEAD}


def test_upgrade_creates_and_repeats(run: Run, new_empty_url: str) -> None:
    at = ("--url", new_empty_url)
    assert run("upgrade", *at).stdout == f"Upgraded from nothing to {HEAD}.\n"
    assert run("upgrade", *at).stdout == f"Up to date already, at {HEAD}.\n"
    assert json.loads(run("upgrade", "--json", *at).stdout) == {"from": HEAD, "revision": HEAD}
    assert run("upgrade", "-q", *at).output == ""
    assert run("check", *at).exit_code == 0
    assert run("ls", *at).exit_code == 0


@pytest.fixture
def new_empty_url(backend: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("empty_postgres_url" if backend == "postgres" else "sqlite_url"))


def test_an_empty_database_says_what_to_run(run: Run, new_empty_url: str, backend: str, tmp_path: Path) -> None:
    if backend == "sqlite":
        (tmp_path / "state.db").touch()
    at = ("--url", new_empty_url)
    assert run("current", *at).stdout.startswith("none (")
    assert run("current", "-q", *at).stdout == ""
    assert json.loads(run("current", "--json", *at).stdout) == {"revision": None, "head": HEAD}
    for command in (("check",), ("ls",), ("show", "ses_x")):
        result = run(*command, *at)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "run: persist upgrade --url " in result.stderr
        assert result.stderr.count("\n") == 1


def test_another_schema(run: Run, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = ("--url", postgres_url)
    assert run("check", "--schema", "second", *at).exit_code == 1
    assert run("upgrade", "--schema", "second", *at).exit_code == 0
    recorded = run("record", "--session", "new", "--agent", "a", "-q", "--schema", "second", *at, input="")
    monkeypatch.setenv("PERSIST_SCHEMA_NAME", "second")
    assert run("ls", "-q", *at).stdout == recorded.stdout
    assert run("ls", "-q", "--schema", "persist", *at).stdout == ""
    assert run("ls", "--schema", "no;such", *at).exit_code == 1
    monkeypatch.setenv("PERSIST_SCHEMA_NAME", "no such")
    result = run("ls", *at)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: PERSIST_SCHEMA_NAME: ")


def test_alembic_ini_needs_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERSIST_DATABASE_URL", raising=False)
    result = CliRunner().invoke(main, ["alembic-ini"])
    assert result.exit_code == 0
    assert result.stdout.startswith("[alembic]\nscript_location = /")


def test_help_names_every_command_as_it_names_itself() -> None:
    listed = CliRunner().invoke(main, ["-h"])
    assert listed.exit_code == 0
    for name, (_, _, help) in COMMANDS.items():
        assert help in listed.stdout
        command = main.get_command(None, name)  # type: ignore[arg-type]  # the context is not looked at
        assert command is not None
        assert command.short_help == help
        shown = CliRunner().invoke(main, [name, "-h"])
        assert shown.exit_code == 0
        assert command.name == name
        # a group's commands have options of their own; of these four ask no database, one takes only files, and one serves pages
        others = {"alembic-ini", "completion", "erd", "grants", "adopt", "copy", "ui"}
        if name not in others and not isinstance(command, click.Group):
            for option in ("--url", "--schema", "--json", "-q, --quiet", "-h, --help"):
                assert option in shown.stdout
