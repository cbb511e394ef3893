"""Approvals: opening a gate, alone or together with the pause of its run, and the lists of gates."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from persist.errors import Conflict, NotFound, PayloadTooLarge, PersistError, TransitionError
from persist.settings import Settings
from persist.workflows.schemas import Approval
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.making import (
    HARD_TEXT,
    TRIGGER,
    fail,
    gate_of,
    ids,
    make_run,
    pause,
    paused,
    pending,
    plant,
    reply,
    request,
    respond,
    resume,
    run_of,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


def test_a_requested_gate_has_every_field_and_no_answer(store: Any, other: Any) -> None:
    run = make_run(store)
    given: dict[str, Any] = {"gate": "post_plan", "summary": HARD_TEXT, "kind": "reply", "requested_by": "planner", "id": "mine"}
    gate = store.workflows.approvals.request(run.id, **given)
    made = {**given, "workflow_run_id": run.id, "status": "pending", "created_at": NOW}
    assert gate == Approval(**{**dict.fromkeys(Approval.model_fields), **made})
    assert gate_of(other, "mine") == gate
    assert run_of(other, run.id) == run


def test_what_a_request_omits(store: Any) -> None:
    gate = gate_of(store, request(store, make_run(store).id))
    assert (gate.kind, gate.status, gate.requested_by) == ("approve", "pending", None)
    assert len(gate.id) == 30
    assert gate.id.startswith("apr_")


def test_a_pause_marks_merges_opens_and_pauses_in_one_step(store: Any, other: Any, clock: Any) -> None:
    run = make_run(store, context={"issue": 42})
    with store.begin() as tx:
        tx.workflows.runs.merge_scratch(run.id, {"plan": {"steps": [1]}, "keep": None})
        tx.workflows.runs.append_phase(run.id, "plan", {"ok": True})
    at = clock.advance(seconds=60)
    gate = pause(store, run.id, scratch={"plan": "é", "asked": 1}, kind="reply", requested_by="planner", summary=HARD_TEXT)
    found = (gate.status, gate.kind, gate.requested_by, gate.summary, gate.created_at)
    assert found == ("pending", "reply", "planner", HARD_TEXT, at)
    after = run_of(other, run.id)
    assert (after.status, after.current_phase, after.updated_at, after.finished_at) == ("paused", "waiting", at, None)
    assert after.scratch == {"plan": "é", "keep": None, "asked": 1}
    assert [item["phase"] for item in after.phase_history] == ["plan", "waiting"]
    assert after.phase_history[1] == {"phase": "waiting", "timestamp": "2026-01-02T03:05:05.678Z", "by": "plan"}
    assert (after.context, after.restart_count, after.started_at) == ({"issue": 42}, 0, NOW)
    assert gate_of(other, gate.id) == gate


@each("entry", [None, [1, 2], "text", {"timestamp": "mine"}])
def test_a_marker_is_a_phase_of_the_history(store: Any, entry: Any) -> None:
    """A non-object entry under "value", an object's keys beside phase and timestamp."""
    run = make_run(store)
    pause(store, run.id, marker=("waiting", entry))
    extra = {} if entry is None else entry if isinstance(entry, dict) else {"value": entry}
    after = run_of(store, run.id)
    assert after.phase_history == [{"phase": "waiting", "timestamp": "2026-01-02T03:04:05.678Z", **extra}]
    assert after.scratch is None


@each("status", ["queued", "paused", "succeeded", "failed", "cancelled"])
def test_only_a_running_run_pauses(store: Any, raw: Raw, status: str) -> None:
    run = make_run(store, status=status)
    with store.begin() as tx:
        with pytest.raises(TransitionError) as caught:
            tx.workflows.approvals.pause_for_approval(run.id, gate="g", summary="s", marker=("m", None), scratch={"a": 1})
        assert (caught.value.current, caught.value.requested) == (status, "paused")
        assert tx.workflows.runs.get(run.id) == run
    assert raw.count("workflow_approvals") == 0


