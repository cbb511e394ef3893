"""Limits: how many runs of a workflow or a key run at once."""

from datetime import timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.workflows.schemas import Lease
from tests.cases import each
from tests.contract.workflows.limiting import claimed, ids, limit, queue
from tests.contract.workflows.scenes import HOUR, claim, do, make, stored, taken

MINUTE = timedelta(minutes=1)
LATER = timedelta(seconds=30)


def test_a_limit_is_set_read_replaced_and_deleted(store: Any, clock: Any) -> None:
    made = limit(store, "workflow:build", 3, rate=10, per=MINUTE)
    assert (made.key, made.concurrency, made.rate, made.per, made.updated_at) == ("workflow:build", 3, 10, MINUTE, clock())
    other = limit(store, "acme", concurrency=1)
    with store.begin() as tx:
        assert tx.workflows.limits.list() == [other, made]
        assert tx.workflows.limits.get("acme") == other
        replaced = tx.workflows.limits.set("workflow:build", rate=1, per=timedelta(days=1))
        assert (replaced.concurrency, replaced.rate, replaced.per) == (None, 1, timedelta(days=1))
        assert tx.workflows.limits.delete("acme") is True
        assert tx.workflows.limits.delete("acme") is False
        assert tx.workflows.limits.get("acme") is None
        assert tx.workflows.limits.list() == [replaced]


