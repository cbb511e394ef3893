"""Gates that expire, that nobody needs to answer any more, and runs that wait at several."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import Conflict, LeaseLost, NotFound, TransitionError
from persist.workflows.schemas import Approval, FailureKind
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.making import fail, gate_of, make_run, pause, paused, pending, request, respond, resume, run_of
from tests.contract.workflows.scenes import HOUR, claim, do, held, stored, taken

SECOND = timedelta(seconds=1)


def expire(store: Any, *args: Any) -> list[Approval]:
    closed: list[Approval] = store.workflows.approvals.expire_due(*args)
    return closed


def test_a_gate_says_until_when_it_can_be_answered(store: Any, clock: Any) -> None:
    run = make_run(store)
    until = clock() + HOUR
    with store.begin() as tx:
        approvals = tx.workflows.approvals
        first = approvals.request(run.id, gate="a", summary="?", expires_at=until)
        second = approvals.pause_for_approval(
            run.id, gate="b", summary="?", marker=("b", None), expires_at=until, on_expiry="approved"
        )
    assert (first.expires_at, first.on_expiry) == (until, "rejected")
    assert (second.expires_at, second.on_expiry) == (until, "approved")
    assert (gate_of(store, first.id), gate_of(store, second.id)) == (first, second)


def test_a_gate_expires_when_its_time_has_come_and_once(store: Any, other: Any, clock: Any) -> None:
    run, gate = paused(store, expires_at=clock() + HOUR)
    never = request(store, run)
    clock.advance(delta=HOUR - timedelta(milliseconds=1))
    assert expire(store) == []
    assert expire(store, clock() + SECOND) != []  # at the instant that a caller gives
    assert expire(other) == []
    closed = gate_of(store, gate)
    shown = (closed.status, closed.responded_by, closed.response, closed.responded_at)
    assert shown == ("rejected", None, "Nobody answered in time.", clock())
    assert gate_of(store, never).status == "rejected"  # with its run


def test_by_default_the_run_fails(store: Any, clock: Any) -> None:
    told: list[str] = []
    store.on_run_finished(lambda run: told.append(run.status))
    run, _ = paused(store, gate="review", expires_at=clock() + HOUR)
    now = clock.advance(delta=HOUR)
    (closed,) = expire(store)
    assert closed.status == "rejected"
    failed = run_of(store, run)
    assert (failed.status, failed.failure_kind, failed.finished_at) == ("failed", FailureKind.EXPIRED, now)
    assert failed.context == {"error": "Expired: nobody answered 'review' in time."}
    assert told == ["failed"]
    assert expire(store) == []


@pytest.mark.parametrize(("outcome", "status"), [("approved", "approved"), ("resumed", "rejected")])
def test_otherwise_the_run_goes_on(store: Any, clock: Any, outcome: str, status: str) -> None:
    lease = held(store)
    until = clock() + SECOND
    wait = {"gate": "review", "summary": "?", "expires_at": until, "on_expiry": outcome}
    assert store.workflows.approvals.wait(lease.run_id, lease=lease, **wait) is None
    do(store, "complete", lease)
    clock.advance(delta=SECOND)
    (closed,) = expire(store)
    assert closed.status == status
    again = taken(store, "w2")
    assert again.run_id == lease.run_id
    with store.begin() as tx:  # and the handler, which is called again, is told
        wait["expires_at"] = clock() + HOUR
        assert tx.workflows.approvals.wait(lease.run_id, lease=again, **wait) == closed
    assert stored(store, lease.run_id).status == "running"


def test_the_time_counts_from_when_the_gate_was_opened(store: Any, clock: Any) -> None:
    run = make_run(store)
    first = clock() + HOUR
    gate = request(store, run.id, gate="review", expires_at=first, on_expiry="approved")
    assert store.workflows.approvals.wait(run.id, "review", summary="?", expires_at=first + HOUR) is None
    assert pending(store) == [gate]
    assert (gate_of(store, gate).expires_at, gate_of(store, gate).on_expiry) == (first, "approved")


@each("outcome", ["rejected", "approved", "resumed"])
def test_a_run_that_is_not_paused_is_left_alone(store: Any, clock: Any, outcome: str) -> None:
    run = make_run(store)
    gate = request(store, run.id, expires_at=clock(), on_expiry=outcome)
    (closed,) = expire(store)
    assert closed == gate_of(store, gate)
    assert closed.status == ("approved" if outcome == "approved" else "rejected")
    assert run_of(store, run.id) == run


@pytest.mark.parametrize("outcome", ["approved", "resumed"])
def test_another_gate_is_not_walked_past(store: Any, clock: Any, outcome: str) -> None:
    run, _ = paused(store, expires_at=clock(), on_expiry=outcome)
    left = request(store, run)
    assert len(expire(store)) == 1
    assert run_of(store, run).status == "paused"
    assert resume(store, left).status == "running"


def test_who_answers_in_time_is_heard(store: Any, clock: Any) -> None:
    run, gate = paused(store, expires_at=clock() + SECOND)
    resume(store, gate, by="maria")
    clock.advance(delta=HOUR)
    assert expire(store) == []
    assert (run_of(store, run).status, gate_of(store, gate).responded_by) == ("running", "maria")


def test_who_answers_too_late_is_told_so(store: Any, clock: Any) -> None:
    run, gate = paused(store, expires_at=clock())
    expire(store)
    before = run_of(store, run)
    with pytest.raises(Conflict, match="was rejected already"):
        resume(store, gate, by="maria")
    assert run_of(store, run) == before


def test_many_gates_expire_a_hundred_at_a_time(store: Any, clock: Any) -> None:
    with store.begin() as tx:
        for number in range(120):
            run = tx.workflows.runs.create("build", trigger_id=f"t/{number}", current_phase="plan")
            tx.workflows.approvals.pause_for_approval(run.id, gate="g", summary="?", marker=("g", None), expires_at=clock())
    assert [len(expire(store)) for _ in range(3)] == [100, 20, 0]
    assert store.workflows.runs.count(failure_kind="expired") == 120


def test_several_gates_of_one_run_expire_together(store: Any, clock: Any) -> None:
    run, first = paused(store, expires_at=clock(), on_expiry="approved")
    second = request(store, run, expires_at=clock() + SECOND, on_expiry="rejected")
    third = request(store, run, expires_at=clock() + 2 * SECOND)
    clock.advance(delta=HOUR)
    assert [gate.id for gate in expire(store)] == [first, second]
    assert [gate_of(store, id).status for id in (first, second, third)] == ["approved", "rejected", "rejected"]
    assert run_of(store, run).failure_kind == "expired"


def test_a_gate_whose_run_is_gone_is_closed(store: Any, clock: Any, raw: Raw) -> None:
    run, gate = paused(store, expires_at=clock())
    raw.rows("DELETE FROM workflow_runs WHERE id = ?", run)
    assert [closed.id for closed in expire(store)] == [gate]
    assert gate_of(store, gate).status == "rejected"


@pytest.mark.parametrize("outcome", [None, "whatever"])
def test_an_outcome_that_nobody_knows_is_a_rejection(store: Any, clock: Any, raw: Raw, outcome: str | None) -> None:
    run, gate = paused(store, expires_at=clock())
    raw.rows("UPDATE workflow_approvals SET on_expiry = ? WHERE id = ?", outcome, gate)
    assert len(expire(store)) == 1
    assert run_of(store, run).status == "failed"


def test_an_unreadable_gate_stops_no_other_one(store: Any, clock: Any, raw: Raw) -> None:
    if not raw.is_sqlite:
        return  # Postgres stores no such instant
    first, second = make_run(store), make_run(store)
    with store.begin() as tx:
        for run in (first, second):
            gate = {"gate": "g", "summary": "?", "marker": ("g", None), "expires_at": clock()}
            tx.workflows.approvals.pause_for_approval(run.id, **gate)
    raw.rows("UPDATE workflow_approvals SET created_at = 'soon' WHERE workflow_run_id = ?", first.id)
    assert [closed.workflow_run_id for closed in expire(store)] == [second.id]
    assert run_of(store, first.id).status == "paused"


def test_a_parent_that_waits_goes_on_when_the_gate_of_its_last_child_expires(store: Any, clock: Any) -> None:
    lease = held(store, workflow_name="parent")
    for _ in range(2):
        child = make_run(store, parent_run_id=lease.run_id)
        pause(store, child.id, expires_at=clock())
    assert do(store, "join", lease) is None
    assert len(expire(store)) == 2
    assert stored(store, lease.run_id).status == "running"


# `approvals.wait`: the gate of a handler that is called again after the answer.


def wait(store: Any, run_id: str, gate: str = "review", **options: Any) -> Approval | None:
    found: Approval | None = store.workflows.approvals.wait(run_id, gate, **{"summary": "Ship it?", **options})
    return found


def test_the_first_call_opens_the_gate_and_pauses_the_run(store: Any) -> None:
    run = make_run(store)
    assert wait(store, run.id, kind="reply", requested_by="planner") is None
    (id,) = pending(store)
    gate = gate_of(store, id)
    shown = (gate.workflow_run_id, gate.gate, gate.summary, gate.kind, gate.requested_by)
    assert shown == (run.id, "review", "Ship it?", "reply", "planner")
    paused = run_of(store, run.id)
    assert (paused.status, paused.current_phase) == ("paused", "review")
    assert [item["phase"] for item in paused.phase_history] == ["review"]


def test_after_the_answer_it_is_returned_every_time(store: Any) -> None:
    run = make_run(store)
    wait(store, run.id)
    (id,) = pending(store)
    store.workflows.approvals.resolve_and_resume(id, by="maria", response="yes")
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
    store.workflows.approvals.resolve_and_resume(id)
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


# Gates that nobody needs to answer any more, and runs that wait at several.


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
    taken(store, lease=timedelta(seconds=1))
    request(store, run.id)
    clock.advance(seconds=5)
    assert store.workflows.runs.claim("w2", lease=timedelta(seconds=1)) is None
    assert (run_of(store, run.id).status, pending(store)) == ("failed", [])


def test_what_was_answered_stays_as_it_was_answered(store: Any) -> None:
    run_id, id = paused(store)
    assert respond(store, id, by="maria", response="yes")
    before = gate_of(store, id)
    assert store.workflows.runs.cancel(run_id)
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
    assert store.workflows.runs.resume(run_id)
    assert run_of(store, run_id).status == "running"


def test_a_run_that_is_forced_past_its_gates_leaves_none_open(store: Any) -> None:
    run_id, id = paused(store)
    second = request(store, run_id)
    assert store.workflows.runs.resume(run_id, force=True)
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
