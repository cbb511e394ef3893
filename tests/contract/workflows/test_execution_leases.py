"""Executions and gates of a run that a worker holds: its lease is asked for, and a lease that is over is refused."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue, LeaseLost, NotFound
from persist.workflows.schemas import Lease
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.making import SKILL, TRIGGER, claim, execution, gate_of, make_run, pause, run_of, start

Write = Callable[[Any, str, Lease | None], Any]


def held(store: Any) -> Lease:
    """A run that worker w1 holds for a minute."""
    make_run(store, status="queued")
    return claim(store)


def start_in(tx: Any, lease: Lease | None, run_id: str) -> str:
    verb = tx.workflows.executions.start
    return str(verb(trigger_type="webhook", trigger_id=TRIGGER, skill=SKILL, workflow_run_id=run_id, lease=lease).id)


def writes(tx: Any, run_id: str, execution_id: str) -> dict[str, Callable[[Lease | None], Any]]:
    """Every write that a lease guards."""
    verbs = tx.workflows
    return {
        "start": lambda lease: start_in(tx, lease, run_id),
        "finish": lambda lease: verbs.executions.finish(execution_id, success=True, lease=lease),
        "set_output": lambda lease: verbs.executions.set_output(execution_id, "text", lease=lease),
        "pause_for_approval": lambda lease: verbs.approvals.pause_for_approval(
            run_id, gate="g", summary="s", marker=("m", None), lease=lease
        ),
    }


WRITES = ["start", "finish", "set_output", "pause_for_approval"]


@pytest.fixture
def lease(store: Any) -> Lease:
    return held(store)


@pytest.fixture
def begun(store: Any, lease: Lease) -> str:
    """An execution of the held run."""
    with store.begin() as tx:
        return start_in(tx, lease, lease.run_id)


def state(store: Any, lease: Lease, begun: str) -> tuple[Any, ...]:
    """All that the guarded writes could change."""
    with store.read() as tx:
        verbs = tx.workflows
        return (
            verbs.runs.get(lease.run_id),
            verbs.executions.list().items,
            verbs.executions.output_text(begun),
            verbs.approvals.list_for_run(lease.run_id),
        )


def lost(store: Any, lease: Lease, begun: str, name: str, given: Lease | None) -> LeaseLost:
    """The write is refused under that lease, nothing changes, and the transaction goes on."""
    before = state(store, lease, begun)
    with store.begin() as tx:
        with pytest.raises(LeaseLost) as caught:
            writes(tx, lease.run_id, begun)[name](given)
        assert tx.workflows.executions.get(begun).id == begun
    assert state(store, lease, begun) == before
    assert caught.value.run_id == lease.run_id
    return caught.value


@each("name", WRITES)
def test_the_worker_writes_under_its_lease(store: Any, lease: Lease, begun: str, name: str) -> None:
    before = state(store, lease, begun)
    with store.begin() as tx:
        assert writes(tx, lease.run_id, begun)[name](lease)
    assert state(store, lease, begun) != before


@each("name", WRITES)
def test_nobody_else_writes_while_it_is_held(store: Any, lease: Lease, begun: str, name: str) -> None:
    assert lost(store, lease, begun, name, None).token is None


@each("name", WRITES)
def test_a_lease_is_over_at_its_instant(store: Any, clock: Any, lease: Lease, begun: str, name: str) -> None:
    clock.set(lease.expires_at)
    assert lost(store, lease, begun, name, lease).token == lease.token


@each("name", WRITES)
def test_a_lease_holds_until_just_before_its_instant(store: Any, clock: Any, lease: Lease, begun: str, name: str) -> None:
    clock.set(lease.expires_at - timedelta(milliseconds=1))
    with store.begin() as tx:
        assert writes(tx, lease.run_id, begun)[name](lease)


@each("name", WRITES)
def test_a_run_whose_lease_is_over_takes_writes_without_one(store: Any, clock: Any, lease: Lease, begun: str, name: str) -> None:
    """A write without lease= is refused on a run under a live lease alone."""
    clock.set(lease.expires_at)
    with store.begin() as tx:
        assert writes(tx, lease.run_id, begun)[name](None)


@pytest.mark.parametrize("name", WRITES)
def test_a_lease_of_before_the_last_claim_is_lost(store: Any, clock: Any, lease: Lease, begun: str, name: str) -> None:
    clock.set(lease.expires_at)
    newer = claim(store, "w2")
    assert newer.run_id == lease.run_id
    assert lost(store, lease, begun, name, lease).token == lease.token
    with store.begin() as tx:
        assert writes(tx, lease.run_id, begun)[name](newer)


@pytest.mark.parametrize("name", WRITES)
def test_a_released_lease_is_lost(store: Any, lease: Lease, begun: str, name: str) -> None:
    with store.begin() as tx:
        tx.workflows.runs.release(lease)
    lost(store, lease, begun, name, lease)


@pytest.mark.parametrize("name", WRITES)
def test_a_cancelled_runs_lease_is_lost(store: Any, lease: Lease, begun: str, name: str) -> None:
    with store.begin() as tx:
        assert tx.workflows.runs.cancel(lease.run_id)
    lost(store, lease, begun, name, lease)


@each("name", WRITES)
def test_another_worker_cannot_use_a_token(store: Any, lease: Lease, begun: str, name: str) -> None:
    lost(store, lease, begun, name, lease.model_copy(update={"worker": "w2"}))


@each("name", WRITES)
def test_a_renewed_lease_is_the_same_lease(store: Any, clock: Any, lease: Lease, begun: str, name: str) -> None:
    with store.begin() as tx:
        tx.workflows.runs.renew(lease, lease_for=timedelta(hours=1))
    clock.set(lease.expires_at + timedelta(minutes=1))
    with store.begin() as tx:
        assert writes(tx, lease.run_id, begun)[name](lease)


@each("name", WRITES)
def test_a_lease_of_another_run_is_refused(store: Any, lease: Lease, begun: str, name: str) -> None:
    other = held(store)
    before = state(store, lease, begun)
    with store.begin() as tx:
        with pytest.raises(InvalidValue) as caught:
            writes(tx, lease.run_id, begun)[name](other)
        assert caught.value.path == "lease"
    assert state(store, lease, begun) == before


def test_an_execution_of_no_run_needs_no_lease(store: Any, lease: Lease) -> None:
    id = start(store, trigger_id=TRIGGER)
    with store.begin() as tx:
        assert tx.workflows.executions.set_output(id, "text")
        assert tx.workflows.executions.finish(id, success=True)
    assert execution(store, id).success is True


def test_an_execution_of_no_run_under_a_lease_needs_a_lease_that_holds(store: Any, clock: Any, raw: Raw, lease: Lease) -> None:
    clock.set(lease.expires_at)
    gone = lease.model_copy(update={"run_id": "gone"})
    for given, error in ((lease, LeaseLost), (gone, NotFound)):
        with store.begin() as tx, pytest.raises(error):
            tx.workflows.executions.start(trigger_type="api", trigger_id="t", skill="s", lease=given)
    assert raw.count("executions") == 0


def test_what_a_worker_began_it_may_finish_after_it_ended_the_run(store: Any, lease: Lease, begun: str) -> None:
    with store.begin() as tx:
        tx.workflows.runs.finish(lease.run_id, "succeeded", lease=lease)
        assert tx.workflows.executions.finish(begun, success=True, lease=lease)
    assert execution(store, begun).success is True


def test_gates_are_asked_for_and_answered_without_the_lease(store: Any, lease: Lease) -> None:
    """A write without a lease is refused on a held run, except cancel and approvals."""
    with store.begin() as tx:
        verbs = tx.workflows.approvals
        first = verbs.request(lease.run_id, gate="a", summary="s").id
        second = verbs.request(lease.run_id, gate="b", summary="s", kind="reply").id
        assert verbs.respond(first, approved=True)
        assert verbs.resolve_reply(second, response="r")


def test_a_held_run_is_resumed_by_an_answer_and_stays_its_workers(store: Any, lease: Lease) -> None:
    id = pause(store, lease.run_id, lease=lease).id
    with store.begin() as tx:
        run = tx.workflows.approvals.resolve_and_resume(id, by="maria")
    assert (run.status, run.lease_owner, run.lease_token, run.lease_expires_at) == (
        "running",
        "w1",
        lease.token,
        lease.expires_at,
    )
    with store.begin() as tx:
        assert start_in(tx, lease, lease.run_id)


def test_a_held_run_is_failed_by_an_answer(store: Any, lease: Lease) -> None:
    id = pause(store, lease.run_id, lease=lease).id
    with store.begin() as tx:
        tx.workflows.approvals.resolve_and_fail(id, by="maria")
    run = run_of(store, lease.run_id)
    assert (run.status, run.lease_owner, run.lease_expires_at) == ("failed", None, None)
    with store.begin() as tx, pytest.raises(LeaseLost):
        tx.workflows.runs.renew(lease, lease_for=timedelta(hours=1))


def test_a_run_that_its_worker_let_go_of_is_claimed_after_the_answer(store: Any, lease: Lease) -> None:
    id = pause(store, lease.run_id, lease=lease).id
    with store.begin() as tx:
        tx.workflows.runs.release(lease)
        assert tx.workflows.runs.claim("w2", lease=timedelta(minutes=1)) is None
    with store.begin() as tx:
        assert tx.workflows.approvals.resolve_and_resume(id).status == "running"
    newer = claim(store, "w2")
    assert (newer.run_id, newer.token > lease.token, newer.run.restart_count) == (lease.run_id, True, 0)
    assert gate_of(store, id).status == "approved"
