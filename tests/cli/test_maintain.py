"""`persist maintain`: what a job runs, and what it tells."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from persist import Store
from persist.errors import Unavailable
from tests.cli.golden import assert_golden
from tests.maintenance.pruning_scenes import every_row

Command = Callable[..., Result]


def test_what_it_says(command: Command, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSIST_MESSAGING_KEEP_DAYS", "30")
    monkeypatch.setenv("PERSIST_STATUS_LOG_KEEP", "2")
    before = every_row(filled)
    trial = command("maintain", "--dry-run")
    assert (trial.exit_code, every_row(filled)) == (0, before)
    result = command("maintain")
    assert result.exit_code == 0
    assert_golden("maintain", f"{trial.output}{result.output}{command('maintain').output}")


def test_by_default_it_prunes_nothing(command: Command, filled: str) -> None:
    before = every_row(filled)
    result = command("maintain", "--json")
    assert not [step for step in json.loads(result.stdout)["steps"] if step["name"].startswith("prune")]
    assert every_row(filled) == before


def test_json(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    told = json.loads(command("maintain", "--json", "--dry-run").stdout)
    assert told.keys() == {"dry_run", "steps", "failed"}
    assert (told["dry_run"], told["failed"]) == (True, False)
    assert all(step.keys() == {"name", "tables", "error"} for step in told["steps"])


def test_quiet(command: Command, filled: str) -> None:
    assert command("maintain", "-q").output == ""


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
