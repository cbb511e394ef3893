"""Answering a gate, which counts once, and what becomes of its run in the same step."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import create_engine

from persist import Store
from persist.errors import Conflict, NotFound, TransitionError
from tests.cases import each
from tests.contract.workflows.making import (
    HARD_TEXT,
    fail,
    gate_of,
    make_run,
    pause,
    paused,
    pending,
    reply,
    request,
    respond,
    resume,
    run_of,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


def answers() -> list[Any]:
    """Each way to answer a gate; `reply` answers reply gates alone."""
    return [respond, resume, fail]


# ---------------------------------------------------------------- answering


@each("approved", [True, False])
@each("kind", ["approve", "reply"])
def test_a_response_answers_a_gate_and_leaves_the_run(store: Any, other: Any, clock: Any, kind: str, approved: bool) -> None:
    """(a): a reply gate can also be rejected"""
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
        for verb in (verbs.get, verbs.resolve_and_resume, verbs.resolve_and_fail):
            with pytest.raises(NotFound) as caught:
                verb("gone")
            assert (caught.value.kind, caught.value.id) == ("approval", "gone")


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
    """(d) 9"""
    run_id, id = paused(store)
    fail(store, id)
    assert run_of(store, run_id).context == {"error": "Rejected: no reason given"}
    assert gate_of(store, id).response is None


def test_observers_are_told_of_a_rejected_run_and_of_no_other(store: Any) -> None:
    told: list[tuple[str, str]] = []
    store.on_run_finished(lambda run: told.append((run.id, str(run.status))))
    resumed, failed = paused(store), paused(store)
    resume(store, resumed[1])
    assert told == []
    fail(store, failed[1])
    assert told == [(failed[0], "failed")]


# ---------------------------------------------------------------- once


@each("first", answers(), ids=lambda answer: answer.__name__)
def test_an_answered_gate_is_not_answered_again(store: Any, first: Callable[..., Any]) -> None:
    """(a): resolve once"""
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


def test_a_reply_to_the_gate_before_does_not_answer_the_next(store: Any) -> None:
    """(d) 8"""
    run_id, first = paused(store, kind="reply")
    resume(store, first, response="one", scratch={"reply": "one"})
    second = pause(store, run_id, kind="reply").id
    with pytest.raises(Conflict, match="not pending"):
        resume(store, first, response="two", scratch={"reply": "two"})
    assert not reply(store, first, "two")
    run = run_of(store, run_id)
    assert (run.status, run.scratch) == ("paused", {"reply": "one"})
    assert (gate_of(store, first).response, pending(store)) == ("one", [second])
    assert resume(store, second, response="two").status == "running"


@each("ended", ["cancelled", "failed", "succeeded"])
@each("answer", [resume, fail], ids=lambda answer: answer.__name__)
def test_no_answer_brings_a_run_back_that_ended(store: Any, answer: Callable[..., Any], ended: str) -> None:
    """Settled: paused -> running; a failed or cancelled run comes back by restart alone"""
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
    """Settled: a queued run is admitted or claimed, and a running one runs already"""
    run = make_run(store, status=status)
    id = request(store, run.id)
    with pytest.raises(TransitionError):
        resume(store, id, scratch={"a": 1})
    assert run_of(store, run.id) == run
    assert gate_of(store, id).status == "pending"


def test_a_rejection_fails_a_running_run_but_not_a_queued_one(store: Any) -> None:
    """Settled: queued -> running, cancelled"""
    running, queued = make_run(store), make_run(store, status="queued")
    assert fail(store, request(store, running.id)).status == "failed"
    id = request(store, queued.id)
    with pytest.raises(TransitionError):
        fail(store, id)
    assert (run_of(store, queued.id), gate_of(store, id).status) == (queued, "pending")


def test_in_a_joined_transaction_a_refused_step_leaves_no_half_of_it(database_url: str) -> None:
    """Design 10: the host's transaction goes on, and what was refused changed nothing."""
    with Store.open(database_url) as store:
        run = make_run(store)
        engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1))
        try:
            with engine.begin() as connection:
                verbs = store.join(connection).workflows
                first = verbs.approvals.pause_for_approval(
                    run.id, gate="g", summary="s", marker=("m", {"a": 1}), scratch={"a": 1}
                )
                with pytest.raises(TransitionError):
                    verbs.approvals.pause_for_approval(run.id, gate="g", summary="s", marker=("m2", None), scratch={"a": 2})
                assert verbs.approvals.resolve_and_resume(first.id, scratch={"b": 2}).status == "running"
                with pytest.raises(Conflict):
                    verbs.approvals.resolve_and_fail(first.id)
                second = verbs.approvals.pause_for_approval(run.id, gate="g", summary="s", marker=("m3", None))
                verbs.approvals.resolve_and_fail(second.id, reason="no")
        finally:
            engine.dispose()
        after = run_of(store, run.id)
        assert (after.status, after.scratch, after.context) == ("failed", {"a": 1, "b": 2}, {"error": "Rejected: no"})
        assert [item["phase"] for item in after.phase_history] == ["m", "m3"]
        assert [gate_of(store, gate.id).status for gate in (first, second)] == ["approved", "rejected"]
