"""Runs, executions and gates that are made once, however often and by however many they are asked for."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue
from tests.cases import each
from tests.contract.workflows.scenes import ask, do, make, start, stored


def test_a_replayed_key_returns_the_first_run(store: Any, clock: Any) -> None:
    first = make(store, idempotency_key="delivery-1", context={"a": 1})
    clock.advance(seconds=5)
    assert make(store, idempotency_key="delivery-1", context={"a": 2}) == first
    assert make(store, idempotency_key="delivery-1", id="another") == first
    do(store, "finish", first.id, "succeeded")
    assert make(store, idempotency_key="delivery-1").status == "succeeded"
    assert first.idempotency_key == "delivery-1"
    others = {
        make(store).id,
        make(store).id,
        make(store, idempotency_key="delivery-2").id,
        make(store, "label", idempotency_key="delivery-1").id,
    }
    assert len(others | {first.id}) == 5


def test_a_key_is_refused_where_it_cannot_mean_the_same_run(store: Any) -> None:
    first = make(store, idempotency_key="k")
    with pytest.raises(Conflict, match=first.id):
        make(store, idempotency_key="k", if_exists="conflict")
    with pytest.raises(Conflict, match="another trigger"):
        make(store, idempotency_key="k", trigger_id="issue/other")
    with pytest.raises(Conflict):
        make(store, idempotency_key="new", id=first.id)
    assert len(ask(store, "list").items) == 1


def test_a_trigger_has_one_unfinished_run(store: Any, clock: Any) -> None:
    queued = make(store, status="queued", unique_trigger=True)
    assert make(store, unique_trigger=True) == queued
    lease = do(store, "claim", "w", lease=timedelta(hours=1))
    assert make(store, unique_trigger=True).status == "running"
    do(store, "pause", queued.id, lease=lease)
    assert make(store, unique_trigger=True).status == "paused"
    with pytest.raises(Conflict, match=queued.id):
        make(store, unique_trigger=True, if_exists="conflict")
    assert make(store, unique_trigger=True, trigger_id="issue/other").id != queued.id
    assert make(store, "label", unique_trigger=True).id != queued.id
    assert make(store).id != queued.id, "others may share the trigger"
    do(store, "cancel", queued.id)
    successor = make(store, unique_trigger=True)
    assert successor.id != queued.id
    with pytest.raises(Conflict, match="has another unfinished run"):
        do(store, "restart", queued.id)
    assert stored(store, queued.id).status == "cancelled"
    do(store, "finish", successor.id, "failed")
    assert do(store, "restart", queued.id) is True


@each(
    "options",
    [
        {"idempotency_key": ""},
        {"idempotency_key": 7},
        {"unique_trigger": 1},
        {"if_exists": "ignore"},
        {"idempotency_key": "a\x00"},
    ],
)
def test_nothing_is_made_of_bad_values(store: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        make(store, **options)
    assert ask(store, "list").items == []


def test_an_execution_begins_once_for_its_key(store: Any) -> None:
    run = make(store)
    with store.begin() as tx:
        executions = tx.workflows.executions
        given = {"trigger_type": "github", "trigger_id": run.trigger_id, "skill": "build:plan", "workflow_run_id": run.id}
        first = executions.start(**given, idempotency_key="k")
        assert executions.start(**given, idempotency_key="k") == first
        assert first.idempotency_key == "k"
        executions.finish(first.id, success=True)
        assert executions.start(**given, idempotency_key="k").success is True
        with pytest.raises(Conflict):
            executions.start(**{**given, "skill": "build:apply"}, idempotency_key="k")
        assert executions.start(**given).id != first.id
    assert start(store, run) != first.id


def test_a_gate_opens_once_for_its_key(store: Any) -> None:
    run, other = make(store), make(store)
    with store.begin() as tx:
        approvals = tx.workflows.approvals
        first = approvals.request(run.id, gate="review", summary="?", idempotency_key="k")
        assert approvals.request(run.id, gate="review", summary="?", idempotency_key="k") == first
        approvals.respond(first.id, approved=True)
        assert approvals.request(run.id, gate="review", summary="?", idempotency_key="k").status == "approved"
        assert approvals.request(other.id, gate="review", summary="?", idempotency_key="k").id != first.id
        assert approvals.request(run.id, gate="review", summary="?").id != first.id


@pytest.mark.parametrize("options", [{"idempotency_key": "k"}, {"unique_trigger": True}])
def test_of_many_at_once_one_makes_the_run(open_store: Any, options: dict[str, Any]) -> None:
    stores = [open_store() for _ in range(4)]
    begin, made = threading.Barrier(len(stores)), []

    def ask_for_it(store: Any) -> None:
        begin.wait()
        for _ in range(5):
            made.append(make(store, **options).id)

    threads = [threading.Thread(target=ask_for_it, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 20
    assert len(set(made)) == 1
