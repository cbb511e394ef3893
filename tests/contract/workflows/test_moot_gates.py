"""Gates that nobody needs to answer any more, and runs that wait at several."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict, NotFound
from tests.cases import each
from tests.contract.workflows.making import (
    claim,
    fail,
    gate_of,
    make_run,
    pause,
    paused,
    pending,
    request,
    respond,
    resume,
    run_of,
)

Verb = Callable[[Any, str], object]


def _expires(tx: Any, id: str) -> object:
    return tx.workflows.runs.expire_queued(id, "too old")


ENDS: dict[str, Verb] = {
    "cancelled": lambda tx, id: tx.workflows.runs.cancel(id),
    "failed": lambda tx, id: tx.workflows.runs.finish(id, "failed", error="it broke"),
    "succeeded": lambda tx, id: tx.workflows.runs.finish(id, "succeeded"),
}


@pytest.mark.parametrize("status", sorted(ENDS))
def test_a_run_that_ends_closes_its_gates(store: Any, other: Any, clock: Any, status: str) -> None:
    run_id, first = paused(store)
    second, elsewhere = request(store, run_id, kind="reply"), paused(store)[1]
    at = clock.advance(seconds=5)
    with store.begin() as tx:
        ENDS[status](tx, run_id)
    assert run_of(other, run_id).status == status
    for id in (first, second):
        gate = gate_of(other, id)
        assert (gate.status, gate.responded_by, gate.responded_at) == ("rejected", None, at)
        assert status in (gate.response or "")
    assert pending(other) == [elsewhere]


def test_a_queued_run_that_waited_too_long_closes_its_gates(store: Any) -> None:
    run = make_run(store, status="queued")
    request(store, run.id)
    with store.begin() as tx:
        assert _expires(tx, run.id)
    assert pending(store) == []


def test_a_run_that_crashed_too_often_closes_its_gates(store: Any, clock: Any) -> None:
    run = make_run(store, status="queued", max_restarts=0)
    claim(store, seconds=1)
    request(store, run.id)
    clock.advance(seconds=5)
    with store.begin() as tx:
        assert tx.workflows.runs.claim("w2", lease=timedelta(seconds=1)) is None
    assert (run_of(store, run.id).status, pending(store)) == ("failed", [])


def test_what_was_answered_stays_as_it_was_answered(store: Any) -> None:
    run_id, id = paused(store)
    assert respond(store, id, by="maria", response="yes")
    before = gate_of(store, id)
    with store.begin() as tx:
        assert tx.workflows.runs.cancel(run_id)
    assert gate_of(store, id) == before


@each("status", sorted(ENDS))
def test_nobody_asks_for_an_answer_that_nothing_waits_for(store: Any, status: str) -> None:
    run = make_run(store)
    with store.begin() as tx:
        ENDS[status](tx, run.id)
        with pytest.raises(Conflict, match="has ended"):
            tx.workflows.approvals.request(run.id, gate="g", summary="s")
        after = tx.workflows.runs.create("next", trigger_id="t", current_phase="p")
    assert (pending(store), run_of(store, after.id).status) == ([], "running")


def test_a_run_does_not_walk_past_a_gate(store: Any) -> None:
    run_id, id = paused(store)
    with store.begin() as tx:
        with pytest.raises(Conflict) as caught:
            tx.workflows.runs.resume(run_id)
        assert id in str(caught.value)
        assert tx.workflows.runs.get(run_id).status == "paused"
    assert respond(store, id)
    with store.begin() as tx:
        assert tx.workflows.runs.resume(run_id)
    assert run_of(store, run_id).status == "running"


def test_a_run_that_is_forced_past_its_gates_leaves_none_open(store: Any) -> None:
    run_id, id = paused(store)
    second = request(store, run_id)
    with store.begin() as tx:
        assert tx.workflows.runs.resume(run_id, force=True)
    assert run_of(store, run_id).status == "running"
    assert [gate_of(store, one).status for one in (id, second)] == ["rejected", "rejected"]
    with pytest.raises(Conflict, match="not pending"):
        resume(store, id)


@pytest.mark.parametrize("first", [0, 1])
def test_a_run_with_two_gates_goes_on_when_the_last_is_approved(store: Any, first: int) -> None:
    run_id, id = paused(store)
    gates = [id, request(store, run_id)]
    waiting = resume(store, gates[first], by="maria", scratch={"first": True})
    assert (waiting.status, waiting.scratch) == ("paused", {"first": True})
    assert pending(store) == [gates[1 - first]]
    going = resume(store, gates[1 - first], scratch={"second": True})
    assert (going.status, going.scratch, pending(store)) == ("running", {"first": True, "second": True}, [])


def test_one_rejection_of_two_gates_fails_the_run_and_closes_the_other(store: Any) -> None:
    run_id, id = paused(store)
    other_gate = request(store, run_id)
    assert fail(store, id, by="otto", reason="no").status == "failed"
    assert [gate_of(store, one).response for one in (id, other_gate)] == ["no", "The run ended: it failed."]


def test_an_answer_and_an_end_at_the_same_time_never_wait_for_each_other(database_url: str) -> None:
    """Whoever takes the run and its gates takes the run first, so that one of the two is simply later."""
    with Store.open(database_url) as store:
        runs = [paused(store) for _ in range(20)]
        failures: list[BaseException] = []
        together = threading.Barrier(2)

        def each(act: Callable[[Store, str, str], object]) -> None:
            for run_id, id in runs:
                together.wait(30)
                try:
                    act(store, run_id, id)
                except Conflict:
                    pass
                except BaseException as error:
                    failures.append(error)

        def end(store: Store, run_id: str, id: str) -> None:
            with store.begin() as tx:
                tx.workflows.runs.cancel(run_id)

        threads = [threading.Thread(target=each, args=(act,)) for act in (end, lambda store, _, id: resume(store, id))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert {run_of(store, run_id).status for run_id, _ in runs} == {"cancelled"}
        assert pending(store) == []


def test_a_gate_of_a_pause_is_closed_with_its_run(store: Any) -> None:
    run = make_run(store)
    id = pause(store, run.id).id
    with store.begin() as tx:
        assert tx.workflows.runs.cancel(run.id)
        with pytest.raises(NotFound):
            tx.workflows.approvals.get("apr_unknown")
    assert gate_of(store, id).status == "rejected"
