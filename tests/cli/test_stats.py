"""`persist stats`: a database at a glance."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from persist import Store
from persist.cli.output import size
from persist.maintenance import stats
from persist.testing import FrozenClock
from tests.cases import each
from tests.cli.golden import assert_golden
from tests.distributed_server import takes_triggers

Command = Callable[..., Result]

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


def test_stats_of_a_file_that_is_not_there(command: Command, tmp_path: Path) -> None:
    result = command("stats", "--url", f"sqlite:///{tmp_path / 'none.db'}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "none.db").exists()


@each(
    ("count", "shown"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (1_234_567, "1.2 MB"), (5 * 10**15, "5,000.0 TB")],
)
def test_sizes(count: int | None, shown: str) -> None:
    assert size(count) == shown
