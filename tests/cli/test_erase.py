"""`persist erase`: who is erased, what it asks, and what it tells."""

import json

import pytest

from persist import Store
from persist.maintenance import verify_report
from tests.cli.conftest import Command
from tests.cli.golden import assert_golden
from tests.maintenance.erasing_scenes import person, places_of, rows, secret_of

MARIA = ("--owner", "maria", "--session", "maria-session", "--namespace", "people.maria")


@pytest.fixture(autouse=True)
def people(command: Command, database_url: str) -> None:
    with Store.open(database_url, events=True) as store:
        person(store, "maria")
        person(store, "peter")


def test_an_erasure_is_counted_and_then_done(command: Command, database_url: str) -> None:
    before = rows(database_url)
    trial = command("erase", *MARIA, "--dry-run")
    assert trial.exit_code == 0
    assert rows(database_url) == before
    result = command("erase", *MARIA, "--yes")
    assert (result.exit_code, result.stdout) == (0, trial.stdout)
    assert places_of(database_url, secret_of("maria")) == set()
    assert_golden("erase", f"{trial.output}{result.output}", {})


def test_json_is_a_report_that_can_be_verified(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSIST_REPORT_KEY", "key")
    result = command("erase", "--user", "maria", "--yes", "--json")
    assert result.exit_code == 0
    assert verify_report(result.stdout, "key")
    found = json.loads(result.stdout)
    assert (found["selectors"], found["dry_run"], found["total"]) == ({"user_id": "maria"}, False, sum(found["tables"].values()))


def test_a_quiet_erasure_says_nothing(command: Command) -> None:
    result = command("erase", "--owner", "nobody", "--yes", "-q")
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_on_a_terminal_an_erasure_is_asked_for(
    command: Command, database_url: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr("persist.cli.operations.asks", lambda: True)
    before = rows(database_url)
    result = command("erase", "--owner", "maria", input=answer)
    assert result.exit_code == code
    assert "Erase them?" in result.stderr
    assert (rows(database_url) == before) == (code == 1)


def test_an_erasure_of_nobody(command: Command, database_url: str) -> None:
    before = rows(database_url)
    for wrong in ((), ("--yes",), ("--owner", "maria"), ("--owner",), ("maria",), ("--owner", "maria", "--older-than", "1d")):
        result = command("erase", *wrong)
        assert (result.exit_code, result.stdout) == (2, ""), wrong
    result = command("erase", "--owner", "", "--yes")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert rows(database_url) == before
