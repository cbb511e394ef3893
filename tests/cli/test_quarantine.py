"""`persist quarantine`: what was set aside, what it held, and its way back."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from persist import Store
from persist.maintenance import quarantined
from persist.testing import FrozenClock
from tests.schema.places import Place

Command = Callable[..., Result]


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


def test_ids_of_nothing(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    for verb in ("show", "restore"):
        result = command("quarantine", verb, "qua_nothing")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "There is no row in quarantine 'qua_nothing'." in result.stderr
