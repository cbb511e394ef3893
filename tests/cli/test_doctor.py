"""`persist doctor`, `persist maintain` and `persist quarantine`: what they print, and how they end."""

import json
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import Unavailable
from persist.maintenance import quarantined
from persist.testing import FrozenClock
from tests.cases import each
from tests.cli.conftest import Command
from tests.cli.golden import assert_golden
from tests.maintenance.pruning_scenes import every_row
from tests.schema.places import Place

_REPLACE = {
    r"which is \d{4}": "which is REVISION",
    r"(?:sqlite:////|/)\S*state\.db": "FILE",
    r"run_\w+?(?=[ :])": "RUN",
    r"ses_\w+": "SESSION",
}


@pytest.fixture
def ailing(database_url: str, clock: FrozenClock) -> Place:
    """An old run that nobody works on, arrays that lag, and a version mark of before."""
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan")
        tx.conversations.progressions.create("prg-1", ids=["a", "b"])
    place = Place(database_url)
    place.run(
        f"UPDATE {place.named('progressions')} SET folded = 0",
        f"UPDATE {place.named('_meta')} SET value = '0003' WHERE key = 'schema_version'",
    )
    return place


def test_a_healthy_store(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    result = command("doctor")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Nothing is wrong.\n", "")
    assert json.loads(command("doctor", "--json").stdout) == {"items": [], "cursor": None}
    assert command("doctor", "-q").stdout == ""


@pytest.mark.usefixtures("ailing")
def test_warnings_are_printed_and_do_not_fail(command: Command) -> None:
    result = command("doctor")
    assert result.exit_code == 0
    assert_golden("doctor-warnings", result.stdout, _REPLACE)
    assert command("doctor", "-q").stdout == ""


@pytest.mark.usefixtures("ailing")
def test_fixing(command: Command) -> None:
    result = command("doctor", "--fix")
    assert result.exit_code == 0
    assert_golden("doctor-fixed", result.stdout, _REPLACE)
    (found,) = json.loads(command("doctor", "--json").stdout)["items"]
    assert (found["code"], found["severity"], found["fixed"]) == ("run_stuck", "warning", False)


def test_looking_changes_nothing(command: Command, ailing: Place) -> None:
    before = ailing.rows()
    assert command("doctor", "--full").exit_code == 0
    assert ailing.rows() == before


@pytest.mark.usefixtures("ailing")
def test_an_error_fails(command: Command, sqlite_url: str, backend: str) -> None:
    with Store.open(sqlite_url) as store, store.begin() as tx:
        session = tx.chat.sessions.create(agent="build", model={})
        tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "?"}])
    Place(sqlite_url).run("DELETE FROM chat_sessions")
    result = command("doctor", "-q", "--url", sqlite_url)
    assert result.exit_code == 1
    assert_golden("doctor-error", result.stdout, _REPLACE)
    assert result.stderr == ""


DAMAGED = {
    "empty": b"",
    "text": b"This is no database, it is a letter. " * 30,
    "truncated": b"SQLite format 3\x00\x10\x00\x02\x02\x00\x40\x20\x20" + bytes(80) + b"\x05" * 900,
}


