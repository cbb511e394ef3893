"""`runs.complete`: what a worker says when it has done with a run."""

from typing import Any

import pytest

from persist.errors import InvalidValue, LeaseLost, NotFound
from persist.workflows.schemas import ApprovalStatus, RunStatus
from tests.cases import each
from tests.contract.workflows.scenes import ENDED, HOUR, claim, do, held, make, stored


def pending(store: Any, lease: Any, *, pauses: bool) -> str:
    """The id of an open gate of the leased run."""
    with store.begin() as tx:
        verb = tx.workflows.approvals.pause_for_approval if pauses else tx.workflows.approvals.request
        options = {"marker": ("review", None), "lease": lease} if pauses else {}
        return str(verb(lease.run_id, gate="review", summary="text", **options).id)


def test_a_running_run_succeeds(store: Any, other: Any, clock: Any) -> None:
    lease = held(store, context={"a": 1})
    now = clock.advance(seconds=1)
    done = do(store, "complete", lease)
    expected = lease.run.model_copy(
        update={
            "status": RunStatus.SUCCEEDED,
            "lease_owner": None,
            "lease_expires_at": None,
            "updated_at": now,
            "finished_at": now,
        }
    )
    assert done == stored(other, lease.run_id) == expected
    clock.advance(seconds=1)
    assert do(store, "complete", lease) == done  # the answer of the first call may have been lost


def test_observers_hear_of_it_once(store: Any) -> None:
    ended: list[Any] = []
    store.on_run_finished(ended.append)
    lease = held(store)
    done = do(store, "complete", lease)
    do(store, "complete", lease)
    assert ended == [done]


def test_gates_of_the_run_are_closed(store: Any) -> None:
    lease, untouched = held(store), held(store)
    gate = pending(store, lease, pauses=False)
    left = pending(store, untouched, pauses=False)
    do(store, "complete", lease)
    with store.read() as tx:
        closed = tx.workflows.approvals.get(gate)
        assert (closed.status, closed.response) == (ApprovalStatus.REJECTED, "The run ended: it succeeded.")
        assert tx.workflows.approvals.get(left).status == ApprovalStatus.PENDING


def test_a_paused_run_is_released_and_waits(store: Any, other: Any) -> None:
    lease = held(store)
    gate = pending(store, lease, pauses=True)
    done = do(store, "complete", lease)
    assert (done.status, done.lease_owner, done.lease_expires_at) == (RunStatus.PAUSED, None, None)
    assert stored(other, lease.run_id) == done
    assert claim(other) is None
    with store.begin() as tx:
        assert tx.workflows.approvals.get(gate).status == ApprovalStatus.PENDING
        tx.workflows.approvals.resolve_and_resume(gate)
    again = claim(other, "w2")
    assert again is not None
    assert again.run_id == lease.run_id


@each("status", ENDED)
def test_a_run_that_the_worker_ended_itself_stays_as_it_is(store: Any, status: RunStatus) -> None:
    lease = held(store)
    if status is RunStatus.CANCELLED:
        do(store, "cancel", lease.run_id)
        before = stored(store, lease.run_id)
        with pytest.raises(LeaseLost):
            do(store, "complete", lease)
    else:
        before = do(store, "finish", lease.run_id, status.value, lease=lease)
        assert do(store, "complete", lease) == before
    assert stored(store, lease.run_id) == before


def test_nobody_completes_a_run_of_another_worker(store: Any, clock: Any) -> None:
    lease = held(store)
    clock.advance(seconds=HOUR.total_seconds())
    newer = claim(store, "w2")
    assert newer is not None
    before = stored(store, lease.run_id)
    with pytest.raises(LeaseLost) as lost:
        do(store, "complete", lease)
    assert (lost.value.run_id, lost.value.token) == (lease.run_id, lease.token)
    assert stored(store, lease.run_id) == before
    assert do(store, "complete", newer).status == RunStatus.SUCCEEDED


@each("bad", [None, "run", {"run_id": "run"}])
def test_anything_but_a_lease_is_refused(store: Any, bad: Any) -> None:
    make(store)
    with pytest.raises(InvalidValue, match="lease"):
        do(store, "complete", bad)


def test_a_run_that_is_gone(store: Any, raw: Any) -> None:
    lease = held(store)
    raw.rows("DELETE FROM workflow_runs WHERE id = ?", lease.run_id)
    with pytest.raises(NotFound):
        do(store, "complete", lease)
