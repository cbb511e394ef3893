"""`persist events`, on both databases."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from persist import Store
from tests.cases import each
from tests.cli.golden import assert_golden
from tests.contract.chat.scenes import create, say
from tests.distributed_server import takes_triggers

Command = Callable[..., Result]


@pytest.fixture
def session(database_url: str) -> str:
    """A session with three messages, in a database whose log was never on."""
    with Store.open(database_url) as store:
        session = create(store)
        for words in ("one", "two", "three"):
            say(store, session, words)
    return session


def printed(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def test_on_and_off(command: Command, session: str, database_url: str) -> None:
    assert printed(command("events", "off")) == "The log of events was off already.\n"
    assert printed(command("events", "on")) == "The log of events is on.\n"
    with Store.open(database_url) as store:
        say(store, session, "four")
    assert json.loads(printed(command("events", "on", "--json"))) == {"on": True, "changed": False}
    assert json.loads(printed(command("events", "off", "--json"))) == {"on": False, "changed": True}
    with Store.open(database_url) as store:
        say(store, session, "five")
        with store.read() as tx:
            assert [event.type for event in tx.events.read(session)] == ["snapshot", "message.appended"]
    assert printed(command("events", "on", "-q")) == ""
    assert printed(command("events", "off", "-q")) == ""


def test_a_plan_counts_what_switching_on_writes(command: Command, session: str, database_url: str, backend: str) -> None:
    with Store.open(database_url) as store:
        say(store, create(store), "one")
        store.transcripts.entries.append("p", "s", [{"number": number} for number in range(20)])
        store.workflows.limits.set("build", concurrency=1)
    assert_golden("events_plan" if backend == "sqlite" else "events_plan-postgres", printed(command("events", "on", "--plan")))
    plan = json.loads(printed(command("events", "on", "--plan", "--json")))
    assert printed(command("events", "on", "--plan", "-q")) == ""
    with Store.open(database_url) as store:
        assert (plan["on"], store.logs_events) == (False, False)
        store.switch_events(True)
        logged = [event.data["changes"] for event in store.watch("*", timeout=0)]
    planned = [sum(item[of] for item in plan["items"]) for of in ("streams", "rows")]
    assert planned == [len(logged), sum(map(len, logged))]
    assert printed(command("events", "on", "--plan")) == "No snapshot is to be written.\n"


def test_status(command: Command, session: str, database_url: str) -> None:
    assert " ".join(printed(command("events", "status")).split()) == "log off events 0 streams 0 position 0 oldest -"
    with Store.open(database_url, events=True) as store:
        for number in range(1200):
            say(store, session, str(number))
    said = dict(line.split(maxsplit=1) for line in printed(command("events", "status")).splitlines())
    guarded = takes_triggers(database_url)
    assert said.pop("guard", None) == (None if guarded else "none: the database takes no triggers")
    assert said.pop("oldest").endswith(" UTC")
    assert [*said.items()] == [("log", "on"), ("events", "1,201"), ("streams", "1"), ("position", "1,201")]
    found = json.loads(printed(command("events", "status", "--json")))
    assert found["guarded"] == guarded
    assert (found["on"], found["events"], found["streams"], found["position"]) == (True, 1201, 1, 1201)
    assert found["oldest"].endswith("+00:00")
    assert printed(command("events", "status", "-q")) == "on\n"
    command("events", "off")
    assert printed(command("events", "status", "-q")) == "off\n"


def test_trim_keeps_the_newest(command: Command, session: str, database_url: str) -> None:
    with Store.open(database_url, events=True) as store:
        other = create(store)
        for number in range(5):
            say(store, session, str(number))
            say(store, other, str(number))
    assert printed(command("events", "trim", session, "--keep", "2")) == "Deleted 4 events.\n"
    assert json.loads(printed(command("events", "trim", "--keep", "3", "--json")))["deleted"] > 0
    with Store.open(database_url) as store, store.read() as tx:
        assert tx.events.read(session)[-1].type == "snapshot"
        assert tx.events.read(other)[-1].type == "snapshot"
        assert len(tx.events.read(other)) == 4  # three, and what was written for those who read on
    assert printed(command("events", "trim", "--older-than", "1d", "-q")) == ""
    assert printed(command("events", "trim", "--older-than", "1d")) == "Deleted 0 events.\n"
    assert printed(command("events", "trim", session, "--older-than", "0s")).startswith("Deleted ")
    assert printed(command("events", "trim", other, "--keep", "0")) == "Deleted 3 events.\n"


def test_trim_wants_to_know_what(command: Command, session: str) -> None:
    result = command("events", "trim")
    assert result.exit_code == 2
    assert "--older-than" in result.stderr


@each("what", [["on"], ["off"], ["status"], ["trim", "--keep", "1"]], ids=" ".join)
def test_a_mistyped_file_is_not_made(command: Command, what: list[str], tmp_path: Path) -> None:
    file = tmp_path / "missing.db"
    result = command("events", *what, "--url", f"sqlite:///{file.as_posix()}")
    assert result.exit_code == 1
    assert "missing.db" in result.stderr
    assert "Traceback" not in result.output
    assert not file.exists()
