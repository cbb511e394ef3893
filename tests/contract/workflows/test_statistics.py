"""Executions counted in zero-filled UTC days and hours."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from persist.workflows.schemas import ExecutionStats, StatsBucket
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.making import done, plant_execution, skip, start

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
DAY, HOUR, MS = timedelta(days=1), timedelta(hours=1), timedelta(milliseconds=1)


def daily(store: Any, days: int) -> list[StatsBucket]:
    found: list[StatsBucket] = store.workflows.executions.daily_stats(days)
    return found


def hourly(store: Any, hours: int) -> list[StatsBucket]:
    found: list[StatsBucket] = store.workflows.executions.hourly_stats(hours)
    return found


def bucket(name: str, **counts: float) -> StatsBucket:
    zeros = dict.fromkeys(StatsBucket.model_fields, 0) | {"cost_usd": 0.0}
    return StatsBucket(**{**zeros, **counts, "bucket": name})


def totals(buckets: list[StatsBucket]) -> dict[str, int]:
    """The buckets that have executions."""
    return {one.bucket: one.total for one in buckets if one.total}


def test_no_executions_are_zeros(store: Any) -> None:
    names = [(NOW - number * DAY).strftime("%Y-%m-%d") for number in range(30)][::-1]
    found = daily(store, 30)
    assert found == [bucket(name) for name in names]
    assert found[-1].bucket == "2026-01-02"
    assert type(found[0].cost_usd) is float
    names = [(NOW - number * HOUR).strftime("%Y-%m-%dT%H") for number in range(30)][::-1]
    assert hourly(store, 30) == [bucket(name) for name in names]
    assert names[-1] == "2026-01-02T03"


def test_rows_on_a_border_belong_to_what_begins_there(store: Any, raw: Raw) -> None:
    midnight, hour = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, 3, tzinfo=UTC)
    for number, at in enumerate(
        (midnight - DAY - MS, midnight - DAY, midnight - MS, midnight, hour - MS, hour, hour + HOUR - MS)
    ):
        plant_execution(raw, f"e{number}", at)
    assert totals(daily(store, 3)) == {"2025-12-31": 1, "2026-01-01": 2, "2026-01-02": 4}
    assert totals(daily(store, 2)) == {"2026-01-01": 2, "2026-01-02": 4}
    assert totals(hourly(store, 2)) == {"2026-01-02T02": 1, "2026-01-02T03": 2}
    assert totals(hourly(store, 5)) == {"2026-01-01T23": 1, "2026-01-02T00": 1, "2026-01-02T02": 1, "2026-01-02T03": 2}


@each("now", [datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC) - MS])
def test_now_may_lie_on_a_border(store: Any, clock: Any, now: datetime) -> None:
    clock.set(now)
    start(store)
    day, hour = now.strftime("%Y-%m-%d"), now.strftime("%Y-%m-%dT%H")
    assert totals(daily(store, 2)) == {day: 1}
    assert totals(hourly(store, 2)) == {hour: 1}
    assert (daily(store, 2)[-1].bucket, hourly(store, 2)[-1].bucket) == (day, hour)


def test_days_go_on_over_a_leap_day(store: Any, clock: Any) -> None:
    clock.set(datetime(2028, 3, 1, 12, tzinfo=UTC))
    assert [one.bucket for one in daily(store, 3)] == ["2028-02-28", "2028-02-29", "2028-03-01"]


def test_what_starts_in_the_future_is_not_yet_counted(store: Any, raw: Raw) -> None:
    plant_execution(raw, "tomorrow", NOW + DAY)
    plant_execution(raw, "next hour", NOW + HOUR)
    assert totals(hourly(store, 2)) == {}
    assert totals(daily(store, 2)) == {"2026-01-02": 1}


def test_an_execution_counts_where_it_started(store: Any, clock: Any) -> None:
    id = start(store)
    clock.advance(delta=DAY)
    store.workflows.executions.finish(id, success=True)
    assert daily(store, 2) == [bucket("2026-01-02", total=1, succeeded=1), bucket("2026-01-03")]


def test_a_row_that_ended_without_a_result_failed(store: Any, raw: Raw) -> None:
    """As its outcome says."""
    plant_execution(raw, "e", NOW, finished_at=NOW)
    assert daily(store, 1) == [bucket("2026-01-02", total=1, failed=1)]


@pytest.mark.parametrize("seed", range(3))
def test_buckets_agree_with_the_rows_themselves(store: Any, raw: Raw, seed: int) -> None:
    draw = random.Random(seed)
    expected: dict[str, dict[str, float]] = {}
    for number in range(150):
        at = NOW - timedelta(milliseconds=draw.randrange(3 * 86_400_000))
        finished = at if draw.random() < 0.8 else None
        success = None if finished is None else draw.choice([True, False])
        stop = draw.choice([None, "skipped", "error_quota", "end_turn"])
        tokens = [draw.choice([None, draw.randrange(1000)]) for _ in range(4)]
        cost = draw.choice([None, draw.randrange(100) / 4])
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        fields = dict(zip(names, tokens, strict=True))
        plant_execution(raw, f"e{number}", at, finished_at=finished, success=success, stop_reason=stop, cost_usd=cost, **fields)
        outcome = (
            "running"
            if finished is None
            else "succeeded"
            if success
            else {"skipped": "skipped", "error_quota": "deferred"}.get(stop or "", "failed")
        )
        for picture in ("%Y-%m-%d", "%Y-%m-%dT%H"):
            counts = expected.setdefault(at.strftime(picture), {})
            for name, amount in (
                ("total", 1),
                (outcome, 1),
                ("input_tokens", tokens[0] or 0),
                ("output_tokens", tokens[1] or 0),
                ("total_tokens", sum(token or 0 for token in tokens[:3])),
                ("cost_usd", cost or 0.0),
            ):
                counts[name] = counts.get(name, 0) + amount
    for found in (daily(store, 5), hourly(store, 80)):
        assert found == [bucket(one.bucket, **expected.get(one.bucket, {})) for one in found]


def test_as_many_buckets_as_are_asked_for(store: Any) -> None:
    with store.read() as tx:
        verbs = tx.workflows.executions
        assert len(verbs.daily_stats(3650)) == 3650
        assert len(verbs.hourly_stats(24 * 31)) == 24 * 31


def stats(store: Any) -> ExecutionStats:
    found: ExecutionStats = store.workflows.executions.stats()
    return found


def test_stats_of_nothing_are_zeros(store: Any) -> None:
    assert stats(store) == ExecutionStats(total=0, today=0, running=0, by_skill={}, by_trigger={})


def test_stats_count_everything(store: Any, raw: Raw) -> None:
    start(store, skill="a:x", trigger_type="webhook")
    start(store, skill="a:y", trigger_type="cron")
    done(store, skill="a:x", trigger_type="webhook")
    skip(store, skill="a:x", trigger_id="new")
    plant_execution(raw, "old", NOW - 400 * DAY, skill="chat", trigger_type="chat")
    assert stats(store) == ExecutionStats(
        total=5,
        today=4,
        running=3,
        by_skill={"a:x": 3, "a:y": 1, "chat": 1},
        by_trigger={"webhook": 2, "cron": 1, "api": 1, "chat": 1},
    )


@pytest.mark.parametrize(
    ("zone", "now", "midnight"),
    [
        ("UTC0", NOW, datetime(2026, 1, 2, tzinfo=UTC)),
        ("EST5", NOW, datetime(2026, 1, 1, 5, tzinfo=UTC)),
        ("XXX-14", NOW, datetime(2026, 1, 1, 10, tzinfo=UTC)),
        ("XXX-5:45", NOW, datetime(2026, 1, 1, 18, 15, tzinfo=UTC)),
        # on the days when clocks change, midnight is on the other side of the change
        ("CET-1CEST,M3.5.0,M10.5.0/3", datetime(2026, 3, 29, 12, tzinfo=UTC), datetime(2026, 3, 28, 23, tzinfo=UTC)),
        ("CET-1CEST,M3.5.0,M10.5.0/3", datetime(2026, 10, 25, 12, tzinfo=UTC), datetime(2026, 10, 24, 22, tzinfo=UTC)),
    ],
)
def test_today_begins_at_local_midnight(
    store: Any, raw: Raw, clock: Any, time_zone: Callable[[str], None], zone: str, now: datetime, midnight: datetime
) -> None:
    clock.set(now)
    time_zone(zone)
    plant_execution(raw, "yesterday", midnight - MS)
    assert stats(store).today == 0
    plant_execution(raw, "today", midnight)
    plant_execution(raw, "now", now)
    assert (stats(store).today, stats(store).total) == (2, 3)


def test_buckets_are_utc_whatever_the_zone(store: Any, raw: Raw, time_zone: Callable[[str], None]) -> None:
    time_zone("XXX-14")
    plant_execution(raw, "e", NOW)
    with store.read() as tx:
        days, hours = tx.workflows.executions.daily_stats(2), tx.workflows.executions.hourly_stats(2)
    assert [(one.bucket, one.total) for one in days] == [("2026-01-01", 0), ("2026-01-02", 1)]
    assert [(one.bucket, one.total) for one in hours] == [("2026-01-02T02", 0), ("2026-01-02T03", 1)]
