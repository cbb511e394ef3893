"""`persist limits`, `persist overrides` and `persist schedules`, on both databases."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from click.testing import Result

from persist import Store
from persist.testing import FrozenClock

pytestmark = pytest.mark.one_database

Command = Callable[..., Result]
EVIL = "k\x1b[2J"


@pytest.fixture(autouse=True)
def _made(database_url: str) -> None:
    Store.open(database_url).close()


def test_limits_are_set_listed_and_lifted(command: Command) -> None:
    assert command("limits", "ls").stderr == "No limits.\n"
    told = command("limits", "set", "workflow:build", "--concurrency", "3", "--rate", "1000", "--per", "90m")
    assert told.stdout == "Limited workflow:build: at once 3, rate 1,000 per 1:30:00.\n"
    made = json.loads(command("limits", "set", EVIL, "--concurrency", "1", "--json").stdout)
    assert (made["key"], made["concurrency"], made["rate"], made["per"]) == (EVIL, 1, None, None)
    head, *rows = command("limits", "ls").stdout.splitlines()
    assert head.split() == ["KEY", "AT", "ONCE", "RATE", "SET", "(UTC)"]
    assert rows[1].split()[:5] == ["workflow:build", "3", "1,000", "per", "1:30:00"]
    assert "\x1b" not in rows[0]
    assert [item["key"] for item in json.loads(command("limits", "ls", "--json").stdout)["items"]] == [EVIL, "workflow:build"]
    assert command("limits", "rm", "workflow:build").stdout == "Lifted workflow:build.\n"
    assert command("limits", "rm", EVIL, "-q").stdout == ""
    refused = command("limits", "rm", EVIL)
    assert (refused.exit_code, "There is no limit" in refused.stderr) == (1, True)


@pytest.mark.parametrize("options", [[], ["--rate", "3"], ["--concurrency", "0"], ["--rate", "1", "--per", "soon"]])
def test_a_limit_of_bad_values_is_refused(command: Command, options: list[str]) -> None:
    refused = command("limits", "set", "k", *options)
    assert refused.exit_code in (1, 2)
    assert "Traceback" not in refused.output
    assert command("limits", "ls", "-q").stdout == ""


def test_overrides_switch_workflows_and_schedules(command: Command, database_url: str) -> None:
    assert command("overrides", "ls").stderr == "No overrides.\n"
    assert command("overrides", "disable", "deploy", "--by", "maria").stdout == "Switched the workflow deploy off.\n"
    assert command("overrides", "disable", "nightly", "--schedule").stdout == "Switched the schedule nightly off.\n"
    told = command("overrides", "set", "nightly", "--cron", "0 4 * * *")
    assert told.stdout == "The schedule nightly fires at 0 4 * * *.\n"
    head, *rows = command("overrides", "ls").stdout.splitlines()
    assert head.split() == ["KIND", "NAME", "ENABLED", "CRON", "CHANGED", "(UTC)", "BY"]
    assert rows[0].split()[:4] == ["workflow", "deploy", "no", "-"]
    assert rows[0].split()[-1] == "maria"
    assert rows[1].split()[:8] == ["schedule", "nightly", "no", "0", "4", "*", "*", "*"]
    assert command("overrides", "enable", "nightly", "--schedule", "-q").stdout == ""
    assert command("overrides", "set", "nightly").stdout == "The schedule nightly has its own times.\n"
    found = json.loads(command("overrides", "ls", "--json").stdout)["items"]
    assert [(one["kind"], one["name"], one["enabled"]) for one in found] == [
        ("workflow", "deploy", False),
        ("schedule", "nightly", True),
    ]
    assert found[1]["schedule"] is None
    with Store.open(database_url) as store:
        assert not store.workflows.workflow_overrides.is_enabled("deploy")
    assert command("overrides", "ls", "-q").stdout == "deploy\nnightly\n"
    assert command("overrides", "rm", "deploy").stdout == "Removed the override of the workflow deploy.\n"
    assert command("overrides", "rm", "deploy").exit_code == 1
    assert command("overrides", "rm", "nightly", "--schedule").exit_code == 0
    assert command("overrides", "set", "nightly", "--cron", "soon").exit_code == 1


def test_schedules_are_set_switched_fired_and_removed(command: Command, database_url: str) -> None:
    assert command("schedules", "ls").stderr == "No schedules.\n"
    assert command("schedules", "fire").stderr == "Nothing is due.\n"
    made = command("schedules", "set", "nightly", "--workflow", "report", "--cron", "0 4 * * *", "--context", '{"a": 1}')
    assert made.stdout.startswith("The schedule nightly fires next at ")
    with Store.open(database_url, clock=FrozenClock(datetime(2020, 1, 1, tzinfo=UTC))) as store:
        store.workflows.schedules.set("old", workflow_name="report", cron="0 4 * * *")
    fired = json.loads(command("schedules", "fire", "--json").stdout)["items"]
    assert [(run["workflow_name"], run["trigger_id"], run["status"]) for run in fired] == [("report", "schedule/old", "queued")]
    assert command("schedules", "fire", "-q").stdout == ""
    assert command("schedules", "disable", "nightly").stdout == "The schedule nightly is off.\n"
    head, *rows = command("schedules", "ls").stdout.splitlines()
    assert head.split()[:6] == ["SCHEDULE", "WORKFLOW", "CRON", "TIME", "ZONE", "ENABLED"]
    assert [row.split()[0] for row in rows] == ["nightly", "old"]
    assert rows[0].split()[2:9] == ["0", "4", "*", "*", "*", "UTC", "no"]
    enabled = json.loads(command("schedules", "enable", "nightly", "--json").stdout)
    assert (enabled["enabled"], enabled["context"], enabled["workflow_name"]) == (True, {"a": 1}, "report")
    assert command("schedules", "ls", "-q").stdout == "nightly\nold\n"
    assert command("schedules", "rm", "old").stdout == "Removed old.\n"
    assert command("schedules", "rm", "old").exit_code == 1
    assert command("schedules", "enable", "old").exit_code == 1


@pytest.mark.parametrize("options", [["--cron", "soon"], ["--timezone", "Mars/Base"], ["--context", "{"], ["--context", "[]"]])
def test_a_schedule_of_bad_values_is_refused(command: Command, options: list[str]) -> None:
    given = {"--cron": "0 4 * * *", "--workflow": "report", **dict([options])}
    refused = command("schedules", "set", "nightly", *(word for pair in given.items() for word in pair))
    assert refused.exit_code in (1, 2)
    assert "Traceback" not in refused.output
    assert command("schedules", "ls", "-q").stdout == ""
