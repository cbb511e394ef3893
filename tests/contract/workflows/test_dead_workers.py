"""What becomes of a run that its worker left: dead, fenced out by a cancel, paused, or put back by hand."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from persist import Store
from persist.errors import LeaseLost
from persist.testing import FrozenClock
from persist.workflows.schemas import RunStatus, WorkflowRun
from tests.at_once import together
from tests.contract.workflows.scenes import (
    HOUR,
    ask,
    assert_all_lost,
    claim,
    do,
    end,
    held,
    make,
    queue,
    result,
    start,
    stored,
    taken,
)

MS = timedelta(milliseconds=1)


def test_the_run_of_a_dead_worker_is_claimed_before_a_queued_one(store: Any, clock: Any) -> None:
    lease = held(store)
    mine, old, chat = start(store, lease.run, lease=lease), start(store, lease.run, lease=lease), start(store)
    end(store, old, lease=lease)
    waiting = queue(store)
    clock.advance(delta=HOUR - MS)
    first = taken(store, "w2", lease=timedelta(days=1))
    assert first.run_id == waiting
    clock.advance(delta=MS)
    again = taken(store, "w3")
    assert (again.run_id, again.token, again.run.restart_count, again.run.status) == (lease.run_id, 2, 1, RunStatus.RUNNING)
    assert again.run.started_at == lease.run.started_at
    assert result(store, mine) == (False, "stale: lease expired")
    assert result(store, old) == (True, None)
    assert result(store, chat) == (None, None)  # of the trigger, not of the run


def test_of_several_dead_workers_the_one_gone_longest_is_replaced_first(store: Any, clock: Any) -> None:
    leases = [held(store, lease=timedelta(seconds=seconds)) for seconds in (30, 10, 20)]
    clock.advance(seconds=60)
    found = [claim(store) for _ in range(4)]
    assert [lease and lease.run_id for lease in found] == [leases[number].run_id for number in (1, 2, 0)] + [None]


def test_a_run_that_another_worker_is_taking_over_is_passed_by(postgres_url: str, clock: FrozenClock) -> None:
    """And not waited for, or two workers that each take over the run of the other would wait for ever."""
    with Store.open(postgres_url, clock=clock) as store:
        leases = [held(store, lease=timedelta(seconds=seconds)) for seconds in (10, 20)]
        clock.advance(seconds=60)
        with store.begin() as tx:
            first = tx.workflows.runs.claim("w2", lease=HOUR)
            (found,) = together([lambda: [claim(store, "w3"), claim(store, "w4")]])
        assert [lease and lease.run_id for lease in (first, *found)] == [leases[0].run_id, leases[1].run_id, None]


def test_a_run_whose_workers_keep_dying_fails_at_its_cap(store: Any, clock: Any) -> None:
    told: list[WorkflowRun] = []
    store.on_run_finished(told.append)
    id = queue(store, max_restarts=2, context={"kept": 1})
    next_one = queue(store, workflow_name="triage")
    counts = []
    for _ in range(3):
        lease = taken(store, "w", lease=timedelta(minutes=1), workflow_name="build")
        assert lease.run_id == id
        counts.append(lease.run.restart_count)
        execution = start(store, lease.run, lease=lease)
        clock.advance(seconds=60)
    assert counts == [0, 1, 2]
    assert told == []
    following = claim(store)  # passes over the one that failed, to the next
    assert following is not None
    assert following.run_id == next_one
    failed = stored(store, id)
    assert (failed.status, failed.restart_count, failed.lease_owner) == ("failed", 2, None)
    assert failed.context is not None
    assert failed.context["kept"] == 1
    assert "2 restarts" in failed.context["error"]
    assert result(store, execution) == (False, "stale: lease expired")
    assert told == [failed]
    assert claim(store) is None


def test_a_dead_worker_that_comes_back_writes_nothing_on_the_run_that_failed_meanwhile(store: Any, clock: Any) -> None:
    lease = held(store, max_restarts=0)
    execution = start(store, lease.run, lease=lease)
    clock.advance(delta=HOUR)
    assert claim(store) is None
    assert stored(store, lease.run_id).status == "failed"
    assert_all_lost(store, lease.run_id, execution, lease)
    assert do(store, "release", lease) is None


def test_a_dead_worker_writes_nothing_after_somebody_else_finished_its_run(store: Any, clock: Any) -> None:
    lease = held(store)
    execution = start(store, lease.run, lease=lease)
    clock.advance(delta=HOUR)
    do(store, "finish", lease.run_id, "failed", error="its worker died")
    assert_all_lost(store, lease.run_id, execution, lease)


def test_anybody_cancels_a_held_run_and_its_worker_is_fenced_out(store: Any) -> None:
    lease = held(store)
    execution = start(store, lease.run, lease=lease)
    assert do(store, "cancel", lease.run_id, reason="stop") is True
    run = stored(store, lease.run_id)
    assert (run.status, run.lease_owner, run.lease_expires_at) == ("cancelled", None, None)
    assert run.lease_token > lease.token
    assert_all_lost(store, lease.run_id, execution, lease)
    for verb, options in [("renew", {"lease_for": HOUR}), ("release", {})]:
        with pytest.raises(LeaseLost):
            do(store, verb, lease, **options)


def test_a_cancelled_run_that_is_restarted_waits_for_a_worker(store: Any) -> None:
    old = held(store)
    do(store, "cancel", old.run_id)
    assert do(store, "restart", old.run_id) is True
    with pytest.raises(LeaseLost):
        do(store, "append_phase", old.run_id, "code", lease=old)
    again = taken(store, "w2")
    assert again.token > old.token
    assert (again.run_id, again.run.restart_count) == (old.run_id, 1)  # the restart itself, and none for the claim


def test_a_run_that_no_worker_ever_had_is_nobodys_to_claim(store: Any) -> None:
    """Its program has no workers, and runs it itself after a restart or a pause."""
    restarted, resumed = make(store).id, make(store).id
    do(store, "cancel", restarted)
    do(store, "restart", restarted)
    do(store, "pause", resumed)
    do(store, "resume", resumed)
    assert claim(store) is None
    again, failed = do(store, "recover_interrupted")
    assert ({run.id for run in again}, failed) == ({restarted, resumed}, [])


def test_a_paused_run_keeps_its_lease_and_its_worker_goes_on_when_resumed(store: Any, clock: Any) -> None:
    lease = held(store)
    assert do(store, "pause", lease.run_id, lease=lease) is True
    do(store, "merge_scratch", lease.run_id, {"a": 1}, lease=lease)
    with pytest.raises(LeaseLost):
        do(store, "merge_scratch", lease.run_id, {"a": 2})
    renewed = do(store, "renew", lease, lease_for=2 * HOUR)
    assert renewed.run.status == "paused"
    clock.advance(delta=HOUR)
    assert do(store, "resume", lease.run_id) is True
    assert claim(store, "w2") is None
    finished = do(store, "finish", lease.run_id, "succeeded", lease=renewed)
    assert finished.restart_count == 0


def test_a_released_paused_run_waits_for_resume_and_then_for_a_worker(store: Any, clock: Any) -> None:
    lease = held(store)
    do(store, "pause", lease.run_id, lease=lease)
    do(store, "release", lease)
    run = stored(store, lease.run_id)
    assert (run.status, run.lease_owner, run.lease_expires_at) == ("paused", None, None)
    assert claim(store, "w2") is None
    do(store, "resume", lease.run_id)
    assert do(store, "recover_interrupted") == ([], [])  # it was not interrupted: any worker may claim it
    again = taken(store, "w2")
    assert (again.run_id, again.run.restart_count) == (lease.run_id, 0)
    assert again.token > lease.token


def test_a_paused_run_whose_lease_expired_is_not_claimed_until_it_is_resumed(store: Any, clock: Any) -> None:
    lease = held(store)
    do(store, "pause", lease.run_id, lease=lease)
    clock.advance(delta=HOUR)
    assert claim(store, "w2") is None
    assert do(store, "recover_interrupted") == ([], [])
    do(store, "resume", lease.run_id)
    again = taken(store, "w2")
    assert again.run.restart_count == 0
    with pytest.raises(LeaseLost):
        do(store, "finish", lease.run_id, "succeeded", lease=lease)


def test_a_run_that_is_admitted_by_hand_is_nobodys_to_claim(store: Any) -> None:
    id = queue(store)
    do(store, "admit", id)
    assert claim(store) is None
    do(store, "requeue", id)
    lease = taken(store)
    assert lease.run_id == id


def test_a_dead_workers_run_that_is_requeued_by_hand_counts_no_restart(store: Any, clock: Any) -> None:
    old = held(store)
    clock.advance(delta=HOUR)
    assert do(store, "requeue", old.run_id) is True
    run = stored(store, old.run_id)
    assert (run.status, run.lease_owner, run.lease_expires_at) == ("queued", None, None)
    lease = taken(store, "w2")
    assert (lease.token, lease.run.restart_count) == (2, 0)


def test_the_lease_ends_by_the_stores_clock(store: Any, open_store: Callable[..., Any], clock: Callable[[], datetime]) -> None:
    ahead = open_store(clock=lambda: clock() + HOUR)
    lease = held(store)
    do(store, "append_phase", lease.run_id, "code", lease=lease)
    with pytest.raises(LeaseLost):
        do(ahead, "append_phase", lease.run_id, "code", lease=lease)
    found = taken(ahead, "w2")
    assert found.run_id == lease.run_id
    with pytest.raises(LeaseLost):
        do(store, "append_phase", lease.run_id, "code", lease=lease)
    assert ask(store, "count", status="running") == 1


def test_what_a_worker_leaves_unfinished_does_not_keep_the_next_one_from_running_it(store: Any) -> None:
    lease = held(store)
    execution = start(store, lease.run, lease=lease)
    do(store, "release", lease)
    assert result(store, execution) == (False, "stale: the run was queued again")
    again = taken(store, "w2")
    other = start(store, again.run, lease=again)
    with store.begin() as tx:
        tx.workflows.runs.release(again)
        assert tx.workflows.executions.get(other).success is False
