"""Limits: how many runs of a workflow or a key start in a period; and limits that other programs wrote."""

from datetime import timedelta
from typing import Any

import pytest

from tests.contract.workflows.limiting import claimed, ids, limit, queue
from tests.contract.workflows.scenes import do, stored

MINUTE = timedelta(minutes=1)
LATER = timedelta(seconds=30)
YEAR = 365 * 24 * 3600


@pytest.mark.parametrize("key", ["acme", "workflow:build"])
def test_at_most_so_many_start_in_any_period(store: Any, clock: Any, key: str) -> None:
    limit(store, key, rate=3, per=MINUTE)
    waiting = [queue(store, concurrency_key="acme") for _ in range(9)]
    starts: list[Any] = []
    for _ in range(30):
        for lease in claimed(store, 2):
            starts.append(clock())
            do(store, "complete", lease)
        clock.advance(seconds=20)
        queue(store, "other", concurrency_key="other")
    assert len(starts) >= len(waiting)
    mine = [stored(store, id) for id in waiting]
    assert all(run.status == "succeeded" for run in mine)
    ends = sorted(run.finished_at for run in mine if run.finished_at is not None)
    assert all(later - earlier >= MINUTE for earlier, later in zip(ends, ends[3:], strict=False))


def test_a_start_counts_each_time_a_run_is_claimed(store: Any, clock: Any) -> None:
    limit(store, "acme", rate=2, per=MINUTE)
    first = queue(store, concurrency_key="acme")
    for _ in range(2):
        (lease,) = claimed(store)
        do(store, "release", lease)
    assert claimed(store) == []
    clock.advance(seconds=59)
    assert claimed(store) == []
    clock.advance(seconds=1)
    (lease,) = claimed(store, lease=LATER)
    assert lease.run_id == first
    clock.advance(seconds=31)
    assert [one.run.restart_count for one in claimed(store, lease=LATER)] == [1]
    clock.advance(seconds=28)
    assert claimed(store) == []
    clock.advance(seconds=3)
    assert [one.run.restart_count for one in claimed(store)] == [2]


def test_a_rate_that_is_raised_or_lowered_counts_what_has_started(store: Any, clock: Any) -> None:
    limit(store, "acme", rate=2, per=MINUTE)
    waiting = [queue(store, concurrency_key="acme") for _ in range(12)]
    assert ids(claimed(store)) == waiting[:2]
    limit(store, "acme", rate=5, per=MINUTE)
    assert ids(claimed(store)) == waiting[2:5]
    limit(store, "acme", rate=1, per=MINUTE)
    assert claimed(store) == []
    clock.advance(seconds=60)
    assert ids(claimed(store)) == waiting[5:6]
    limit(store, "acme", 100)
    assert ids(claimed(store, 3)) == waiting[6:9]
    limit(store, "acme", rate=2, per=MINUTE)
    assert ids(claimed(store)) == waiting[9:11]


def test_a_clock_that_was_far_ahead_blocks_nobody_for_ever(store: Any, clock: Any) -> None:
    limit(store, "acme", rate=1, per=MINUTE)
    waiting = [queue(store, concurrency_key="acme") for _ in range(2)]
    clock.advance(seconds=YEAR)
    assert ids(claimed(store)) == waiting[:1]
    clock.advance(seconds=-YEAR)
    assert ids(claimed(store)) == waiting[1:]


@pytest.mark.parametrize(
    ("concurrency", "rate", "per_ms", "expected"),
    [
        (None, None, None, 3),
        (0, None, None, 0),
        (-5, None, None, 0),
        (2**63 - 1, None, None, 3),
        (-(2**63), None, None, 0),
        (None, 0, 60_000, 0),
        (None, -(2**63), 60_000, 0),
        (None, 2**63 - 1, 2**63 - 1, 3),
        (None, 2, 2**63 - 1, 2),
        (None, 1, None, 3),
        (None, 1, 0, 3),
        (None, 1, -(2**63), 3),
        (None, None, 60_000, 3),
        (2, 1, 60_000, 1),
    ],
)
def test_odd_limits_of_other_programs(store: Any, raw: Any, concurrency: Any, rate: Any, per_ms: Any, expected: int) -> None:
    raw.rows(
        "INSERT INTO workflow_limits (key, concurrency, rate, per_ms, updated_at) VALUES ('acme', ?, ?, ?, ?)",
        *(concurrency, rate, per_ms, "2026-01-01T00:00:00.000Z"),
    )
    (found,) = store.workflows.limits.list()
    assert (found.concurrency, found.rate) == (concurrency, rate)
    for _ in range(3):
        queue(store, concurrency_key="acme")
    got = claimed(store, 2) + claimed(store, 2)
    assert len(got) == expected


def test_a_raw_end_of_a_run_frees_its_place(store: Any, raw: Any) -> None:
    limit(store, "acme", 1)
    first, second = queue(store, concurrency_key="acme"), queue(store, concurrency_key="acme")
    assert ids(claimed(store)) == [first]
    raw.rows("UPDATE workflow_runs SET status = 'succeeded' WHERE id = ?", first)
    assert ids(claimed(store)) == [second]
