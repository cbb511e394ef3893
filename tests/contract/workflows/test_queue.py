"""The order in which runs are claimed, runs that wait for their time, and claims of several."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persist import Store
from persist.errors import InvalidValue
from persist.testing import FrozenClock
from persist.workflows.schemas import Lease, RunStatus
from tests.at_once import together
from tests.contract.workflows.scenes import HOUR, ask, claim, do, queue, stored, taken
from tests.examples import examples


def claimed(store: Any, limit: int = 100, **options: Any) -> list[str]:
    """The ids that one claim of several gives."""
    leases: list[Lease] = do(store, "claim", "w1", lease=HOUR, limit=limit, **options)
    return [lease.run_id for lease in leases]


def disable(store: Any, name: str, *, enabled: bool = False) -> None:
    store.workflows.workflow_overrides.set(name, enabled=enabled)


def test_a_higher_priority_is_claimed_first_then_who_waits_longest(store: Any, clock: Any) -> None:
    first = queue(store)
    clock.advance(seconds=1)
    second, urgent, later = queue(store), queue(store, priority=5), queue(store, priority=-1)
    clock.advance(seconds=-5)
    assert queue(store, priority=5) < "z"
    order = claimed(store)
    assert order[1:] == [urgent, first, second, later]
    assert (stored(store, urgent).priority, stored(store, first).priority) == (5, 0)


def test_a_released_run_does_not_jump_the_queue(store: Any, clock: Any) -> None:
    held, waiting = queue(store), queue(store)
    lease = taken(store)
    assert lease.run_id == held
    now = clock.advance(seconds=1)
    do(store, "release", lease)
    assert stored(store, held).queued_at == now
    assert claimed(store) == [waiting, held]


def test_requeueing_a_queued_run_keeps_its_place(store: Any, clock: Any) -> None:
    first = queue(store)
    clock.advance(seconds=1)
    second = queue(store)
    assert do(store, "requeue", first) is True
    assert claimed(store) == [first, second]


def test_runs_of_older_releases_wait_since_they_started(store: Any, clock: Any, raw: Any) -> None:
    first = queue(store)
    clock.advance(seconds=1)
    second = queue(store)
    raw.rows("UPDATE workflow_runs SET queued_at = NULL WHERE id = ?", second)
    clock.advance(seconds=1)
    third = queue(store)
    assert claimed(store) == [first, second, third]


def test_a_run_is_not_claimed_before_its_time(store: Any, clock: Any) -> None:
    due = clock() + timedelta(minutes=5)
    id = queue(store, not_before=due)
    made = stored(store, id)
    assert (made.not_before, made.queued_at, made.status) == (due, due, RunStatus.QUEUED)
    assert [run.id for run in ask(store, "list_queued")] == [id]
    assert claim(store) is None
    assert claimed(store) == []
    clock.set(due - timedelta(milliseconds=1))
    assert claim(store) is None
    clock.set(due)
    lease = taken(store)
    assert lease.run_id == id


def test_a_delayed_run_lines_up_when_its_time_has_come(store: Any, clock: Any) -> None:
    delayed = queue(store, not_before=clock() + timedelta(minutes=1))
    urgent = queue(store, not_before=clock() + timedelta(minutes=2), priority=1)
    clock.advance(seconds=30)
    before = queue(store)
    clock.advance(seconds=60)
    after = queue(store)
    clock.advance(seconds=60)
    assert claimed(store) == [urgent, before, delayed, after]


def test_a_run_sleeps_until_an_instant(store: Any, clock: Any) -> None:
    id = queue(store, max_attempts=1)
    lease = taken(store)
    at = clock() + HOUR
    asleep = do(store, "sleep_until", lease, at)
    assert asleep == stored(store, id)
    assert (asleep.status, asleep.not_before, asleep.queued_at, asleep.lease_owner) == (RunStatus.QUEUED, at, at, None)
    assert do(store, "complete", lease) == asleep, "a handler that lets its run sleep returns after that"
    assert claim(store) is None
    clock.set(at)
    again = taken(store)
    assert (again.run_id, again.token, again.run.attempt, again.run.restart_count) == (id, 2, 1, 0)


def test_a_workflow_that_was_switched_off_is_skipped(store: Any, clock: Any) -> None:
    off, on = queue(store, workflow_name="off", priority=9), queue(store)
    waiting = queue(store, workflow_name="off", not_before=clock() + timedelta(seconds=1))
    lease = taken(store, workflow_name="off", lease=timedelta(seconds=1))
    assert lease.run_id == off
    clock.advance(seconds=2)
    disable(store, "off")
    assert claimed(store) == [on]
    assert claim(store, workflow_name="off") is None
    disable(store, "off", enabled=True)
    assert claimed(store) == [off, waiting]


def test_several_are_claimed_at_once(store: Any, clock: Any) -> None:
    ids = [queue(store) for _ in range(5)]
    leases = do(store, "claim", "w1", lease=HOUR, limit=3)
    assert [lease.run_id for lease in leases] == sorted(ids)[:3]
    for lease in leases:
        assert (lease.worker, lease.token, lease.run) == ("w1", 1, stored(store, lease.run_id))
    assert claimed(store, 3) == sorted(ids)[3:]
    assert claimed(store, 3) == []
    assert len(store.workflows.runs.held_by("w1")) == 5


def test_the_runs_of_dead_workers_are_among_them(store: Any, clock: Any) -> None:
    dead = [queue(store), queue(store)]
    assert len(claimed(store, 2)) == 2
    waiting = queue(store)
    clock.advance(delta=HOUR)
    assert claimed(store, 3) == [*sorted(dead), waiting]
    assert stored(store, dead[0]).restart_count == 1


@pytest.mark.parametrize("names", [["build"], ["build", "label"], ("label", "build", "off", "y", "z")])
def test_a_worker_names_its_workflows(store: Any, names: Any) -> None:
    build, label, other, off = [queue(store, workflow_name=name) for name in ("build", "label", "other", "off")]
    disable(store, "off")
    expected = [id for id, name in sorted([(build, "build"), (label, "label")]) if name in names]
    assert claimed(store, workflow_names=names) == expected
    assert claim(store, workflow_names=["off", "y"]) is None
    assert [stored(store, id).status for id in (other, off)] == [RunStatus.QUEUED] * 2
    queue(store, workflow_name="label")
    assert taken(store, workflow_names=["other"]).run_id == other


def test_an_idle_claim_waits_for_no_writer(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as idle, Store.open(sqlite_url) as busy, busy.begin() as tx:
        tx.workflows.workflow_overrides.set("other", enabled=True)
        runs = idle.workflows.runs
        assert runs.claim("w1", lease=HOUR) is None
        assert runs.claim("w1", lease=HOUR, workflow_names=["a", "b"], limit=2) == []
        with pytest.raises(InvalidValue):
            runs.claim("", lease=HOUR)


def test_many_that_claim_several_claim_each_once(open_store: Any) -> None:
    stores = [open_store() for _ in range(4)]
    ids = [queue(stores[0], priority=number % 3) for number in range(40)]
    found: list[str] = []

    def drain(store: Any) -> None:
        while mine := claimed(store, 3):
            found.extend(mine)

    together([partial(drain, store) for store in stores])
    assert sorted(found) == sorted(ids)


Waiting = st.tuples(st.integers(-1, 1), st.sampled_from([None, -5, 3, 20]), st.sampled_from(["a", "b", "c"]))


@settings(max_examples=examples(30))
@given(waiting=st.lists(Waiting, max_size=8), limits=st.lists(st.integers(1, 4), min_size=1, max_size=4), off=st.booleans())
def test_what_is_claimed_is_the_sorted_queue(waiting: list[Any], limits: list[int], off: bool) -> None:
    clock = FrozenClock()
    with Store.open("sqlite:///:memory:", clock=clock) as store:
        expected = []
        for number, (priority, delay, name) in enumerate(waiting):
            clock.advance(seconds=1)
            due = None if delay is None else clock() + timedelta(seconds=delay)
            id = queue(store, workflow_name=name, priority=priority, not_before=due, id=f"run_{number}")
            expected.append((-priority, clock() if due is None else max(due, clock()), id, name, due))
        if off:
            disable(store, "b")
        clock.advance(seconds=5)
        wanted = [id for _, _, id, name, due in sorted(expected) if (due or clock()) <= clock() and (name != "b" or not off)]
        got = [id for limit in limits for id in claimed(store, limit)]
        assert got == wanted[: sum(limits)]
