"""What neither opening, reading nor answering a gate takes, and what it leaves unchanged then."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue, PayloadTooLarge, ReadOnlyTransaction
from persist.settings import Settings
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
from tests.contract.workflows.making import (
    NOT_BODIES,
    NOT_FLAGS,
    NOT_LABELS,
    NOT_OPTIONAL_LABELS,
    gate_of,
    ids,
    make_run,
    paused,
    pending,
    plant,
    refused,
    refused_at,
    respond,
    run_of,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
NOT_KINDS: list[Any] = ["", "Approve", "approve ", "maybe", 1, True, None, []]
NOT_SCRATCH: list[Any] = [1, "x", [], {1: 2}, {"a": float("nan")}, {"a": object()}, {"a": {1, 2}}, {"a": NOW}]


@on_one_face
@each("patch", NOT_SCRATCH, ids=lambda patch: repr(patch).partition(" object at ")[0])
def test_a_reply_with_a_patch_that_is_no_json_changes_nothing(store: Any, patch: Any) -> None:
    """(d) 6"""
    run_id, id = paused(store, kind="reply")
    gate, run = gate_of(store, id), run_of(store, run_id)
    with store.begin() as tx:
        with pytest.raises(InvalidValue) as caught:
            tx.workflows.approvals.resolve_and_resume(id, response="r", scratch=patch)
        assert caught.value.path.startswith("scratch")
        assert tx.workflows.approvals.get(id) == gate
        assert tx.workflows.runs.get(run_id) == run
    assert (gate_of(store, id).status, run_of(store, run_id).status, run_of(store, run_id).scratch) == ("pending", "paused", None)


def test_opening_a_gate_refuses_what_it_cannot_keep(store: Any, raw: Raw) -> None:
    run = make_run(store)
    with store.begin() as tx:
        verbs = tx.workflows.approvals
        for verb, good in (
            (verbs.request, {"gate": "g", "summary": "s"}),
            (verbs.pause_for_approval, {"gate": "g", "summary": "s", "marker": ("m", None)}),
        ):
            with pytest.raises(InvalidValue):
                verb("", **good)
            refused_at(verb, 0, "id", [1, None, "a\x00"], run.id, **good)
            refused(verb, "gate", [*NOT_LABELS, None], run.id, **good)
            refused(verb, "summary", [*NOT_BODIES, None], run.id, **good)
            refused(verb, "kind", NOT_KINDS, run.id, **good)
            refused(verb, "requested_by", NOT_OPTIONAL_LABELS, run.id, **good)
        refused(verbs.request, "id", NOT_OPTIONAL_LABELS, run.id, gate="g", summary="s")

        good = {"gate": "g", "summary": "s", "marker": ("m", None)}
        pause = verbs.pause_for_approval
        refused(pause, "scratch", NOT_SCRATCH, run.id, **good)
        refused(pause, "marker", ["m", None, ("m",), ("m", 1, 2), 1], run.id, **good)
        refused(pause, "lease", [1, "lease", {}, True], run.id, **good)
        for marker in [(phase, None) for phase in [*NOT_LABELS, None]] + [("m", {1: 2}), ("m", float("inf")), ("m", object())]:
            with pytest.raises(InvalidValue):
                pause(run.id, gate="g", summary="s", marker=marker)
        assert tx.workflows.runs.get(run.id) == run
        verbs.request(run.id, gate="g", summary="")
        pause(run.id, **good)
    assert raw.count("workflow_approvals") == 2


def test_answering_refuses_what_it_cannot_keep(store: Any) -> None:
    run_id, id = paused(store, kind="reply")
    gate, run = gate_of(store, id), run_of(store, run_id)
    with store.begin() as tx:
        verbs = tx.workflows.approvals
        for verb, good in (
            (verbs.respond, {"approved": True}),
            (verbs.resolve_reply, {"response": "r"}),
            (verbs.resolve_and_resume, {}),
            (verbs.resolve_and_fail, {}),
        ):
            refused_at(verb, 0, "id", [*NOT_LABELS, None], id, **good)
            refused(verb, "by", NOT_OPTIONAL_LABELS, id, **good)
        refused(verbs.respond, "approved", NOT_FLAGS, id)
        refused(verbs.respond, "response", NOT_BODIES, id, approved=True)
        refused(verbs.resolve_reply, "response", [*NOT_BODIES, None], id)
        refused(verbs.resolve_and_resume, "response", NOT_BODIES, id)
        refused(verbs.resolve_and_fail, "reason", NOT_BODIES, id)
        assert verbs.get(id) == gate
        assert tx.workflows.runs.get(run_id) == run
        assert verbs.resolve_and_resume(id).status == "running"


def test_reading_refuses_what_it_cannot_mean(store: Any) -> None:
    run_id, id = paused(store)
    with store.read() as tx:
        verbs = tx.workflows.approvals
        refused_at(verbs.get, 0, "id", [*NOT_LABELS, None], id)
        refused_at(verbs.list_for_run, 0, "workflow_run_id", [*NOT_LABELS, None], run_id)
        refused(verbs.pending, "workflow_run_id", NOT_OPTIONAL_LABELS)
        refused(verbs.pending, "trigger_id", NOT_OPTIONAL_LABELS)
        refused(verbs.pending, "kind", [kind for kind in NOT_KINDS if kind is not None])
        assert ids(verbs.pending()) == [id]


def test_large_text_stays_out_of_a_run(open_store: Any) -> None:
    """Spec: the split rule"""
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


def test_no_writing_verb_runs_in_a_read(store: Any) -> None:
    run_id, id = paused(store)
    with store.read() as tx:
        verbs = tx.workflows.approvals
        writes: list[Callable[[], Any]] = [
            lambda: verbs.request(run_id, gate="g", summary="s"),
            lambda: verbs.pause_for_approval(run_id, gate="g", summary="s", marker=("m", None)),
            lambda: verbs.respond(id, approved=True),
            lambda: verbs.resolve_reply(id, response="r"),
            lambda: verbs.resolve_and_resume(id),
            lambda: verbs.resolve_and_fail(id),
        ]
        for write in writes:
            with pytest.raises(ReadOnlyTransaction):
                write()


def test_a_gate_of_a_newer_program_reads_and_is_not_pending(store: Any, raw: Raw) -> None:
    """A word this version does not know is given back as it is."""
    run_id, _ = paused(store)
    at = NOW + timedelta(days=1)
    row = {"workflow_run_id": run_id, "gate": "g", "summary": "s", "created_at": at}
    plant(raw, "workflow_approvals", id="newer", **row, status="delegated", kind="vote")
    assert "newer" not in pending(store)
    assert (gate_of(store, "newer").status, gate_of(store, "newer").kind) == ("delegated", "vote")
    assert not respond(store, "newer")
