"""Whoever observes the ends of runs is told after the commit, of each end once, and cannot harm anybody."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine

from persist import Store
from persist.errors import Conflict, LeaseLost, StoreBusy, TransactionAborted
from persist.workflows.schemas import WorkflowRun
from tests.contract.faces import every_way
from tests.contract.workflows.scenes import HOUR, claim, do, held, make, queue, stored

pytestmark = every_way


class Crash(Exception):  # noqa: N818  # no error, an accident
    pass


@pytest.fixture
def told(store: Any) -> list[WorkflowRun]:
    """What the store's observer was told."""
    seen: list[WorkflowRun] = []
    store.on_run_finished(seen.append)
    return seen


def test_every_way_to_end_is_told_with_the_run_as_it_ended(store: Any, clock: Any, told: list[WorkflowRun]) -> None:
    crashed = held(store, max_restarts=0)
    succeeded, failed, cancelled, expired = make(store), make(store), make(store), queue(store)
    do(store, "finish", succeeded.id, "succeeded", terminal_marker=("done", "PR #5"))
    do(store, "finish", failed.id, "failed", error="boom")
    do(store, "cancel", cancelled.id, reason="stop")
    do(store, "expire_queued", expired, "too late")
    clock.advance(delta=HOUR)
    claim(store)
    ids = [succeeded.id, failed.id, cancelled.id, expired, crashed.run_id]
    assert told == [stored(store, id) for id in ids]
    assert [run.status for run in told] == ["succeeded", "failed", "cancelled", "cancelled", "failed"]
    assert [run.context for run in told[1:4]] == [{"error": "boom"}, {"error": "stop"}, {"error": "too late"}]


def test_a_recovery_that_fails_runs_tells_of_each(store: Any, told: list[WorkflowRun]) -> None:
    make(store)
    failed = [make(store, max_restarts=0) for _ in range(2)]
    do(store, "recover_interrupted")
    assert [run.id for run in told] == [run.id for run in failed]


def test_a_rejected_gate_tells_of_the_run_it_failed(store: Any, told: list[WorkflowRun]) -> None:
    run = make(store)
    gate = store.workflows.approvals.pause_for_approval(run.id, gate="ship", summary="?", marker=("gate", None))
    store.workflows.approvals.resolve_and_fail(gate.id)
    assert told == [stored(store, run.id)]


def test_what_does_not_end_is_not_told(store: Any, told: list[WorkflowRun]) -> None:
    run = make(store)
    make(store, status="failed")
    for verb in ("pause", "resume", "requeue", "admit"):
        assert do(store, verb, run.id) is True
    do(store, "append_phase", run.id, "code")
    assert do(store, "expire_queued", run.id, "no") is False
    lease = held(store)
    with pytest.raises(LeaseLost):
        do(store, "finish", lease.run_id, "succeeded")
    do(store, "release", lease)
    assert told == []
    do(store, "cancel", run.id)
    assert do(store, "cancel", run.id) is False
    assert do(store, "restart", run.id) is True
    assert [ended.id for ended in told] == [run.id]
    do(store, "finish", run.id, "succeeded")
    assert [ended.status for ended in told] == ["cancelled", "succeeded"]


def test_it_is_told_after_the_commit_in_the_order_of_the_transaction(store: Any, other: Any) -> None:
    runs = [make(store) for _ in range(3)]
    seen: list[tuple[str, str]] = []
    store.on_run_finished(lambda run: seen.append((run.id, run.status)))
    with store.begin() as tx:
        for run in reversed(runs):
            tx.workflows.runs.finish(run.id, "succeeded")
        assert seen == []
        assert stored(other, runs[0].id).status == "running"
    assert seen == [(run.id, "succeeded") for run in reversed(runs)]
    assert stored(other, runs[0].id).status == "succeeded"


def test_what_was_rolled_back_is_not_told(store: Any, told: list[WorkflowRun]) -> None:
    run = make(store)
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="agent", model={"providerID": "p", "modelID": "m"}).id
        tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "a"}], id="msg_taken")

    def crash() -> None:
        with store.begin() as tx:
            tx.workflows.runs.finish(run.id, "succeeded")
            raise Crash

    def doomed() -> None:
        with store.begin() as tx:
            tx.workflows.runs.finish(run.id, "succeeded")
            with pytest.raises(Conflict):
                tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "a"}] * 2, id="msg_taken")

    with pytest.raises(Crash):
        crash()
    with pytest.raises(TransactionAborted):
        doomed()
    assert told == []
    assert stored(store, run.id).status == "running"


def test_a_replayed_transaction_is_told_once(store: Any, told: list[WorkflowRun]) -> None:
    run = make(store)
    tries = []

    def finish(tx: Any) -> None:
        tx.workflows.runs.finish(run.id, "succeeded")
        tries.append(1)
        if len(tries) < 3:
            raise StoreBusy(0.0)

    store.transact(finish)
    assert len(tries) == 3
    assert [ended.id for ended in told] == [run.id]


def test_another_store_does_not_hear_of_it(store: Any, other: Any, told: list[WorkflowRun]) -> None:
    """Observers are of one store, in one process."""
    do(other, "cancel", make(store).id)
    assert told == []


@pytest.fixture
def sync_store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as store:
        yield store


def test_an_observer_may_write_in_a_transaction_of_its_own(sync_store: Store) -> None:
    """The chain of runs that a workflow engine makes of it. On the async face coroutine functions do so: tests/aio."""
    seen: list[str] = []

    def follow(run: WorkflowRun) -> None:
        seen.append(run.workflow_name)
        with sync_store.begin() as tx:
            assert tx.workflows.runs.get(run.id) == run
            if run.workflow_name == "build":
                made = tx.workflows.runs.create("deploy", trigger_id=run.trigger_id, current_phase="start")
                tx.workflows.runs.finish(made.id, "succeeded")

    sync_store.on_run_finished(follow)
    do(sync_store, "finish", make(sync_store).id, "succeeded")
    assert seen == ["build", "deploy"]


def test_in_a_joined_transaction_nobody_is_told(sync_store: Store, database_url: str, clock: Callable[[], Any]) -> None:
    """The commit is the caller's, who alone knows when it was."""
    told: list[WorkflowRun] = []
    sync_store.on_run_finished(told.append)
    run, waiting = make(sync_store), queue(sync_store)
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.begin() as connection:
        runs = sync_store.join(connection).workflows.runs
        runs.finish(run.id, "failed", error="boom")
        lease = runs.claim("w", lease=timedelta(hours=1))
        assert lease is not None
        assert lease.run_id == waiting
        runs.append_phase(waiting, "code", lease=lease)
        assert runs.cancel(waiting)
        assert [item.id for item in runs.list(status=["failed", "cancelled"], limit=10).items] != []
        assert runs.recover_interrupted() == ([], [])
        assert runs.distinct_names() == ["build"]
    engine.dispose()
    assert told == []
    assert [stored(sync_store, id).status for id in (run.id, waiting)] == ["failed", "cancelled"]
