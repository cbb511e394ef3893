"""`runs.join`: a run waits for its children without a process, and goes on when the last one ends, however it ends."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import LeaseLost, TransitionError
from persist.workflows.schemas import Lease
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.scenes import HOUR, NOWHERE, claim, do, held, make, queue, result, start, stored, taken


def parent_of(store: Any, count: int = 2, **options: Any) -> tuple[Lease, list[str]]:
    """The lease on a parent, and the ids of its children, which run."""
    lease = held(store, workflow_name="parent")
    return lease, [make(store, parent_run_id=lease.run_id, **options).id for _ in range(count)]


def joining(store: Any, count: int = 2, until: str = "all", **options: Any) -> tuple[Lease, list[str]]:
    """A parent that waits for its children."""
    lease, children = parent_of(store, count, **options)
    assert do(store, "join", lease, until) is None
    return lease, children


def goes_on(store: Any, parent: str) -> bool:
    """Whether the parent goes on, and a worker can claim it, once."""
    run = stored(store, parent)
    if run.status == "paused":
        assert claim(store, "w9", workflow_name="parent") is None
        return False
    assert (run.status, run.join_until, run.lease_owner) == ("running", None, None)
    lease = taken(store, "w9", workflow_name="parent")
    assert (lease.run_id, lease.run.restart_count) == (parent, 0)
    assert claim(store, "w9", workflow_name="parent") is None
    return True


def test_a_run_that_waits_is_paused_and_released(store: Any, other: Any, clock: Any) -> None:
    lease, _ = parent_of(store)
    execution = start(store, lease.run, lease=lease)
    now = clock.advance(seconds=1)
    assert do(store, "join", lease) is None
    run = stored(other, lease.run_id)
    assert (run.status, run.join_until, run.updated_at) == ("paused", "all", now)
    assert (run.lease_owner, run.lease_expires_at, run.lease_token) == (None, None, lease.token)
    assert result(store, execution) == (False, "stale: the run waits for its children")
    assert claim(other) is None
    with pytest.raises(LeaseLost):
        do(store, "append_phase", lease.run_id, "late", lease=lease)
    assert do(store, "complete", lease) == run  # as a worker does when the handler returns
    assert claim(other) is None


def test_it_goes_on_when_the_last_child_has_ended(store: Any) -> None:
    lease, (first, second) = joining(store)
    do(store, "finish", first, "failed")
    assert not goes_on(store, lease.run_id)
    do(store, "finish", second, "succeeded")
    assert do(store, "complete", lease).status == "running"  # of a worker that hears of it late
    assert goes_on(store, lease.run_id)


def test_who_goes_on_is_told_how_the_children_ended(store: Any) -> None:
    lease, children = joining(store, 3)
    for id in children[:2]:
        do(store, "finish", id, "succeeded")
    do(store, "cancel", children[2])
    again = taken(store)
    ended = do(store, "join", again)
    assert (ended.total, ended.by_status, ended.failed) == (3, {"succeeded": 2, "cancelled": 1}, 1)
    assert stored(store, lease.run_id).lease_owner == again.worker


@each("status", [None, "succeeded", "failed", "cancelled"])
@each("until", ["all", "first_failure"])
def test_without_unfinished_children_nothing_is_waited_for(store: Any, status: str | None, until: str) -> None:
    lease = held(store)
    if status is not None:
        make(store, parent_run_id=lease.run_id, status=status)
    ended = do(store, "join", lease, until)
    assert ended.by_status == ({} if status is None else {status: 1})
    assert stored(store, lease.run_id) == lease.run


def test_children_that_are_created_meanwhile_count(store: Any) -> None:
    lease, (first,) = joining(store, 1)
    late = queue(store, parent_run_id=lease.run_id)
    do(store, "finish", first, "succeeded")
    assert not goes_on(store, lease.run_id)
    do(store, "cancel", late)
    assert goes_on(store, lease.run_id)


def test_only_children_count_and_no_others(store: Any) -> None:
    lease, (child,) = joining(store, 1)
    grandchild, stranger = make(store, parent_run_id=child).id, make(store).id
    for id in (grandchild, stranger):
        do(store, "finish", id, "succeeded")
        assert not goes_on(store, lease.run_id)
    make(store, parent_run_id=child)
    do(store, "finish", child, "succeeded")
    assert goes_on(store, lease.run_id)


@pytest.mark.parametrize("ends", ["failed", "cancelled"])
def test_the_first_failure_ends_the_wait_that_asks_for_it(store: Any, ends: str) -> None:
    lease, (first, second, third) = joining(store, 3, "first_failure")
    do(store, "finish", first, "succeeded")
    assert not goes_on(store, lease.run_id)
    if ends == "failed":
        do(store, "finish", second, "failed")
    else:
        do(store, "cancel", second)
    assert goes_on(store, lease.run_id)
    do(store, "finish", third, "failed")  # and the parent hears of it no more
    assert stored(store, lease.run_id).lease_owner == "w9"


def test_without_a_failure_the_last_child_ends_that_wait_too(store: Any) -> None:
    lease, children = joining(store, 2, "first_failure")
    for id in children:
        do(store, "finish", id, "succeeded")
    assert goes_on(store, lease.run_id)


def test_a_child_that_has_failed_before_ends_that_wait_at_once(store: Any) -> None:
    lease, (failed, left) = parent_of(store)
    do(store, "finish", failed, "failed")
    assert do(store, "join", lease, "first_failure").by_status == {"failed": 1, "running": 1}
    assert do(store, "join", lease) is None
    do(store, "finish", left, "succeeded")
    assert goes_on(store, lease.run_id)


def reject(store: Any, child: str) -> None:
    with store.begin() as tx:
        gate = tx.workflows.approvals.pause_for_approval(child, gate="g", summary="?", marker=("g", None))
        tx.workflows.approvals.resolve_and_fail(gate.id)


def expire_gate(store: Any, child: str) -> None:
    with store.begin() as tx:
        now = store.clock()
        tx.workflows.approvals.pause_for_approval(child, gate="g", summary="?", marker=("g", None), expires_at=now)
        tx.workflows.approvals.expire_due()


def recover(store: Any, child: str) -> None:
    _, failed = do(store, "recover_interrupted")
    assert [run.id for run in failed] == [child]


def claimed(store: Any, child: str, worker: str = "w2") -> Lease:
    do(store, "requeue", child)
    lease = taken(store, worker, workflow_name="build")
    assert lease.run_id == child
    return lease


def give_up(store: Any, child: str) -> None:
    claimed(store, child)
    store.clock.advance(delta=HOUR)
    assert claim(store, "w3", workflow_name="build") is None


ENDS: dict[str, Callable[[Any, str], Any]] = {
    "finish": lambda store, child: do(store, "finish", child, "succeeded"),
    "finish with an error": lambda store, child: do(store, "finish", child, "failed", error="503"),
    "complete": lambda store, child: do(store, "complete", claimed(store, child)),
    "finish under a lease": lambda store, child: do(store, "finish", child, "failed", lease=claimed(store, child)),
    "the last attempt": lambda store, child: do(store, "release", claimed(store, child), error="503"),
    "cancel": lambda store, child: do(store, "cancel", child),
    "cancel with its descendants": lambda store, child: do(store, "cancel", child, cascade=True),
    "expire_queued": lambda store, child: (do(store, "requeue", child), do(store, "expire_queued", child, "late")),
    "a rejected gate": reject,
    "a gate that expires": expire_gate,
    "recover_interrupted": recover,
    "a claim that gives up": give_up,
}


@pytest.mark.parametrize("how", ENDS)
def test_however_the_last_child_ends_its_parent_goes_on(store: Any, clock: Any, how: str) -> None:
    store.clock = clock
    lease, (child,) = joining(store, 1, max_restarts=0, max_attempts=1)
    ENDS[how](store, child)
    assert stored(store, child).finished_at is not None
    assert goes_on(store, lease.run_id)


def test_a_child_whose_end_is_rolled_back_has_not_ended(store: Any) -> None:
    lease, (child,) = joining(store, 1)

    def finish_and_fail() -> None:
        with store.begin() as tx:
            tx.workflows.runs.finish(child, "succeeded")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        finish_and_fail()
    assert not goes_on(store, lease.run_id)


def test_a_parent_that_is_cancelled_with_its_children_stays_cancelled(store: Any) -> None:
    grandparent, (parent,) = joining(store, 1, workflow_name="parent")
    do(store, "requeue", parent)
    lease = taken(store, "w2", workflow_name="parent")
    make(store, parent_run_id=parent)
    assert do(store, "join", lease) is None
    assert do(store, "cancel", parent, cascade=True) is True
    run = stored(store, parent)
    assert (run.status, run.lease_owner) == ("cancelled", None)
    assert goes_on(store, grandparent.run_id)


def test_a_child_that_is_restarted_has_not_ended(store: Any) -> None:
    lease, (first, second) = joining(store)
    do(store, "finish", first, "failed")
    do(store, "restart", first)
    do(store, "finish", second, "succeeded")
    assert not goes_on(store, lease.run_id)
    do(store, "finish", first, "succeeded")
    assert goes_on(store, lease.run_id)


def test_the_end_of_a_child_walks_past_no_gate(store: Any) -> None:
    lease, (child,) = joining(store, 1)
    gate = store.workflows.approvals.request(lease.run_id, gate="review", summary="?")
    do(store, "finish", child, "succeeded")
    assert not goes_on(store, lease.run_id)
    store.workflows.approvals.resolve_and_resume(gate.id)
    assert goes_on(store, lease.run_id)


def test_a_run_that_was_resumed_by_hand_waits_no_more(store: Any) -> None:
    lease, (child,) = joining(store, 1)
    do(store, "resume", lease.run_id)
    again = taken(store, "w2", workflow_name="parent")
    store.workflows.signals.wait(again, "paid")
    do(store, "finish", child, "succeeded")
    run = stored(store, lease.run_id)
    assert (run.status, run.join_until) == ("paused", None)


@pytest.mark.parametrize("ends", ["cancel", "finish"])
def test_a_parent_that_has_ended_is_not_set_going(store: Any, ends: str) -> None:
    lease, (child,) = joining(store, 1)
    if ends == "cancel":
        do(store, "cancel", lease.run_id)
    else:
        do(store, "finish", lease.run_id, "failed")
    before = stored(store, lease.run_id)
    do(store, "finish", child, "succeeded")
    assert stored(store, lease.run_id) == before
    assert before.finished_at is not None
    do(store, "restart", lease.run_id)
    assert stored(store, lease.run_id).join_until is None


def test_only_who_holds_a_running_run_waits_for_its_children(store: Any) -> None:
    lease, _ = parent_of(store)
    do(store, "pause", lease.run_id, lease=lease)
    with pytest.raises(TransitionError):
        do(store, "join", lease)
    do(store, "release", lease)
    with pytest.raises(LeaseLost):
        do(store, "join", lease)
    run = stored(store, lease.run_id)
    assert (run.status, run.join_until) == ("paused", None)


def test_a_lease_that_is_over_joins_nothing(store: Any, clock: Any) -> None:
    lease, _ = parent_of(store)
    clock.advance(delta=HOUR + timedelta(seconds=1))
    with pytest.raises(LeaseLost):
        do(store, "join", lease)
    assert stored(store, lease.run_id).status == "running"


def test_a_child_ends_whatever_another_program_made_of_its_parent(store: Any, raw: Raw) -> None:
    lease, children = joining(store, 3)
    raw.rows("UPDATE workflow_runs SET parent_run_id = ? WHERE id = ?", NOWHERE, children[0])
    raw.rows("UPDATE workflow_runs SET parent_run_id = '' WHERE id = ?", children[1])
    raw.rows("UPDATE workflow_runs SET join_until = 'whenever' WHERE id = ?", lease.run_id)
    for id in children:
        assert do(store, "finish", id, "succeeded").status == "succeeded"
    assert goes_on(store, lease.run_id)
