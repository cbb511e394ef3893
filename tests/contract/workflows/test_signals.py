"""Signals: what a run is told is kept until the run takes it, and a run waits for one without a process."""

from datetime import timedelta
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, LeaseLost, TransitionError
from persist.workflows.schemas import Lease, RunStatus
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.scenes import ENDED, NESTED, claim, do, held, make, queue, stored, taken


def waiting(store: Any, name: str = "paid", timeout: timedelta | None = None) -> Lease:
    """The lease on a run that waits for the signal, and was released."""
    lease = held(store)
    assert store.workflows.signals.wait(lease, name, timeout) is None
    store.workflows.runs.complete(lease)
    return lease


def test_signals_of_a_name_are_taken_once_in_their_order(store: Any, other: Any, clock: Any) -> None:
    run = make(store)
    signals = store.workflows.signals
    first = signals.send(run.id, "paid", NESTED)
    assert first.model_dump() == {
        "run_id": run.id,
        "seq": 1,
        "name": "paid",
        "payload": NESTED,
        "timed_out": False,
        "sent_at": clock(),
        "taken_at": None,
        "idempotency_key": None,
    }
    clock.advance(seconds=-5)  # a clock that goes back changes no order
    second, third = signals.send(run.id, "shipped"), signals.send(run.id, "paid", [2])
    assert [second.seq, third.seq] == [2, 3]
    taken = other.workflows.signals.take(run.id, "paid")
    assert (taken.payload, taken.taken_at) == (NESTED, clock())
    assert signals.take(run.id, "paid").payload == [2]
    assert signals.take(run.id, "paid") is None
    assert [signal.taken_at is None for signal in signals.list(run.id)] == [False, True, False]
    assert stored(store, run.id).status == RunStatus.RUNNING


def test_a_signal_that_is_delivered_twice_is_sent_once(store: Any) -> None:
    run, another = make(store), make(store)
    signals = store.workflows.signals
    first = signals.send(run.id, "paid", 1, idempotency_key="delivery-7")
    assert signals.send(run.id, "paid", 2, idempotency_key="delivery-7") == first
    assert signals.send(another.id, "paid", 3, idempotency_key="delivery-7").payload == 3
    signals.take(run.id, "paid")
    assert signals.send(run.id, "paid", idempotency_key="delivery-7").taken_at is not None
    do(store, "cancel", run.id)
    assert signals.send(run.id, "paid", idempotency_key="delivery-7").seq == 1
    assert [signal.payload for signal in signals.list(run.id)] == [1]


def test_what_is_taken_in_a_transaction_that_fails_is_there_again(store: Any) -> None:
    run = make(store)
    store.workflows.signals.send(run.id, "paid")

    def take_and_fail() -> None:
        with store.begin() as tx:
            assert tx.workflows.signals.take(run.id, "paid") is not None
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        take_and_fail()
    assert store.workflows.signals.take(run.id, "paid") is not None


@each("status", ENDED)
def test_nothing_is_told_to_a_run_that_has_ended(store: Any, raw: Raw, status: str) -> None:
    run = make(store, status=status)
    with pytest.raises(Conflict, match="has ended"):
        store.workflows.signals.send(run.id, "paid")
    assert raw.count("workflow_signals") == 0


def test_a_run_that_waits_goes_on_when_its_signal_comes(store: Any) -> None:
    lease = waiting(store)
    assert (stored(store, lease.run_id).status, claim(store)) == ("paused", None)
    signals = store.workflows.signals
    signals.send(lease.run_id, "another")
    assert stored(store, lease.run_id).status == RunStatus.PAUSED
    signals.send(lease.run_id, "paid", {"euros": 5})
    again = taken(store)
    assert again.run_id == lease.run_id
    for _ in range(2):  # until it is taken
        assert signals.wait(again, "paid").payload == {"euros": 5}
    assert signals.take(lease.run_id, "paid", lease=again).payload == {"euros": 5}
    assert signals.wait(again, "paid") is None
    assert stored(store, lease.run_id).status == RunStatus.PAUSED


def test_a_signal_that_came_before_is_not_waited_for(store: Any) -> None:
    lease = held(store)
    store.workflows.signals.send(lease.run_id, "paid", 5)
    assert store.workflows.signals.wait(lease, "paid").payload == 5
    assert stored(store, lease.run_id).status == RunStatus.RUNNING


def test_a_signal_that_comes_before_the_handler_has_returned_is_not_lost(store: Any) -> None:
    lease = held(store)
    assert store.workflows.signals.wait(lease, "paid") is None
    store.workflows.signals.send(lease.run_id, "paid")
    run = store.workflows.runs.complete(lease)
    assert (run.status, run.lease_owner) == ("running", None)
    again = claim(store)
    assert store.workflows.signals.wait(again, "paid") is not None
    with pytest.raises(LeaseLost):
        store.workflows.runs.complete(lease)