def test_a_pause_whose_gate_cannot_open_changes_nothing(store: Any, raw: Raw) -> None:
    if raw.is_sqlite:
        raw.rows(
            "CREATE TRIGGER refuse BEFORE INSERT ON workflow_approvals WHEN new.gate = 'refused' "
            "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    else:
        raw.rows("ALTER TABLE workflow_approvals ADD CONSTRAINT refuse CHECK (gate <> 'refused')")
    run = make_run(store)
    with pytest.raises(PersistError):
        pause(store, run.id, gate="refused", scratch={"a": 1})
    assert run_of(store, run.id) == run
    assert (run.status, run.phase_history) == ("running", [])
    assert raw.count("workflow_approvals") == 0
    pause(store, run.id, gate="accepted")


def test_a_runs_gates_are_oldest_first_answered_or_not(store: Any, clock: Any) -> None:
    run, other = make_run(store).id, make_run(store).id
    made = []
    for number in range(6):
        clock.advance(seconds=number % 2)
        made.append(request(store, run))
        request(store, other)
    respond(store, made[2])
    assert ids(store.workflows.approvals.list_for_run(run)) == made
    assert store.workflows.approvals.list_for_run("gone") == []


def test_pending_gates_are_newest_first(store: Any, clock: Any) -> None:
    run = make_run(store).id
    made = []
    for number in range(7):
        clock.advance(seconds=number % 2)
        made.append(request(store, run))
    respond(store, made[1])
    respond(store, made[4], approved=False)
    assert pending(store) == [id for id in made[::-1] if id not in (made[1], made[4])]


def test_pending_gates_of_a_run_a_trigger_and_a_kind(store: Any) -> None:
    one, two, elsewhere = make_run(store).id, make_run(store).id, make_run(store, trigger_id="other").id
    made = {(run, kind): request(store, run, kind=kind) for run in (one, two, elsewhere) for kind in ("approve", "reply")}
    for id in made.values():
        assert id in pending(store)
    assert pending(store, workflow_run_id=one) == [made[one, "reply"], made[one, "approve"]]
    assert pending(store, kind="reply") == [made[run, "reply"] for run in (elsewhere, two, one)]
    assert pending(store, trigger_id=TRIGGER) == [made[run, kind] for run in (two, one) for kind in ("reply", "approve")]
    assert pending(store, trigger_id=TRIGGER, kind="reply") == [made[two, "reply"], made[one, "reply"]]
    assert pending(store, workflow_run_id=one, trigger_id="other") == []
    assert pending(store, workflow_run_id=one, trigger_id=TRIGGER, kind="approve") == [made[one, "approve"]]
    respond(store, made[two, "reply"])
    assert pending(store, trigger_id=TRIGGER, kind="reply") == [made[one, "reply"]]


def test_a_gate_that_outlived_its_run_is_pending_and_can_be_answered(store: Any, raw: Raw) -> None:
    plant(raw, "workflow_approvals", id="orphan", workflow_run_id="gone", gate="g", summary="s", created_at=NOW)
    found = (pending(store), pending(store, workflow_run_id="gone"), pending(store, trigger_id=TRIGGER))
    assert found == (["orphan"], ["orphan"], [])
    for answer in (resume, fail):
        with pytest.raises(NotFound) as caught:
            answer(store, "orphan")
        assert caught.value.kind == "workflow run"
    assert pending(store) == ["orphan"]
    assert respond(store, "orphan")
    assert pending(store) == []


# Answering a gate, which counts once, and what becomes of its run in the same step.


def answers() -> list[Any]:
    """Each way to answer a gate; `reply` answers reply gates alone."""
    return [respond, resume, fail]


@each("approved", [True, False])
@each("kind", ["approve", "reply"])
def test_a_response_answers_a_gate_and_leaves_the_run(store: Any, other: Any, clock: Any, kind: str, approved: bool) -> None:
    """A reply gate can also be rejected."""
    run_id, id = paused(store, kind=kind)
    run, gate = run_of(store, run_id), gate_of(store, id)
    at = clock.advance(seconds=60)
    assert respond(store, id, approved=approved, by="maria", response=HARD_TEXT)
    assert gate_of(other, id) == gate.model_copy(
        update={
            "status": "approved" if approved else "rejected",
            "responded_by": "maria",
            "response": HARD_TEXT,
            "responded_at": at,
        }
    )
    assert run_of(other, run_id) == run


def test_a_response_says_no_more_than_it_has_to(store: Any) -> None:
    _, id = paused(store)
    assert respond(store, id, approved=False)
    gate = gate_of(store, id)
    assert (gate.status, gate.responded_by, gate.response, gate.responded_at) == ("rejected", None, None, NOW)


def test_a_reply_answers_a_reply_gate(store: Any) -> None:
    run_id, id = paused(store, kind="reply")
    assert reply(store, id, HARD_TEXT, by="maria")
    gate = gate_of(store, id)
    assert (gate.status, gate.response, gate.responded_by, gate.responded_at) == ("approved", HARD_TEXT, "maria", NOW)
    assert run_of(store, run_id).status == "paused"


def test_a_reply_does_not_answer_an_approve_gate(store: Any) -> None:
    _, id = paused(store)
    before = gate_of(store, id)
    assert not reply(store, id)
    assert gate_of(store, id) == before


def test_an_unknown_gate_is_not_answered(store: Any) -> None:
    with store.begin() as tx:
        verbs = tx.workflows.approvals
        assert not verbs.respond("gone", approved=True)
        assert not verbs.resolve_reply("gone", response="r")


def test_an_approval_lets_the_run_go_on_in_one_step(store: Any, other: Any, clock: Any) -> None:
    run_id, id = paused(store, scratch={"a": 1, "b": 2})
    before = run_of(store, run_id)
    at = clock.advance(seconds=60)
    run = resume(store, id, by="maria", response=HARD_TEXT, scratch={"b": {"said": HARD_TEXT}, "c": None})
    assert run == before.model_copy(
        update={"status": "running", "scratch": {"a": 1, "b": {"said": HARD_TEXT}, "c": None}, "updated_at": at}
    )
    assert run_of(other, run_id) == run
    gate = gate_of(other, id)
    assert (gate.status, gate.responded_by, gate.response, gate.responded_at) == ("approved", "maria", HARD_TEXT, at)


@each("kind", ["approve", "reply"])
@each("scratch", [None, {}])
def test_an_approval_without_scratch_leaves_it(store: Any, kind: str, scratch: Any) -> None:
    run_id, id = paused(store, kind=kind, scratch={"a": 1})
    run = resume(store, id, scratch=scratch)
    assert (run.id, run.status, run.scratch) == (run_id, "running", {"a": 1})
    assert gate_of(store, id).status == "approved"


def test_a_rejection_fails_the_run_in_one_step(store: Any, other: Any, clock: Any) -> None:
    run = make_run(store, context={"issue": 42, "error": "old"})
    id = pause(store, run.id, scratch={"a": 1}).id
    before = run_of(store, run.id)
    at = clock.advance(seconds=60)
    after = fail(store, id, by="maria", reason=HARD_TEXT)
    assert after == before.model_copy(
        update={
            "status": "failed",
            "failure_kind": "rejected",
            "context": {"issue": 42, "error": f"Rejected: {HARD_TEXT}"},
            "updated_at": at,
            "finished_at": at,
        }
    )
    assert run_of(other, run.id) == after
    gate = gate_of(other, id)
    assert (gate.status, gate.responded_by, gate.response, gate.responded_at) == ("rejected", "maria", HARD_TEXT, at)


def test_a_rejection_without_reason_says_so(store: Any) -> None:
    run_id, id = paused(store)
    fail(store, id)
    assert run_of(store, run_id).context == {"error": "Rejected: no reason given"}
    assert gate_of(store, id).response is None


@each("first", answers(), ids=lambda answer: answer.__name__)
def test_an_answered_gate_is_not_answered_again(store: Any, first: Callable[..., Any]) -> None:
    run_id, id = paused(store, kind="reply", scratch={"a": 1})
    first(store, id, by="first")
    gate, run = gate_of(store, id), run_of(store, run_id)
    with store.begin() as tx:
        verbs = tx.workflows.approvals
        assert not verbs.respond(id, approved=gate.status != "approved", by="second", response="r")
        assert not verbs.resolve_reply(id, response="r", by="second")
        with pytest.raises(Conflict, match="not pending"):
            verbs.resolve_and_resume(id, by="second", scratch={"a": 2})
        with pytest.raises(Conflict, match="not pending"):
            verbs.resolve_and_fail(id, by="second", reason="r")
        assert (verbs.get(id), tx.workflows.runs.get(run_id)) == (gate, run)
    assert (gate_of(store, id), run_of(store, run_id)) == (gate, run)


@each("ended", ["cancelled", "failed", "succeeded"])
@each("answer", [resume, fail], ids=lambda answer: answer.__name__)
def test_no_answer_brings_a_run_back_that_ended(store: Any, answer: Callable[..., Any], ended: str) -> None:
    """Paused -> running; a failed or cancelled run comes back by restart alone."""
    run_id, id = paused(store)
    with store.begin() as tx:
        if ended == "cancelled":
            assert tx.workflows.runs.cancel(run_id)
        else:
            tx.workflows.runs.finish(run_id, ended)
    gate, run = gate_of(store, id), run_of(store, run_id)
    with pytest.raises(Conflict, match="not pending"):
        answer(store, id)
    assert (gate_of(store, id), run_of(store, run_id)) == (gate, run)
    assert not respond(store, id, approved=False)


@pytest.mark.parametrize("status", ["running", "queued"])
def test_only_a_paused_run_is_resumed(store: Any, status: str) -> None:
    """A queued run is admitted or claimed, and a running one runs already."""
    run = make_run(store, status=status)
    id = request(store, run.id)
    with pytest.raises(TransitionError):
        resume(store, id, scratch={"a": 1})
    assert run_of(store, run.id) == run
    assert gate_of(store, id).status == "pending"


def test_a_rejection_fails_a_running_run_but_not_a_queued_one(store: Any) -> None:
    """Queued -> running, cancelled."""
    running, queued = make_run(store), make_run(store, status="queued")
    assert fail(store, request(store, running.id)).status == "failed"
    id = request(store, queued.id)
    with pytest.raises(TransitionError):
        fail(store, id)
    assert (run_of(store, queued.id), gate_of(store, id).status) == (queued, "pending")


# What neither opening, reading nor answering a gate takes, and what it leaves unchanged then.


def test_large_text_stays_out_of_a_run(open_store: Any) -> None:
    store = open_store(settings=Settings(max_scratch_bytes=100, max_text_bytes=1000))
    run = make_run(store)
    with store.begin() as tx:
        pause = tx.workflows.approvals.pause_for_approval
        for options in (
            {"marker": ("m", None), "scratch": {"a": "x" * 99}},
            {"marker": ("m", "x" * 99)},
            {"marker": ("m", None), "summary": "x" * 1001},
        ):
            with pytest.raises(PayloadTooLarge):
                pause(run.id, **{"gate": "g", "summary": "s", **options})
        assert tx.workflows.runs.get(run.id) == run
        gate = pause(run.id, gate="g", summary="x" * 1000, marker=("m", "x" * 98), scratch={"a": "x" * 98, "b": "x" * 98})
    before = run_of(store, run.id)
    with store.begin() as tx:
        verbs = tx.workflows.approvals
        writes: list[Callable[[], Any]] = [
            lambda: verbs.resolve_and_resume(gate.id, scratch={"a": "x" * 99}),
            lambda: verbs.resolve_and_resume(gate.id, response="x" * 1001),
            lambda: verbs.resolve_and_fail(gate.id, reason="x" * 100),
            lambda: verbs.respond(gate.id, approved=True, response="x" * 1001),
            lambda: verbs.resolve_reply(gate.id, response="x" * 1001),
        ]
        for write in writes:
            with pytest.raises(PayloadTooLarge):
                write()
        assert verbs.get(gate.id) == gate
        assert tx.workflows.runs.get(run.id) == before


def test_a_gate_of_a_newer_program_reads_and_is_not_pending(store: Any, raw: Raw) -> None:
    """A word this version does not know is given back as it is."""
    run_id, _ = paused(store)
    at = NOW + timedelta(days=1)
    row = {"workflow_run_id": run_id, "gate": "g", "summary": "s", "created_at": at}
    plant(raw, "workflow_approvals", id="newer", **row, status="delegated", kind="vote")
    assert "newer" not in pending(store)
    assert (gate_of(store, "newer").status, gate_of(store, "newer").kind) == ("delegated", "vote")
    assert not respond(store, "newer")
