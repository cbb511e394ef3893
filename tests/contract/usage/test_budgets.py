"""Budgets: what counts on them, what they stop, and what they say once in a period."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from persist.errors import BudgetExceeded, InvalidValue
from persist.settings import Settings
from persist.usage.schemas import Period
from persist.usage.spending import span_of
from tests.cases import each
from tests.contract.faces import every_way
from tests.contract.usage.scenes import BOX, NOON, budget, record, sums, used
from tests.contract.workflows.scenes import claim, queue

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture(autouse=True)
def _at_noon(clock: Any) -> None:
    clock.advance(seconds=(NOON - clock()).total_seconds())


def test_a_budget_is_set_read_replaced_and_deleted(store: Any, clock: Any) -> None:
    made = budget(store, "owner:maria", "month", 500, timezone="Europe/Berlin")
    assert (made.key, made.period, made.max_cost_usd_micros, made.max_tokens) == ("owner:maria", "month", 500, None)
    assert (made.timezone, made.updated_at) == ("Europe/Berlin", clock())
    other = budget(store, "agent:build", max_tokens=10)
    with store.begin() as tx:
        budgets = tx.usage.budgets
        assert (budgets.list(), budgets.get("agent:build")) == ([other, made], other)
        replaced = budgets.set("owner:maria", "month", max_tokens=7)
        assert (replaced.max_cost_usd_micros, replaced.timezone) == (None, "UTC")
        assert [budgets.delete("agent:build"), budgets.delete("agent:build")] == [True, False]
        assert (budgets.list(), budgets.get("owner:maria")) == ([replaced], None)


@each(
    ("path", "given"),
    [
        ("key", {"key": "maria", "max_tokens": 1}),
        ("key", {"key": "town:x", "max_tokens": 1}),
        ("key", {"key": "owner:", "max_tokens": 1}),
        ("max_cost_usd_micros", {"key": "owner:m"}),
        ("timezone", {"key": "owner:m", "max_tokens": 1, "timezone": "Europe/Nowhere"}),
    ],
)
def test_a_budget_of_bad_values_is_refused(store: Any, path: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as refused:
        budget(store, **given)
    assert refused.value.path == path
    assert store.usage.budgets.list() == []


@each(
    ("period", "timezone", "at", "starts_at", "ends_at"),
    [
        ("hour", "Asia/Kolkata", "2026-03-10T12:34+00:00", "2026-03-10T12:00+00:00", "2026-03-10T13:00+00:00"),
        ("day", "UTC", "2026-03-10T12:34+00:00", "2026-03-10T00:00+00:00", "2026-03-11T00:00+00:00"),
        ("day", "Europe/Berlin", "2026-03-29T12:00+00:00", "2026-03-28T23:00+00:00", "2026-03-29T22:00+00:00"),
        ("day", "America/New_York", "2026-03-10T02:00+00:00", "2026-03-09T04:00+00:00", "2026-03-10T04:00+00:00"),
        ("week", "Europe/Berlin", "2026-03-29T21:59+00:00", "2026-03-22T23:00+00:00", "2026-03-29T22:00+00:00"),
        ("week", "America/New_York", "2024-12-30T04:59+00:00", "2024-12-23T05:00+00:00", "2024-12-30T05:00+00:00"),
        ("week", "UTC", "2024-12-30T00:00+00:00", "2024-12-30T00:00+00:00", "2025-01-06T00:00+00:00"),
        ("week", "UTC", "0001-01-01T00:00+00:00", "0001-01-01T00:00+00:00", "0001-01-08T00:00+00:00"),
        ("month", "Europe/Berlin", "2026-12-31T23:30+00:00", "2026-12-31T23:00+00:00", "2027-01-31T23:00+00:00"),
        ("month", "UTC", "2024-02-29T23:59+00:00", "2024-02-01T00:00+00:00", "2024-03-01T00:00+00:00"),
        ("day", "Mars/Phobos", "2026-03-10T12:34+00:00", "2026-03-10T00:00+00:00", "2026-03-11T00:00+00:00"),
        ("total", "UTC", "2026-03-10T12:34+00:00", "0001-01-01T00:00+00:00", "9999-12-31T00:00+00:00"),
        ("day", "UTC", "9999-12-31T12:00+00:00", "9999-12-31T00:00+00:00", "9999-12-31T00:00+00:00"),
    ],
)
def test_periods_follow_the_clock_of_their_zone(period: str, timezone: str, at: str, starts_at: str, ends_at: str) -> None:
    span = span_of(Period(period), timezone, datetime.fromisoformat(at).astimezone(ZoneInfo("UTC")))
    assert span == (datetime.fromisoformat(starts_at), datetime.fromisoformat(ends_at))


def test_what_counts_on_a_budget(store: Any, clock: Any) -> None:
    """Calls of the key alone, in the period in which they happened; and those from before it was set."""
    record(store, 5, owner="maria", token_input=3)
    record(store, 90, owner="tom")
    record(store, 7, owner="maria", at=NOON - DAY)
    record(store, 11, owner="maria", at=NOON + DAY)
    for period in ("day", "hour", "total"):
        budget(store, "owner:maria", period, 10_000, 500)
    budget(store, "instance:box", "day", 10_000)
    record(store, 2, owner="maria", token_output=1, token_cache_read=4, token_reasoning=1)
    record(store, 30, owner="maria", at=NOON - DAY)
    assert used(store, "owner:maria") == [(7, 8, 0), (7, 8, 0), (55, 8, 0)]
    assert used(store, "instance:box") == [(97, 8, 0)]
    clock.advance(seconds=86_400)
    assert used(store, "owner:maria") == [(11, 0, 0), (11, 0, 0), (55, 8, 0)]


def test_calls_from_before_1970_count_on_a_total(store: Any, clock: Any) -> None:
    """Also those from before it was set; and it stops calls and claims of that time."""
    then = NOON - timedelta(days=30_000)
    record(store, 5, owner="maria", at=then)
    budget(store, "owner:maria", "total", 10)
    budget(store, "owner:tom", "total", 0)
    record(store, 5, owner="maria", at=then)
    assert used(store, "owner:maria") == [(10, 0, 100)]
    for owner in ("maria", "tom"):
        with pytest.raises(BudgetExceeded):
            record(store, 1, owner=owner, at=then, within_budget=True)
        queue(store, concurrency_key=f"owner:{owner}")
    clock.advance(seconds=-30_000 * 86_400)
    assert claim(store) is None


@pytest.mark.parametrize("limit", [{"max_cost_usd_micros": 100}, {"max_tokens": 100}])
def test_eighty_and_a_hundred_per_cent_are_events_once_in_a_period(store: Any, clock: Any, limit: dict[str, int]) -> None:
    figure = "cost_usd_micros" if "max_cost_usd_micros" in limit else "token_input"
    store.switch_events(True)
    budget(store, "owner:maria", "day", **limit)
    passed = []
    for amount in (79, 1, 19, 1, 500):
        record(store, owner="maria", **{figure: amount})
        passed.append(used(store, "owner:maria")[0][2])
    assert passed == [0, 80, 80, 100, 100]
    clock.advance(seconds=86_400)
    record(store, owner="maria", at=clock(), **{figure: 1000})
    for key in ("agent:a", "owner:otto"):
        budget(store, key, "day", **limit)
    record(store, agent="a", owner="otto", at=clock(), **{figure: 80})
    told = [event for event in store.events.read("*", limit=1000) if event.type.startswith("budget.")]
    types = ["warned", "exceeded", "warned", "exceeded", "set", "set", "warned", "warned"]
    assert [event.type for event in told] == [f"budget.{word}" for word in ("set", *types)]
    keys = [[change["key"]["key"] for change in event.data["changes"]] for event in told[-2:]]
    assert keys == [["agent:a"], ["owner:otto"]]  # and nothing that the call goes on to write


@every_way
def test_no_run_of_a_used_up_budget_is_claimed(store: Any, clock: Any) -> None:
    """Others are, in their order; those go on in the next period, or when the budget is raised or lifted."""
    held = [queue(store, id=f"run_{n}", concurrency_key="owner:maria", priority=1) for n in range(3)]
    free = queue(store, id="run_8", concurrency_key="owner:tom")
    flow = queue(store, id="run_9", workflow_name="import")
    budget(store, "owner:maria", "day", 100)
    budget(store, "workflow:import", "hour", max_tokens=0)
    record(store, 99, owner="maria")
    first = claim(store)
    assert first is not None
    assert first.run_id == held[0]
    record(store, 1, owner="maria")
    second = claim(store)
    assert second is not None
    assert (second.run_id, claim(store)) == (free, None)
    budget(store, "owner:maria", "day", 101)
    third = claim(store)
    assert third is not None
    record(store, 50, owner="maria")
    assert (third.run_id, claim(store)) == (held[1], None)
    assert store.usage.budgets.delete("workflow:import", "hour") is True
    fourth = claim(store)
    assert fourth is not None
    assert (fourth.run_id, claim(store)) == (flow, None)
    clock.advance(seconds=86_400)
    assert claim(store, lease=DAY) is not None


def test_many_runs_of_a_used_up_budget_are_passed_over(store: Any) -> None:
    with store.begin() as tx:
        for n in range(300):
            about = {"trigger_id": f"t{n}", "current_phase": "plan", "status": "queued"}
            tx.workflows.runs.create("build", **about, concurrency_key="owner:maria" if n < 299 else None)
    budget(store, "owner:maria", "total", 0)
    lease = claim(store)
    assert lease is not None
    assert lease.run.trigger_id == "t299"
    assert claim(store) is None


def test_todays_costs_of_a_workspace_with_what_is_in_flight_stop_its_queue(store: Any, clock: Any) -> None:
    """The published rule of task queues: the budget is on what today's tasks cost, done or still at work."""
    here = {"workspace_id": "project"}
    found = [{"id": f"t{n}", "source_id": "s", "kind": "issue", "title": "x"} for n in range(3)]
    budget(store, "workspace:project", "day", 100)
    with store.begin() as tx:
        tasks, sample = tx.telemetry.tasks, tx.telemetry.usage.sample
        tasks.poll(found, **here)
        assert tasks.claim("box", max_parallel=9, **here).id == "t0"
        sample(at=NOON, model="large", cost_usd_micros=60, task_id="t0", **BOX, **here)
        tasks.complete("t0", **here)
        assert tasks.claim("box", max_parallel=9, **here).id == "t1"
        sample(at=NOON, model="large", cost_usd_micros=40, task_id="t1", **BOX, **here)
        assert tasks.claim("box", max_parallel=9, **here) is None
    clock.advance(seconds=86_400)
    assert store.telemetry.tasks.claim("box", max_parallel=9, **here).id == "t2"