@each("kind", DAMAGED)
@each("options", [(), ("--fix",), ("--json",), ("--full",)], ids=["plain", "fix", "json", "full"])
def test_a_broken_file_is_one_finding_and_stays_as_it_is(
    kind: str, options: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "broken.db"
    path.write_bytes(DAMAGED[kind])
    result = command("doctor", *options, "--url", f"sqlite:///{path}")
    assert result.exit_code == 1
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    if options == ("--json",):
        (found,) = json.loads(lines[0])["items"]
        assert found["severity"] == "error"
        assert str(path) in found["message"]
    else:
        assert lines[0].startswith("error ")
        assert lines[1:] == ["1 error."]
    assert path.read_bytes() == DAMAGED[kind]


def test_an_older_schema_is_a_finding(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    place = Place(database_url)
    place.run(
        f"UPDATE {place.named('persist_alembic_version')} SET version_num = '0003'",
        f"UPDATE {place.named('_meta')} SET value = '0003' WHERE key = 'schema_version'",
    )
    (found,) = json.loads(command("doctor", "--fix", "--json").stdout)["items"]
    assert (found["code"], found["fixed"]) == ("schema_outdated", False)
    assert "persist upgrade" in found["message"]
    assert place.ask(f"SELECT version_num FROM {place.named('persist_alembic_version')}") == [("0003",)]
    place.run(  # as it was lent
        f"UPDATE {place.named('persist_alembic_version')} SET version_num = '0004'",
        f"UPDATE {place.named('_meta')} SET value = '0004' WHERE key = 'schema_version'",
    )


def test_what_it_says(command: Command, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSIST_MESSAGING_KEEP_DAYS", "30")
    monkeypatch.setenv("PERSIST_STATUS_LOG_KEEP", "2")
    before = every_row(filled)
    trial = command("maintain", "--dry-run")
    assert (trial.exit_code, every_row(filled)) == (0, before)
    result = command("maintain")
    assert result.exit_code == 0
    assert_golden("maintain", f"{trial.output}{result.output}{command('maintain').output}")


def test_json(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    told = json.loads(command("maintain", "--json", "--dry-run").stdout)
    assert told.keys() == {"dry_run", "steps", "failed"}
    assert (told["dry_run"], told["failed"]) == (True, False)
    assert all(step.keys() == {"name", "tables", "error"} for step in told["steps"])


def test_a_step_that_fails_is_one_line_and_exit_code_1(command: Command, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any) -> int:
        raise Unavailable("The server went away")

    monkeypatch.setattr("persist.maintenance.pruning.clear_dead", gone)
    result = command("maintain", "-q")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: clear dead turns: The server went away.\n"
    assert "clear dead turns   failed  -" in command("maintain").stdout


@pytest.mark.parametrize("wrong", [("PERSIST_CHAT_KEEP_DAYS", "-3"), ("PERSIST_WORKFLOWS_KEEP_LAST", "x")])
def test_a_wrong_setting_is_named(command: Command, filled: str, monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, str]) -> None:
    monkeypatch.setenv(*wrong)
    result = command("maintain")
    assert (result.exit_code, result.stdout) == (1, "")
    assert wrong[0] in result.stderr


# `persist quarantine`: what was set aside, what it held, and its way back.


@pytest.fixture
def spoilt(database_url: str, clock: FrozenClock) -> str:
    """A run whose context is no object; its id."""
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        run = tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan", id="run_1")
    place = Place(database_url)
    place.run(f"UPDATE {place.named('workflow_runs')} SET context = '[7]'")
    return run.id


def test_a_row_goes_and_comes_back(command: Command, database_url: str, clock: FrozenClock, spoilt: str) -> None:
    assert command("quarantine", "ls").stdout == "Nothing is in quarantine.\n"
    result = command("doctor", "--fix")
    assert (
        "workflow_runs run_1: context holds text of 3 characters, which is no object. Moved to quarantine"
        in result.stdout.replace("'", "")
    )
    with Store.open(database_url, clock=clock) as store:
        (moved,) = quarantined(store)
    (listed,) = json.loads(command("quarantine", "ls", "--json").stdout)["items"]
    assert (listed["id"], listed["table"], listed["key"]) == (moved.id, "workflow_runs", spoilt)
    assert "row" not in listed
    line = command("quarantine", "ls").stdout.splitlines()[1]
    assert line.startswith(moved.id)
    assert command("quarantine", "ls", "--after", moved.id).stdout == "Nothing is in quarantine.\n"
    shown = json.loads(command("quarantine", "show", moved.id, "--json").stdout)
    assert list(shown["row"]["context"].values()) == ["[7]"]
    assert shown["row"]["lease_owner"] is None
    result = command("quarantine", "restore", moved.id)
    assert (result.exit_code, result.stdout) == (0, "workflow_runs run_1\n")
    assert command("quarantine", "ls").stdout == "Nothing is in quarantine.\n"
    assert command("doctor").exit_code == 1


def test_what_a_row_held(command: Command, database_url: str, clock: FrozenClock, spoilt: str) -> None:
    command("doctor", "--fix")
    with Store.open(database_url, clock=clock) as store:
        (moved,) = quarantined(store)
    lines = command("quarantine", "show", moved.id).stdout.splitlines()
    assert lines[0].startswith(f"workflow_runs {spoilt}, moved ")
    assert lines[1] == moved.cause
    (line,) = [line for line in lines[2:] if line.split()[:1] == ["context"]]
    assert line.split()[2] == "[7]"
    (line,) = [line for line in lines[2:] if line.split()[:1] == ["lease_owner"]]
    assert line.split() == ["lease_owner", "null"]
