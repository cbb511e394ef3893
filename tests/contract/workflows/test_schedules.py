"""Schedules queue runs at the times of a cron expression, once however many processes ask."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue
from persist.workflows.schemas import RunStatus, Schedule, WorkflowRun
from tests.at_once import together
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.scenes import ask, taken

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def schedules(store: Any, verb: str, *args: Any, **options: Any) -> Any:
    return getattr(store.workflows.schedules, verb)(*args, **options)


def hourly(store: Any, name: str = "report", **options: Any) -> Schedule:
    made: Schedule = schedules(store, "set", name, **{"workflow_name": "build", "cron": "0 * * * *", **options})
    return made


def fired(store: Any, *args: Any) -> list[datetime]:
    """The instants for which a call queues runs."""
    runs: list[WorkflowRun] = schedules(store, "fire_due", *args)
    return [datetime.fromisoformat((run.context or {})["scheduled_for"]) for run in runs]


@pytest.fixture(autouse=True)
def full_hour(clock: Any) -> None:
    clock.set(clock().replace(hour=10, minute=0, second=0, microsecond=0))


def test_a_schedule_comes_back_as_it_was_set(store: Any, other: Any, clock: Any) -> None:
    made = hourly(store, timezone="Europe/Berlin", context={"a": 1}, catch_up="all")
    expected = {
        "name": "report",
        "workflow_name": "build",
        "cron": "0 * * * *",
        "timezone": "Europe/Berlin",
        "next_fire_at": clock() + HOUR,
        "last_fire_at": None,
        "fires_by": "0 * * * *",
        "enabled": True,
        "catch_up": "all",
        "updated_at": clock(),
        "context": {"a": 1},
    }
    assert made.model_dump() == expected
    assert schedules(other, "get", "report") == made
    assert schedules(other, "get", "unknown") is None
    second = hourly(store, "backup")
    assert schedules(other, "list") == [second, made]
    assert [schedules(store, "remove", name) for name in ("report", "report")] == [True, False]
    assert schedules(other, "list") == [second]


def test_a_run_is_queued_when_it_is_time(store: Any, clock: Any) -> None:
    hourly(store, context={"a": 1})
    assert fired(store) == []
    due = clock() + HOUR
    clock.set(due - timedelta(milliseconds=1))
    assert fired(store) == []
    clock.set(due)
    (run,) = schedules(store, "fire_due")
    assert (run.workflow_name, run.trigger_id, run.status, run.current_phase) == ("build", "schedule/report", "queued", "start")
    assert run.context == {"a": 1, "scheduled_for": due.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    assert ask(store, "get", run.id) == run
    assert fired(store) == []
    schedule = schedules(store, "get", "report")
    assert (schedule.last_fire_at, schedule.next_fire_at) == (due, due + HOUR)
    lease = taken(store)
    assert lease.run_id == run.id


def test_in_the_hour_that_comes_twice_nothing_is_queued_that_is_over(store: Any, clock: Any) -> None:
    """On 25 October 2026 it was half past two in Berlin at 0:30 and at 1:30 UTC."""
    clock.set(datetime(2026, 10, 25, 1, 10, tzinfo=UTC))
    made = schedules(store, "set", "nightly", workflow_name="build", cron="30 2 * * *", timezone="Europe/Berlin")
    tomorrow = datetime(2026, 10, 26, 1, 30, tzinfo=UTC)
    assert made.next_fire_at == tomorrow
    assert fired(store) == fired(store, tomorrow - timedelta(milliseconds=1)) == []
    clock.set(tomorrow)
    assert fired(store) == [tomorrow]


def test_the_last_of_thousands_of_missed_fires_is_caught_up_on(store: Any, clock: Any) -> None:
    clock.set(datetime(2026, 1, 5, tzinfo=UTC) - HOUR)  # an hour before a Monday
    schedules(store, "set", "mondays", workflow_name="build", cron="* * * * 1", catch_up="one")
    clock.advance(delta=2 * DAY + HOUR)
    assert fired(store) == [datetime(2026, 1, 5, 23, 59, tzinfo=UTC)]


@pytest.mark.parametrize("spoilt", ["timezone = 'Mars/Base'", "cron = 'never', fires_by = 'never'"])
def test_a_schedule_that_cannot_be_kept_stops_no_other_one(store: Any, clock: Any, raw: Raw, spoilt: str) -> None:
    for name in ("bad", "good"):
        hourly(store, name)
    raw.rows(f"UPDATE workflow_schedules SET {spoilt} WHERE name = 'bad'")
    begin = clock()
    clock.advance(delta=HOUR)
    assert fired(store) == [begin + HOUR]
    assert fired(store) == []
    schedules(store, "set", "bad", workflow_name="build", cron="0 * * * *")
    clock.advance(delta=HOUR)
    assert fired(store) == [begin + 2 * HOUR] * 2


@pytest.mark.parametrize(("catch_up", "hours"), [("one", [5]), ("all", [1, 2, 3, 4, 5]), ("none", [])])
def test_missed_fires_are_caught_up_as_it_says(store: Any, clock: Any, catch_up: str, hours: list[int]) -> None:
    hourly(store, catch_up=catch_up)
    begin = clock()
    clock.advance(delta=5.5 * HOUR)
    assert fired(store) == [begin + hour * HOUR for hour in hours]
    assert fired(store) == []
    clock.set(begin + 6 * HOUR + timedelta(seconds=59))
    assert fired(store) == [begin + 6 * HOUR], "a moment late is not missed"


def test_a_long_outage_is_caught_up_in_pieces(store: Any, clock: Any) -> None:
    schedules(store, "set", "tick", workflow_name="build", cron="* * * * *", catch_up="all")
    begin = clock()
    clock.advance(delta=1500 * MINUTE)
    found = [fired(store) for _ in range(3)]
    assert [len(some) for some in found] == [1000, 500, 0]
    assert found[0] + found[1] == [begin + number * MINUTE for number in range(1, 1501)]


def test_setting_it_again_loses_no_fire(store: Any, clock: Any) -> None:
    hourly(store)
    due = clock() + HOUR
    clock.set(due + MINUTE)
    assert hourly(store, context={"new": 1}).next_fire_at == due
    assert fired(store) == [due]
    changed = hourly(store, cron="30 * * * *")
    assert (changed.next_fire_at, changed.last_fire_at) == (due + HOUR / 2, due)


def test_each_instant_fires_once_whatever_a_clock_says(store: Any, clock: Any) -> None:
    """A process whose clock is behind sets the schedule anew: what was fired by that clock's future stays fired."""
    hourly(store)
    begin = clock()
    assert fired(store, begin + HOUR) == [begin + HOUR]
    schedules(store, "remove", "report")
    hourly(store)
    clock.set(begin + 2 * HOUR)
    schedules(store, "set", "report", workflow_name="build", cron="0 * * * *", catch_up="all")
    assert fired(store) == [begin + 2 * HOUR]