@every_way
def test_a_recorder_begins_within_the_budget_if_it_is_asked_to(open_store: Any) -> None:
    store = open_store(settings=Settings(record_within_budget=True))
    session = store.chat.sessions.create(agent="build", model={}, owner="maria").id
    budget(store, "owner:maria", "day", 100)
    with store.record(session) as recorder:
        recorder.feed({"type": "start"})
        recorder.step_usage(0, input_tokens=1, output_tokens=1, cost_usd=0.5)
        recorder.feed({"type": "finish"})
    with pytest.raises(BudgetExceeded) as refused, store.record(session) as recorder:
        recorder.feed({"type": "start"})
    error = refused.value
    assert (error.key, error.period, error.cost_usd_micros, error.tokens) == ("owner:maria", "day", 500_000, 2)
    assert len(store.chat.messages.list(session)) == 1


def test_a_call_over_budget_happened_and_is_recorded_unless_it_asks(store: Any) -> None:
    budget(store, "agent:build", "hour", max_tokens=10)
    record(store, agent="build", token_input=10)
    record(store, agent="build", token_input=10)
    with store.begin() as tx:
        given = {"at": NOON, "model": "large", "agent": "build", "within_budget": True, **BOX}
        with pytest.raises(BudgetExceeded):
            tx.usage.calls.record(**given)
        with pytest.raises(BudgetExceeded):
            tx.telemetry.usage.sample(**given)
        with pytest.raises(BudgetExceeded):
            tx.usage.budgets.check(["owner:maria", "agent:build"])
        tx.usage.budgets.check(["owner:maria"])
    assert (used(store, "agent:build"), sums(store, "by_day")[0].calls) == ([(0, 20, 100)], 2)


