"""`approvals.wait`: the gate of a handler that is called again after the answer."""

from typing import Any

import pytest

from persist.errors import LeaseLost, NotFound, TransitionError
from persist.workflows.schemas import Approval
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.making import gate_of, make_run, pending, request, respond, run_of
from tests.contract.workflows.scenes import claim, do, held


def wait(store: Any, run_id: str, gate: str = "review", **options: Any) -> Approval | None:
    with store.begin() as tx:
        found: Approval | None = tx.workflows.approvals.wait(run_id, gate, **{"summary": "Ship it?", **options})
    return found


def test_the_first_call_opens_the_gate_and_pauses_the_run(store: Any) -> None:
    run = make_run(store)
    assert wait(store, run.id, kind="reply", requested_by="planner") is None
    (id,) = pending(store)
    gate = gate_of(store, id)
    assert (gate.workflow_run_id, gate.gate, gate.summary, gate.kind, gate.requested_by) == (
        run.id,
        "review",
        "Ship it?",
        "reply",
        "planner",
    )
    paused = run_of(store, run.id)
    assert (paused.status, paused.current_phase) == ("paused", "review")
    assert [item["phase"] for item in paused.phase_history] == ["review"]


def test_after_the_answer_it_is_returned_every_time(store: Any) -> None:
    run = make_run(store)
    wait(store, run.id)
    (id,) = pending(store)
    with store.begin() as tx:
        tx.workflows.approvals.resolve_and_resume(id, by="maria", response="yes")
    for _ in range(2):
        found = wait(store, run.id, summary="asked in other words")
        assert found == gate_of(store, id)
    assert found is not None
    assert (found.status, found.responded_by, found.response, found.summary) == ("approved", "maria", "yes", "Ship it?")
    assert [item["phase"] for item in run_of(store, run.id).phase_history] == ["review"]


def test_a_run_that_goes_on_without_an_answer_pauses_again(store: Any, raw: Raw) -> None:
    """A gate that was opened beside the run, and a run that a host set going: nothing is asked twice."""
    run = make_run(store)
    id = request(store, run.id, gate="review")
    assert wait(store, run.id) is None
    paused = run_of(store, run.id)
    assert (paused.status, paused.phase_history) == ("paused", [])
    assert pending(store) == [id]
    assert raw.count("workflow_approvals") == 1


@pytest.mark.parametrize("kind", ["approve", "reply"])
def test_a_gate_that_was_answered_beside_the_run(store: Any, kind: str) -> None:
    run = make_run(store)
    id = request(store, run.id, gate="review", kind=kind)
    respond(store, id, approved=False)
    found = wait(store, run.id)
    assert found is not None
    assert (found.id, found.status, run_of(store, run.id).status) == (id, "rejected", "running")


def test_a_gate_that_was_closed_without_an_answer_is_rejected(store: Any) -> None:
    run = make_run(store)
    wait(store, run.id)
    do(store, "resume", run.id, force=True)
    found = wait(store, run.id)
    assert found is not None
    assert (found.status, found.responded_by) == ("rejected", None)


def test_of_several_gates_of_a_name_the_newest_counts(store: Any, clock: Any) -> None:
    run = make_run(store)
    respond(store, request(store, run.id, gate="review"), approved=False)
    other = make_run(store)
    clock.advance(seconds=1)
    newest = request(store, run.id, gate="review")
    respond(store, newest, approved=True)
    respond(store, request(store, other.id, gate="review"), approved=False)
    found = wait(store, run.id)
    assert found is not None
    assert (found.id, found.status) == (newest, "approved")
    assert wait(store, run.id, "deploy") is None  # another gate


@each("status", ["queued", "paused", "succeeded", "failed", "cancelled"])
def test_only_a_running_run_waits(store: Any, raw: Raw, status: str) -> None:
    run = make_run(store, status=status)
    with pytest.raises(TransitionError):
        wait(store, run.id)
    assert raw.count("workflow_approvals") == 0
    assert run_of(store, run.id) == run
    with pytest.raises(NotFound):
        wait(store, "gone")


def test_an_answer_that_comes_before_the_handler_has_returned_is_not_lost(store: Any) -> None:
    lease = held(store)
    assert wait(store, lease.run_id, lease=lease) is None
    (id,) = pending(store)
    with store.begin() as tx:
        tx.workflows.approvals.resolve_and_resume(id)
    run = do(store, "complete", lease)
    assert (run.status, run.lease_owner) == ("running", None)
    again = claim(store)
    answer = wait(store, lease.run_id, lease=again)
    assert answer is not None
    assert answer.id == id


def test_the_lease_of_the_run_is_needed(store: Any, raw: Raw) -> None:
    lease = held(store)
    with pytest.raises(LeaseLost):
        wait(store, lease.run_id)
    assert raw.count("workflow_approvals") == 0
    assert wait(store, lease.run_id, lease=lease) is None
    with pytest.raises(LeaseLost):
        wait(store, lease.run_id, lease=lease)