def test_a_signal_walks_past_no_gate(store: Any) -> None:
    lease = waiting(store)
    with store.begin() as tx:
        gate = tx.workflows.approvals.request(lease.run_id, gate="review", summary="?")
        tx.workflows.signals.send(lease.run_id, "paid")
    assert stored(store, lease.run_id).status == RunStatus.PAUSED
    store.workflows.approvals.resolve_and_resume(gate.id)
    again = taken(store)
    assert store.workflows.signals.wait(again, "paid") is not None


def test_only_who_holds_the_run_waits_for_it(store: Any, raw: Raw) -> None:
    lease = held(store)
    do(store, "release", lease)
    signals = store.workflows.signals
    with pytest.raises(LeaseLost):
        signals.wait(lease, "paid")
    signals.send(lease.run_id, "paid")
    with pytest.raises(LeaseLost):
        signals.take(lease.run_id, "paid", lease=lease)
    with pytest.raises(InvalidValue):
        signals.wait(lease.run_id, "paid")
    assert raw.count("workflow_waits") == 0
    queued = queue(store, workflow_name="deploy")
    mine = taken(store, "w2", workflow_name="deploy")
    do(store, "pause", queued, lease=mine)
    with pytest.raises(TransitionError):
        signals.wait(mine, "paid")


def test_after_its_timeout_a_run_goes_on_with_a_signal_that_says_so(store: Any, clock: Any) -> None:
    lease = waiting(store, timeout=timedelta(hours=1))
    waiting(store)
    signals = store.workflows.signals
    clock.advance(seconds=3599.999)
    assert signals.expire_due() == []
    clock.advance(seconds=0.001)
    (found,) = signals.expire_due()
    assert (found.run_id, found.name, found.payload, found.timed_out) == (lease.run_id, "paid", None, True)
    assert signals.expire_due() == []
    again = taken(store, "w2")
    assert again.run_id == lease.run_id
    assert signals.wait(again, "paid") == found
    assert signals.take(lease.run_id, "paid").timed_out


def test_a_timeout_counts_from_the_first_call(store: Any, clock: Any) -> None:
    hour = timedelta(hours=1)
    lease = waiting(store, timeout=hour)
    clock.advance(seconds=1800)
    do(store, "resume", lease.run_id)
    again = taken(store)
    assert store.workflows.signals.wait(again, "paid", hour) is None
    clock.advance(seconds=1800)
    assert [signal.run_id for signal in store.workflows.signals.expire_due()] == [lease.run_id]


def test_a_restarted_run_waits_anew(store: Any, clock: Any) -> None:
    hour = timedelta(hours=1)
    lease = waiting(store, timeout=hour)
    do(store, "cancel", lease.run_id)
    clock.advance(seconds=3000)
    do(store, "restart", lease.run_id)
    again = taken(store)
    assert store.workflows.signals.wait(again, "paid", hour) is None
    clock.advance(seconds=3000)
    assert store.workflows.signals.expire_due() == []
    clock.advance(seconds=600)
    assert [signal.run_id for signal in store.workflows.signals.expire_due()] == [lease.run_id]


def test_all_that_are_due_go_on_at_once(store: Any, clock: Any) -> None:
    leases = [waiting(store, timeout=timedelta(hours=1)) for _ in range(3)]
    clock.advance(seconds=3600)
    found = store.workflows.signals.expire_due()
    assert {signal.run_id for signal in found} == {lease.run_id for lease in leases}
    assert {stored(store, lease.run_id).status for lease in leases} == {RunStatus.RUNNING}


@pytest.mark.parametrize("table", ["workflow_runs SET lease_expires_at", "workflow_waits SET expires_at"])
def test_a_row_that_cannot_be_read_keeps_no_other_one_waiting(store: Any, clock: Any, raw: Raw, table: str) -> None:
    spoilt, whole = (waiting(store, timeout=timedelta(hours=1)) for _ in range(2))
    key = "id" if table.startswith("workflow_runs") else "run_id"
    raw.rows(f"UPDATE {table} = '-infinity' WHERE {key} = ?", spoilt.run_id)
    clock.advance(seconds=3600)
    assert [signal.run_id for signal in store.workflows.signals.expire_due()] == [whole.run_id]
    assert raw.value("SELECT status FROM workflow_runs WHERE id = ?", spoilt.run_id) == "paused"


def test_a_signal_that_comes_in_time_ends_the_timeout(store: Any, clock: Any) -> None:
    lease = waiting(store, timeout=timedelta(hours=1))
    store.workflows.signals.send(lease.run_id, "paid")
    clock.advance(seconds=7200)
    assert store.workflows.signals.expire_due() == []
    assert [signal.timed_out for signal in store.workflows.signals.list(lease.run_id)] == [False]


@pytest.mark.parametrize("ends", ["cancel", "resume"])
def test_a_run_that_does_not_wait_any_more_is_told_nothing(store: Any, clock: Any, raw: Raw, ends: str) -> None:
    lease = waiting(store, timeout=timedelta(hours=1))
    do(store, ends, lease.run_id)
    clock.advance(seconds=3600)
    assert store.workflows.signals.expire_due() == []
    assert store.workflows.signals.list(lease.run_id) == []
    assert raw.count("workflow_waits") == 0