@every_way
def test_the_retry_of_a_call_that_used_the_budget_up_is_no_call_over_budget(store: Any) -> None:
    budget(store, "owner:maria", "day", max_tokens=10)
    given = {"at": NOON, "model": "large", "owner": "maria", "token_input": 20, "within_budget": True, **BOX}
    with store.begin() as tx:
        for _ in range(2):
            assert tx.telemetry.usage.sample(key="k", **given).token_input == 20
        assert tx.usage.calls.record(key="k", **given) is False
        for other in ({"key": "other"}, {}):
            with pytest.raises(BudgetExceeded):
                tx.usage.calls.record(**given, **other)
            with pytest.raises(BudgetExceeded):
                tx.telemetry.usage.sample(**given, **other)
    assert (used(store, "owner:maria"), sums(store, "by_day")[0].calls) == ([(0, 20, 100)], 1)


def test_a_budget_of_nothing_is_used_up_in_every_period(store: Any, clock: Any) -> None:
    made = queue(store, concurrency_key="owner:maria")
    budget(store, "owner:maria", max_tokens=0)
    for _ in range(2):
        assert claim(store) is None
        assert used(store, "owner:maria") == [(0, 0, 100)]
        with store.read() as tx, pytest.raises(BudgetExceeded):
            tx.usage.budgets.check(["owner:maria"])
        clock.advance(delta=2 * DAY)
    budget(store, "owner:maria", max_tokens=1)
    found = claim(store)
    assert found is not None
    assert found.run_id == made
