"""`persist usage`, `persist budgets` and `persist limits`, on both databases."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from persist import Store
from persist.cli.output import cells
from persist.cli.usage import bar
from persist.testing import FrozenClock
from tests.cli.conftest import Command

pytestmark = pytest.mark.one_database

EVIL = "m\x1b[2J"
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def _made(database_url: str) -> None:
    Store.open(database_url).close()


def test_usage_is_summed_up_with_bars(command: Command, database_url: str) -> None:
    assert command("usage").stderr == "No calls.\n"
    now = datetime.now(UTC)
    with Store.open(database_url) as store, store.begin() as tx:
        for model, cost, age in ((EVIL, 1_500_000, 0), ("模型", 750_000, 1), ("small", None, 1), ("small", 1_000, 400)):
            tx.usage.calls.record(model=model, run_id="r", at=now - age * DAY, cost_usd_micros=cost, token_input=1234)
    head, *lines = command("usage").stdout.splitlines()
    assert head.split() == ["DAY", "CALLS", "INPUT", "OUTPUT", "CACHED", "COST"]
    assert [line.split()[:6] for line in lines] == [
        [f"{now:%Y-%m-%d}", "1", "1,234", "0", "0", "$1.5000"],
        [f"{now - DAY:%Y-%m-%d}", "2", "2,468", "0", "0", "$0.7500+"],
        [f"{now - 400 * DAY:%Y-%m-%d}", "1", "1,234", "0", "0", "$0.0010"],
    ]
    longest, half, least = (line.count("#") for line in lines)
    assert (half, least) == (longest // 2, 1)
    by_model = command("usage", "--by", "model", "--since", "7d").stdout
    assert "\x1b" not in by_model
    assert command("usage", "--by", "model", "--model", "small", "-q").stdout == "$0.0010\n"
    first = json.loads(command("usage", "--by", "model", "--limit", "1", "--json").stdout)
    assert [(item["group"], item["cost_usd_micros"]) for item in first["items"]] == [(EVIL, 1_500_000)]
    rest = json.loads(command("usage", "--by", "model", "--after", first["cursor"], "--json").stdout)
    assert ([item["group"] for item in rest["items"]], rest["cursor"]) == (["模型", "small"], None)


def test_what_executions_cost_that_no_sum_has_is_said(command: Command, database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        run, other = (tx.workflows.runs.create("triage", trigger_id=name, current_phase="s").id for name in ("one", "two"))
        named = [(run, 0.5, "large"), (run, 0.1, "large"), (other, 0.3, "large")]
        for run_id, cost, model in ((run, 0.25, None), *named, (None, 1.0, None)):
            made = tx.workflows.executions.start(skill="s", trigger_type="t", trigger_id="i", workflow_run_id=run_id)
            tx.workflows.executions.finish(made.id, success=True, cost_usd=cost, model=model, counted_elsewhere=model is None)
    said = command("usage", "--by", "model").stdout.splitlines()
    assert said[1].split()[:2] == ["large", "3"]
    assert said[2:] == ["Beside these, executions of 2 runs cost $1.2500 that no sum has."]
    found = json.loads(command("usage", "--json").stdout)
    assert found["uncounted"] == {"runs": 2, "cost_usd_micros": 1_250_000}
    for options in (("--workflow", "triage"), ("--since", "1d"), ("-q",)):
        assert "Beside these" not in command("usage", *options).stdout


def test_long_names_are_cut_to_the_terminal(command: Command, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle, so that their versions stay to be seen; the whole ones are in the JSON."""
    names = ["x" * 300 + "-1", "x" * 300 + "-2", "模" * 150, "short"]
    with Store.open(database_url) as store, store.begin() as tx:
        for cost, model in enumerate(names, 1):
            tx.usage.calls.record(model=model, run_id="r", cost_usd_micros=cost * 1_000_000, token_input=1234)
    for width in (80, 100, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = command("usage", "--by", "model").stdout.splitlines()
        assert len(lines) == 5
        assert max(map(cells, lines)) <= width
        assert len({cells(line[: line.index("$")]) for line in lines[1:]}) == 1, "the columns are below each other"
        assert [line.split()[0][-2:] for line in lines[1:]] == ["rt", "模模", "-2", "-1"]
    found = json.loads(command("usage", "--by", "model", "--json").stdout)["items"]
    assert [item["group"] for item in found] == names[::-1]


def test_bars() -> None:
    assert [bar(figure, 100, 10) for figure in (0, 1, 55, 100)] == ["", "#", "#####", "##########"]


def test_budgets_are_set_listed_and_lifted(command: Command, database_url: str) -> None:
    assert command("budgets", "ls").stderr == "No budgets.\n"
    assert command("budgets", "set", "owner:maria", "--cost", "2.5").stdout == "Set owner:maria: $2.5000 per day.\n"
    given = ("--per", "month", "--tokens", "1000", "--timezone", "Europe/Berlin", "--json")
    made = json.loads(command("budgets", "set", "agent:build", *given).stdout)
    assert (made["period"], made["max_cost_usd_micros"], made["max_tokens"]) == ("month", None, 1000)
    with Store.open(database_url) as store:
        store.usage.calls.record(model="m", run_id="r", owner="maria", cost_usd_micros=2_000_000)
    head, *rows = command("budgets", "ls").stdout.splitlines()
    assert head.split() == ["KEY", "PERIOD", "COST", "TOKENS", "USED", "UNTIL", "(UTC)"]
    assert rows[1].split()[:9] == ["owner:maria", "day", "$2.0000", "of", "$2.5000", "0", "over", "80", "%"]
    assert [item["passed"] for item in json.loads(command("budgets", "ls", "--json").stdout)["items"]] == [0, 80]
    assert command("budgets", "ls", "-q").stdout == "agent:build\nowner:maria\n"
    assert command("budgets", "rm", "owner:maria").stdout == "Lifted owner:maria per day.\n"
    refused = command("budgets", "rm", "owner:maria")
    assert (refused.exit_code, "There is no budget" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    "options",
    [
        ["maria", "--cost", "1"],
        ["owner:m"],
        ["owner:m", "--cost", "-1"],
        ["owner:m", "--cost", "nan"],
        ["owner:m", "--per", "fortnight"],
    ],
)
def test_a_budget_of_bad_values_is_refused(command: Command, options: list[str]) -> None:
    refused = command("budgets", "set", *options)
    assert refused.exit_code in (1, 2)
    assert "Traceback" not in refused.output
    assert command("budgets", "ls", "-q").stdout == ""


# `persist limits`, `persist overrides` and `persist schedules`, on both databases.


ODD_KEY = "k\x1b[2J"


def test_limits_are_set_listed_and_lifted(command: Command) -> None:
    assert command("limits", "ls").stderr == "No limits.\n"
    told = command("limits", "set", "workflow:build", "--concurrency", "3", "--rate", "1000", "--per", "90m")
    assert told.stdout == "Limited workflow:build: at once 3, rate 1,000 per 1:30:00.\n"
    made = json.loads(command("limits", "set", ODD_KEY, "--concurrency", "1", "--json").stdout)
    assert (made["key"], made["concurrency"], made["rate"], made["per"]) == (ODD_KEY, 1, None, None)
    head, *rows = command("limits", "ls").stdout.splitlines()
    assert head.split() == ["KEY", "AT", "ONCE", "RATE", "SET", "(UTC)"]
    assert rows[1].split()[:5] == ["workflow:build", "3", "1,000", "per", "1:30:00"]
    assert "\x1b" not in rows[0]
    assert [item["key"] for item in json.loads(command("limits", "ls", "--json").stdout)["items"]] == [ODD_KEY, "workflow:build"]
    assert command("limits", "rm", "workflow:build").stdout == "Lifted workflow:build.\n"
    assert command("limits", "rm", ODD_KEY, "-q").stdout == ""
    refused = command("limits", "rm", ODD_KEY)
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