@each(
    ("path", "given"),
    [
        ("key", {"key": "workflow:", "concurrency": 1}),
        ("concurrency", {"key": "k"}),
        ("per", {"key": "k", "rate": 1}),
        ("per", {"key": "k", "concurrency": 1, "per": MINUTE}),
    ],
)
def test_a_limit_of_bad_values_is_refused(store: Any, path: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as refused:
        limit(store, **given)
    assert refused.value.path == path
    assert store.workflows.limits.list() == []


def test_a_run_with_the_key_of_a_workflow_is_refused(store: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        queue(store, concurrency_key="workflow:build")
    assert refused.value.path == "concurrency_key"


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("names", [None, ["build"], ["build", "label"]])
def test_at_most_so_many_of_a_key_run_at_once(store: Any, names: list[str] | None, several: bool) -> None:
    limit(store, "acme", 2)
    held = [queue(store, "label" if number % 2 else "build", concurrency_key="acme") for number in range(5)]
    free = queue(store)
    wanted: dict[str, Any] = {"workflow_names": names} if names else {}
    expected = [id for id in held if stored(store, id).workflow_name in (names or ["build", "label"])]

    def next_ones() -> list[Lease]:
        if several:
            return claimed(store, **wanted)
        found = []
        while (lease := claim(store, **wanted)) is not None:
            found.append(lease)
        return found

    first = next_ones()
    assert sorted(ids(first)) == sorted([*expected[:2], free])
    assert next_ones() == []
    do(store, "complete", first[0])
    assert ids(next_ones()) == [expected[2]]
    assert next_ones() == []


def test_a_limit_of_a_workflow_counts_its_runs_alone(store: Any) -> None:
    limit(store, "workflow:build", 1)
    first, second, other = queue(store), queue(store), queue(store, "label")
    assert ids(claimed(store)) == [first, other]
    do(store, "cancel", first)
    assert ids(claimed(store)) == [second]


def test_both_limits_hold_for_a_run_that_is_under_both(store: Any) -> None:
    limit(store, "workflow:build", 2)
    limit(store, "acme", 1)
    a, b = queue(store, concurrency_key="acme"), queue(store, concurrency_key="acme")
    c, d = queue(store), queue(store, "label", concurrency_key="acme")
    assert ids(claimed(store)) == [a, c]
    do(store, "cancel", a)
    assert ids(claimed(store)) == [b]
    do(store, "cancel", b)
    assert ids(claimed(store)) == [d]


@pytest.mark.parametrize("leave", ["pause", "release", "sleep", "finish", "requeue"])
def test_a_run_that_does_not_run_takes_no_place(store: Any, clock: Any, leave: str) -> None:
    limit(store, "acme", 1)
    first, second = queue(store, concurrency_key="acme"), queue(store, concurrency_key="acme")
    (lease,) = claimed(store)
    assert lease.run_id == first
    clock.advance(seconds=1)
    if leave == "sleep":
        do(store, "sleep_until", lease, clock() + HOUR)
    elif leave == "release":
        do(store, "release", lease)
    elif leave == "finish":
        do(store, "finish", first, "failed", lease=lease)
    elif leave == "pause":
        do(store, "pause", first, lease=lease)
    else:
        clock.advance(seconds=7200)
        do(store, "requeue", first)
    assert ids(claimed(store)) == [second]


def test_a_resumed_run_waits_for_a_place(store: Any, clock: Any) -> None:
    limit(store, "acme", 1)
    first, second = queue(store, concurrency_key="acme"), queue(store, concurrency_key="acme")
    (lease,) = claimed(store)
    do(store, "pause", first, lease=lease)
    do(store, "release", lease)
    (other,) = claimed(store)
    assert other.run_id == second
    clock.advance(seconds=1)
    do(store, "resume", first)
    unlimited = queue(store)
    assert ids(claimed(store)) == [unlimited]
    do(store, "complete", other)
    assert ids(claimed(store)) == [first]


def test_a_run_whose_lease_expired_keeps_its_place_and_is_taken_over(store: Any, clock: Any) -> None:
    limit(store, "acme", 1)
    first, _ = queue(store, concurrency_key="acme", max_restarts=5), queue(store, concurrency_key="acme")
    for restarts in range(3):
        (lease,) = claimed(store, lease=LATER)
        assert (lease.run_id, lease.run.restart_count) == (first, restarts)
        assert claimed(store) == []
        clock.advance(seconds=60)


def test_a_run_that_its_caller_starts_counts_and_is_not_refused(store: Any) -> None:
    limit(store, "acme", 1)
    made = [make(store, concurrency_key="acme").id for _ in range(2)]
    third = queue(store, concurrency_key="acme")
    assert claimed(store) == []
    assert do(store, "admit", third) is True
    fourth = queue(store, concurrency_key="acme")
    for id in [*made, third]:
        assert claimed(store) == []
        do(store, "cancel", id)
    assert ids(claimed(store)) == [fourth]


def test_a_changed_limit_holds_for_the_next_claim(store: Any) -> None:
    limit(store, "acme", 3)
    waiting = [queue(store, concurrency_key="acme") for _ in range(8)]
    assert ids(claimed(store)) == waiting[:3]
    limit(store, "acme", 2)
    do(store, "cancel", waiting[0])
    assert claimed(store) == []
    do(store, "cancel", waiting[1])
    assert ids(claimed(store)) == waiting[3:4]
    limit(store, "acme", 4)
    assert ids(claimed(store)) == waiting[4:6]
    store.workflows.limits.delete("acme")
    assert ids(claimed(store)) == waiting[6:]


def test_priorities_hold_among_what_has_room(store: Any, clock: Any) -> None:
    limit(store, "acme", 1)
    low, urgent, full = (
        queue(store, priority=level, concurrency_key=key) for level, key in [(0, None), (5, "acme"), (4, "acme")]
    )
    middle = queue(store, "label", priority=3)
    assert ids(claimed(store)) == [urgent, middle, low]
    do(store, "cancel", urgent)
    assert ids(claimed(store)) == [full]


def test_a_delayed_run_finds_its_place_when_it_is_due(store: Any, clock: Any) -> None:
    limit(store, "acme", 1)
    first = queue(store, concurrency_key="acme", not_before=clock() + MINUTE)
    second = queue(store, concurrency_key="acme", not_before=clock() + MINUTE)
    other = queue(store, concurrency_key="other", not_before=clock() + MINUTE)
    assert claimed(store) == []
    clock.advance(seconds=60)
    assert sorted(ids(claimed(store))) == sorted([min(first, second), other])
    assert claimed(store) == []
    do(store, "cancel", min(first, second))
    assert ids(claimed(store)) == [max(first, second)]


def test_what_waits_behind_many_of_a_full_key_is_claimed(store: Any) -> None:
    limit(store, "acme", 1)
    limit(store, "workflow:label", 1)
    full = [queue(store, concurrency_key="acme") for _ in range(100)]
    labels = [queue(store, "label", priority=1) for _ in range(100)]
    behind = [queue(store, concurrency_key=f"k{number % 3}" if number % 4 else None) for number in range(8)]
    assert ids(claimed(store, 2)) == [labels[0], full[0]]
    assert ids(claimed(store, 3)) == behind[:3]
    lease = taken(store)
    assert lease.run_id == behind[3]
    assert sorted(ids(claimed(store, workflow_names=["build", "label"]))) == sorted(behind[4:])