def override(store: Any, **options: Any) -> None:
    store.workflows.cron_overrides.set("report", **options)


def test_an_override_stops_it(store: Any, clock: Any) -> None:
    hourly(store, catch_up="all")
    begin = clock()
    override(store, enabled=False)
    clock.set(begin + 2.5 * HOUR)
    assert fired(store) == []
    override(store, enabled=True)
    assert fired(store) == [], "what it should not have done is not caught up"
    clock.set(begin + 3 * HOUR)
    assert fired(store) == [begin + 3 * HOUR]


def test_an_override_changes_its_times(store: Any, clock: Any) -> None:
    hourly(store)
    begin = clock()
    override(store, schedule="15 * * * *")
    assert fired(store) == []
    schedule = schedules(store, "get", "report")
    assert (schedule.cron, schedule.fires_by, schedule.next_fire_at) == ("0 * * * *", "15 * * * *", begin + HOUR / 4)
    clock.set(begin + HOUR / 4)
    assert fired(store) == [begin + HOUR / 4]
    assert hourly(store).next_fire_at == begin + 5 * HOUR / 4
    override(store, schedule=None)
    clock.set(begin + HOUR)
    assert fired(store) == []
    assert schedules(store, "get", "report").next_fire_at == begin + 2 * HOUR


@pytest.mark.parametrize("set_again", [False, True])
def test_an_override_that_cannot_be_scheduled_stops_its_schedule_alone(store: Any, clock: Any, set_again: bool) -> None:
    hourly(store, "odd")
    hourly(store, "even")
    store.workflows.cron_overrides.set("odd", schedule="0 0 15W * *")  # crons know it, the library does not
    if set_again:
        hourly(store, "odd")
    clock.advance(seconds=3600)
    assert len(fired(store)) == 1
    clock.advance(seconds=3600)
    assert len(fired(store)) == 1
    assert schedules(store, "get", "odd").next_fire_at is None
    store.workflows.cron_overrides.clear("odd")
    assert fired(store) == []
    clock.advance(seconds=3600)
    assert len(fired(store)) == 2


def test_a_schedule_that_is_switched_off_does_nothing(store: Any, clock: Any) -> None:
    hourly(store, enabled=False)
    begin = clock()
    clock.set(begin + 2.5 * HOUR)
    assert fired(store) == []
    assert hourly(store, catch_up="all").next_fire_at == begin + 3 * HOUR


@each(("path", "options"), [("cron", {"cron": "0 0 30 2 *"}), ("cron", {"cron": "@reboot"}), ("timezone", {"timezone": "Mars"})])
def test_nothing_is_scheduled_of_bad_values(store: Any, path: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as refused:
        hourly(store, **options)
    assert refused.value.path == path
    assert schedules(store, "list") == []


def test_asking_in_vain_waits_for_no_writer(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as idle, Store.open(sqlite_url) as busy:
        hourly(idle)
        with busy.begin() as tx:
            tx.workflows.workflow_overrides.set("other", enabled=True)
            assert idle.workflows.schedules.fire_due() == []


def test_of_many_that_ask_at_once_one_fires(open_store: Any, clock: Any) -> None:
    stores = [open_store() for _ in range(4)]
    for number in range(3):
        hourly(stores[0], f"s{number}", catch_up="all")
    clock.advance(delta=5 * HOUR)
    found: list[str] = []

    def fire(store: Any) -> None:
        for _ in range(3):
            found.extend(run.id for run in schedules(store, "fire_due"))

    together([partial(fire, store) for store in stores])
    assert len(found) == len(set(found)) == 15
    assert ask(stores[0], "count", status=RunStatus.QUEUED) == 15
