"""Approvals: opening a gate, alone or together with the pause of its run, and the lists of gates."""

from datetime import UTC, datetime
from typing import Any

import pytest

from persist.errors import Conflict, NotFound, PersistError, TransitionError
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
    request,
    respond,
    resume,
    run_of,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


# ---------------------------------------------------------------- opening a gate


def test_a_requested_gate_has_every_field_and_no_answer(store: Any, other: Any) -> None:
    run = make_run(store)
    with store.begin() as tx:
        gate = tx.workflows.approvals.request(
            run.id, gate="post_plan", summary=HARD_TEXT, kind="reply", requested_by="planner", id="mine"
        )
    assert gate == Approval(
        id="mine",
        workflow_run_id=run.id,
        gate="post_plan",
        summary=HARD_TEXT,
        status="pending",
        kind="reply",
        requested_by="planner",
        responded_by=None,
        response=None,
        responded_at=None,
        created_at=NOW,
        idempotency_key=None,
        expires_at=None,
        on_expiry=None,
    )
    assert gate_of(other, "mine") == gate
    assert run_of(other, run.id) == run


def test_what_a_request_omits(store: Any) -> None:
    gate = gate_of(store, request(store, make_run(store).id))
    assert (gate.kind, gate.status, gate.requested_by) == ("approve", "pending", None)
    assert len(gate.id) == 30
    assert gate.id.startswith("apr_")


def test_a_gate_belongs_to_a_run_that_exists(store: Any, raw: Raw) -> None:
    run = make_run(store)
    with store.begin() as tx:
        with pytest.raises(NotFound) as caught:
            tx.workflows.approvals.request("gone", gate="g", summary="s")
        assert (caught.value.kind, caught.value.id) == ("workflow run", "gone")
        tx.workflows.approvals.request(run.id, gate="g", summary="s", id="mine")
    with pytest.raises(Conflict):
        request(store, run.id, id="mine")
    assert raw.count("workflow_approvals") == 1


def test_a_pause_marks_merges_opens_and_pauses_in_one_step(store: Any, other: Any, clock: Any) -> None:
    run = make_run(store, context={"issue": 42})
    with store.begin() as tx:
        tx.workflows.runs.merge_scratch(run.id, {"plan": {"steps": [1]}, "keep": None})
        tx.workflows.runs.append_phase(run.id, "plan", {"ok": True})
    at = clock.advance(seconds=60)
    gate = pause(store, run.id, scratch={"plan": "é", "asked": 1}, kind="reply", requested_by="planner", summary=HARD_TEXT)
    assert (gate.status, gate.kind, gate.requested_by, gate.summary, gate.created_at) == (
        "pending",
        "reply",
        "planner",
        HARD_TEXT,
        at,
    )
    after = run_of(other, run.id)
    assert (after.status, after.current_phase, after.updated_at, after.finished_at) == ("paused", "waiting", at, None)
    assert after.scratch == {"plan": "é", "keep": None, "asked": 1}
    assert [item["phase"] for item in after.phase_history] == ["plan", "waiting"]
    assert after.phase_history[1] == {"phase": "waiting", "timestamp": "2026-01-02T03:05:05.678Z", "by": "plan"}
    assert (after.context, after.restart_count, after.started_at) == ({"issue": 42}, 0, NOW)
    assert gate_of(other, gate.id) == gate


def test_a_pause_without_scratch_leaves_it(store: Any) -> None:
    run = make_run(store)
    pause(store, run.id)
    assert run_of(store, run.id).scratch is None


@each("entry", [None, [1, 2], "text", {"timestamp": "mine"}])
def test_a_marker_is_a_phase_of_the_history(store: Any, entry: Any) -> None:
    """Settled: a non-object entry under "value", an object's keys beside phase and timestamp"""
    run = make_run(store)
    pause(store, run.id, marker=("waiting", entry))
    extra = {} if entry is None else entry if isinstance(entry, dict) else {"value": entry}
    assert run_of(store, run.id).phase_history == [{"phase": "waiting", "timestamp": "2026-01-02T03:04:05.678Z", **extra}]


@each("status", ["queued", "succeeded", "failed", "cancelled"])
def test_only_a_running_run_pauses(store: Any, raw: Raw, status: str) -> None:
    run = make_run(store, status=status)
    with store.begin() as tx:
        with pytest.raises(TransitionError) as caught:
            tx.workflows.approvals.pause_for_approval(run.id, gate="g", summary="s", marker=("m", None), scratch={"a": 1})
        assert (caught.value.current, caught.value.requested) == (status, "paused")
        assert tx.workflows.runs.get(run.id) == run
    assert raw.count("workflow_approvals") == 0


def test_a_paused_run_does_not_pause_again(store: Any, raw: Raw) -> None:
    run_id, _ = paused(store)
    before = run_of(store, run_id)
    with pytest.raises(TransitionError):
        pause(store, run_id)
    assert run_of(store, run_id) == before
    assert raw.count("workflow_approvals") == 1


def test_an_unknown_run_does_not_pause(store: Any, raw: Raw) -> None:
    with store.begin() as tx, pytest.raises(NotFound):
        tx.workflows.approvals.pause_for_approval("gone", gate="g", summary="s", marker=("m", None))
    assert raw.count("workflow_approvals") == 0


def test_a_pause_whose_gate_cannot_open_changes_nothing(store: Any, raw: Raw) -> None:
    """(d) 5"""
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


# ---------------------------------------------------------------- reading gates


def test_a_runs_gates_are_oldest_first_answered_or_not(store: Any, clock: Any) -> None:
    run, other = make_run(store).id, make_run(store).id
    made = []
    for number in range(6):
        clock.advance(seconds=number % 2)
        made.append(request(store, run))
        request(store, other)
    respond(store, made[2])
    with store.read() as tx:
        assert ids(tx.workflows.approvals.list_for_run(run)) == made
        assert tx.workflows.approvals.list_for_run("gone") == []


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
    """(a): no foreign key"""
    plant(raw, "workflow_approvals", id="orphan", workflow_run_id="gone", gate="g", summary="s", created_at=NOW)
    assert (pending(store), pending(store, workflow_run_id="gone"), pending(store, trigger_id=TRIGGER)) == (
        ["orphan"],
        ["orphan"],
        [],
    )
    for answer in (resume, fail):
        with pytest.raises(NotFound) as caught:
            answer(store, "orphan")
        assert caught.value.kind == "workflow run"
    assert pending(store) == ["orphan"]
    assert respond(store, "orphan")
    assert pending(store) == []
