"""`persist runs stats`, on both databases."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import Result

from persist import Store
from persist.testing import FrozenClock

pytestmark = pytest.mark.one_database

Command = Callable[..., Result]


@pytest.fixture
def today(database_url: str) -> str:
    """A day of executions: two of today, one of two days ago, one that still runs; runs of three statuses."""
    now = datetime.now(UTC).replace(hour=12)
    clock = FrozenClock(now)
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        for status in ("running", "running", "queued", "failed"):
            tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan", status=status)
        for age, skill, success in ((0, "triage:plan", True), (0, "evil\x1b[2J", False), (2, "triage:plan", True)):
            clock.set(now - timedelta(days=age))
            done = tx.workflows.executions.start(trigger_type="github", trigger_id="issue/1", skill=skill)
            tx.workflows.executions.finish(
                done.id, success=success, input_tokens=1000, output_tokens=20, cache_read_input_tokens=3, cost_usd=0.25
            )
        clock.set(now)
        tx.workflows.executions.start(trigger_type="cron", trigger_id="cron/1", skill="triage:apply")
    return now.strftime("%Y-%m-%d")


def test_stats_count_runs_and_executions(command: Command, today: str) -> None:
    result = command("runs", "stats")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    head, _, table = result.stdout.partition("\n\n")
    counts = dict(line.split(maxsplit=1) for line in head.splitlines())
    assert counts["runs"] == "4 (queued 1, running 2, failed 1)"
    assert counts["executions"].startswith("4 (today ")  # how many are of today is the local zone's to say
    assert counts["executions"].endswith(", running 1)")
    assert counts["skills"] == "evil\\x1b[2J 1, triage:apply 1, triage:plan 2"
    columns, *days = table.splitlines()
    assert columns.split() == ["DAY", "(UTC)", "TOTAL", "SUCCEEDED", "FAILED", "SKIPPED", "DEFERRED", "RUNNING", "TOKENS", "COST"]
    assert len(days) == 7
    assert days[-1].split() == [today, "3", "1", "1", "0", "0", "1", "2,046", "$0.5000"]
    assert days[-3].split()[1:] == ["1", "1", "0", "0", "0", "0", "1,023", "$0.2500"]
    assert days[0].split()[1:] == ["0", "0", "0", "0", "0", "0", "-", "-"]


def test_stats_of_some_days(command: Command, today: str) -> None:
    assert len(command("runs", "stats", "--days", "2", "-q").stdout.splitlines()) == 3
    assert command("runs", "stats", "--days", "1", "-q").stdout.splitlines()[-1].startswith(today)
    assert command("runs", "stats", "--days", "0").exit_code == 2


def test_stats_json(command: Command, today: str, database_url: str) -> None:
    found = json.loads(command("runs", "stats", "--json", "--days", "3").stdout)
    with Store.open(database_url) as store, store.read() as tx:
        stats, days = tx.workflows.executions.stats(), tx.workflows.executions.daily_stats(3)
    assert found == {
        "runs": {"queued": 1, "running": 2, "paused": 0, "succeeded": 0, "failed": 1, "cancelled": 0},
        "executions": stats.model_dump(mode="json"),
        "days": [day.model_dump(mode="json") for day in days],
    }
    assert [day["total"] for day in found["days"]] == [1, 0, 3]


def test_stats_of_nothing(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    result = command("runs", "stats")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()[:3]] == [["runs", "0"], ["executions", "0"], ["skills", "none"]]
