"""`persist stats` and `persist events`: a database and its log at a glance."""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import Result

from persist import Store
from persist.cli.output import size
from persist.maintenance import stats
from persist.testing import FrozenClock
from tests.cases import each
from tests.cli.conftest import Command
from tests.cli.golden import assert_golden
from tests.contract.chat.scenes import create, say
from tests.distributed_server import takes_triggers

_REPLACE = {
    r"(?:sqlite:///)?FOLDER/state\.db": "FILE",
    r"persist_test_\w+": "DATABASE",
    r"\d[\d,.]* (?:B|KB|MB)\b": "SIZE",
    r"revision \d{4}": "revision REVISION",
    r"\(sqlite [\d.]+\)|\(postgresql [^)]*\)": "(VERSION)",
    r"\d[\d,]* (pages|indexes)": r"N \1",
    r"(?m)^(settings server_version) .*$": r"\1 …",
    r"(?m)^(unused N indexes without a scan:) .*$": r"\1 …",
    r"SIZE (\S+) (?:\d+) (?:never|\d{4}-\S+ \S+)": r"SIZE \1 DEAD VACUUMED",
}


def _settled(output: str) -> str:
    """Without what differs from machine to machine: the widths of columns, which table is the largest, dead rows of before."""
    blocks = [re.sub(r" {2,}", " ", block).splitlines() for block in output.split("\n\n")]
    blocks[1] = [blocks[1][0], *sorted(line for line in blocks[1][1:-1] if line.split()[2] != "0"), blocks[1][-1]]
    return "\n\n".join("\n".join(block) for block in blocks).rstrip("\n") + "\n"


@pytest.fixture
def some(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        tx.chat.sessions.create(agent="build", model={"model_id": "large"})
        tx.chat.prompts.put(os.urandom(300_000).hex())
        for status in ("running", "paused", "running"):
            tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan", status=status)
        tx.conversations.sessions.create(id="conv-1")


@pytest.mark.usefixtures("some")
def test_stats_at_a_glance(command: Command, backend: str, database_url: str, tmp_path: Path) -> None:
    result = command("stats")
    assert result.exit_code == 0
    kind = backend if takes_triggers(database_url) else "cluster"
    assert_golden(f"stats-{kind}", _settled(result.stdout), _REPLACE, folder=tmp_path)


def test_stats_of_an_empty_store(command: Command, database_url: str, backend: str) -> None:
    Store.open(database_url).close()
    result = command("stats")
    assert result.exit_code == 0
    assert "STATUSES" not in result.stdout
    if backend == "sqlite":  # a server may still have dead rows of what was there before
        assert "workflow_runs" not in result.stdout
    assert "workflow_runs" in command("stats", "--all").stdout


@pytest.mark.usefixtures("some")
def test_the_largest_table_comes_first(command: Command) -> None:
    table = command("stats").stdout.split("\n\n")[1].splitlines()
    assert table[1].split()[:3] == ["system_prompts", "chat", "1"]
    assert table[-1].split()[0] == "total"


@pytest.mark.usefixtures("some")
def test_stats_in_json(command: Command, database_url: str) -> None:
    found = json.loads(command("stats", "--json").stdout)
    with Store.open(database_url, read_only=True) as store:
        expected = stats(store)
    for part in ("blobs", "statuses"):
        assert found[part] == expected[part]
    assert {name: facts["rows"] for name, facts in found["tables"].items()} == {
        name: facts["rows"] for name, facts in expected["tables"].items()
    }


@pytest.mark.usefixtures("some")
def test_stats_quietly(command: Command) -> None:
    lines = dict(line.split(" ", 1) for line in command("stats", "-q").stdout.splitlines())
    assert lines["workflow_runs"].startswith("3 ")
    assert lines["chat_turns"].startswith("0 ")


@each(
    ("count", "shown"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (1_234_567, "1.2 MB"), (5 * 10**15, "5,000.0 TB")],
)
def test_sizes(count: int | None, shown: str) -> None:
    assert size(count) == shown


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
