"""Counts over all executions, and since local midnight."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from persist.workflows.schemas import ExecutionStats
from tests.contract.conftest import Raw
from tests.contract.workflows.making import done, plant_execution, skip, start

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
DAY, HOUR, MS = timedelta(days=1), timedelta(hours=1), timedelta(milliseconds=1)


def stats(store: Any) -> ExecutionStats:
    with store.read() as tx:
        found: ExecutionStats = tx.workflows.executions.stats()
    return found


@pytest.fixture
def time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """`time_zone("EST5")` makes that the process's zone until the test ends."""

    def set_(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield set_
    monkeypatch.undo()
    time.tzset()


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
    """(a)"""
    clock.set(now)
    time_zone(zone)
    plant_execution(raw, "yesterday", midnight - MS)
    assert stats(store).today == 0
    plant_execution(raw, "today", midnight)
    plant_execution(raw, "now", now)
    assert (stats(store).today, stats(store).total) == (2, 3)


def test_buckets_are_utc_whatever_the_zone(store: Any, raw: Raw, time_zone: Callable[[str], None]) -> None:
    """(a)"""
    time_zone("XXX-14")
    plant_execution(raw, "e", NOW)
    with store.read() as tx:
        days, hours = tx.workflows.executions.daily_stats(2), tx.workflows.executions.hourly_stats(2)
    assert [(one.bucket, one.total) for one in days] == [("2026-01-01", 0), ("2026-01-02", 1)]
    assert [(one.bucket, one.total) for one in hours] == [("2026-01-02T02", 0), ("2026-01-02T03", 1)]
