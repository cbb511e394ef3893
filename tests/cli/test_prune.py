"""`persist prune`: it says exactly what goes, asks on a terminal, and has no age of its own."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persist import Store
from persist.cli import main
from persist.maintenance import prunable, prune
from tests.cases import each
from tests.cli.golden import assert_golden
from tests.maintenance.pruning_scenes import DOMAINS, every_row

Command = Callable[..., Result]
WHEN = {r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d": "INSTANT"}


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_dry_run_and_then_the_run(command: Command, filled: str, domain: str) -> None:
    before = every_row(filled)
    trial = command("prune", domain, "--older-than", "1d", "--dry-run")
    assert trial.exit_code == 0
    assert every_row(filled) == before
    result = command("prune", domain, "--older-than", "1d")
    assert (result.exit_code, result.stdout) == (0, trial.stdout)
    assert_golden(f"prune_{domain}", f"{trial.output}{result.output}", WHEN)


def test_json_is_the_report(command: Command, filled: str) -> None:
    with Store.open(filled) as store:
        report = prune(store, "telemetry", older_than=timedelta(days=1), keep=1, dry_run=True)
    found = json.loads(command("prune", "telemetry", "--older-than", "1d", "--keep", "1", "--dry-run", "--json").stdout)
    assert found["tables"] == report.tables
    assert found.keys() == {"what", "before", "keep", "dry_run", "tables", "files", "kept", "total"}
    assert (found["total"], found["keep"], found["dry_run"]) == (report.total, 1, True)


def test_quiet_says_nothing(command: Command, filled: str) -> None:
    result = command("prune", "chat", "--older-than", "1d", "-q")
    assert (result.exit_code, result.output) == (0, "")


def test_nothing_to_prune(command: Command, filled: str) -> None:
    result = command("prune", "chat", "--older-than", "99999w")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("Deleted 0 rows of chat from before ")


def test_there_is_no_age_but_the_one_that_is_given(command: Command, filled: str) -> None:
    before = every_row(filled)
    for what in prunable():
        result = command("prune", what)
        assert (result.exit_code, result.stdout) == (2, ""), what
        assert "--older-than" in result.stderr, what
    assert every_row(filled) == before


@each(("age", "span"), [("90m", 5400), ("12h", 43_200), ("30d", 2_592_000), ("2w", 1_209_600), ("1.5s", 1.5)])
def test_ages(command: Command, filled: str, age: str, span: float) -> None:
    told = json.loads(command("prune", "chat", "--older-than", age, "--dry-run", "--json").stdout)["before"]
    assert abs((datetime.now(UTC) - datetime.fromisoformat(told)).total_seconds() - span) < 60


def test_called_wrongly(command: Command, filled: str) -> None:
    before = every_row(filled)
    for wrong in (
        ("chat", "--older-than", "30"),
        ("chat", "--older-than", "d"),
        ("chat", "--older-than", "-1d"),
        ("chat", "--older-than", "1 d"),
        ("chat", "--older-than", "1month"),
        ("chat", "--older-than", "999999999w"),
        ("chat", "--older-than", "1d", "--keep", "-1"),
        ("nothing", "--older-than", "1d"),
        ("--older-than", "1d"),
    ):
        result = command("prune", *wrong)
        assert (result.exit_code, result.stdout) == (2, ""), wrong
    assert every_row(filled) == before


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_on_a_terminal_it_asks(command: Command, filled: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    monkeypatch.setattr("persist.cli.operations.asks", lambda: True)
    before = every_row(filled)
    result = command("prune", "messaging", "--older-than", "1d", input=answer)
    assert result.exit_code == code
    assert "Would delete 2 rows of messaging" in result.stderr
    assert (every_row(filled) == before) == (code == 1)
    assert (result.stdout == "") == (code == 1)


@pytest.mark.parametrize("sure", ["--yes", "--dry-run"])
def test_it_does_not_ask_who_is_sure(command: Command, filled: str, monkeypatch: pytest.MonkeyPatch, sure: str) -> None:
    monkeypatch.setattr("persist.cli.operations.asks", lambda: True)
    result = command("prune", "messaging", "--older-than", "1d", sure)
    assert result.exit_code == 0
    assert "Delete them?" not in result.output


def test_a_missing_file_stays_missing(tmp_path: Path) -> None:
    url = f"sqlite:///{(tmp_path / 'none.db').as_posix()}"
    result = CliRunner().invoke(main, ["prune", "chat", "--older-than", "1d", "--url", url])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "broken.db"
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 8000)
    for line in (["prune", "chat", "--older-than", "1d"], ["maintain"]):
        result = CliRunner().invoke(main, [*line, "--url", f"sqlite:///{path.as_posix()}"])
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert "Traceback" not in result.output
