"""Which status may follow which, for every verb from every status; a refused verb changes nothing.

A worker's lease is the matter of test_leases.py; here nobody holds a run.
"""

from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, LeaseLost, NotFound, TransitionError
from persist.workflows.schemas import ApprovalStatus, RunStatus, WorkflowRun
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
from tests.contract.workflows.scenes import ENDED, HOUR, STATUSES, ask, claim, do, held, make, stored, taken

QUEUED, RUNNING, PAUSED = RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.PAUSED
SUCCEEDED, FAILED, CANCELLED = ENDED
Kept = dict[str, Any]


def lived(store: Any, clock: Any, status: RunStatus) -> WorkflowRun:
    """A run in that status that has a context, a scratch, nodes and a history."""
    made = make(store, status=status, context={"kept": 1, "error": "old"})
    do(store, "merge_scratch", made.id, {"a": 1})
    do(store, "update_node_status", made.id, "lint", "done")
    run: WorkflowRun = do(store, "append_phase", made.id, "code", {"n": 1})
    clock.advance(seconds=1)
    return run


# What each verb makes of a run, by the status it may be in; `now` is the instant of the verb.
SWITCHES: dict[str, tuple[tuple[Any, ...], dict[RunStatus, Callable[[Any], Kept]]]] = {
    "admit": ((), {QUEUED: lambda now: {"status": RUNNING, "updated_at": now}}),
    "pause": ((), {RUNNING: lambda now: {"status": PAUSED, "updated_at": now}}),
    "resume": ((), {PAUSED: lambda now: {"status": RUNNING, "updated_at": now}}),
    "requeue": (
        (),
        {RUNNING: lambda now: {"status": QUEUED, "queued_at": now, "updated_at": now}, QUEUED: lambda now: {"updated_at": now}},
    ),
    "cancel": (
        (),
        dict.fromkeys(
            (QUEUED, RUNNING, PAUSED),
            lambda now: {"status": CANCELLED, "failure_kind": "cancelled", "updated_at": now, "finished_at": now},
        ),
    ),
    "expire_queued": (
        ("waited too long",),
        {
            QUEUED: lambda now: {
                "status": CANCELLED,
                "failure_kind": "expired",
                "updated_at": now,
                "finished_at": now,
                "context": {"kept": 1, "error": "waited too long"},
            }
        },
    ),
    "restart": (
        (),
        dict.fromkeys(
            (FAILED, CANCELLED),
            lambda now: {
                "status": RUNNING,
                "updated_at": now,
                "finished_at": None,
                "restart_count": 1,
                "failure_kind": None,
                "context": {"kept": 1},
            },
        ),
    ),
}


@on_one_face
@each("verb", SWITCHES)
def test_a_switch_works_from_its_statuses_alone(store: Any, other: Any, clock: Any, verb: str) -> None:
    more, allowed = SWITCHES[verb]
    for status in STATUSES:
        before = lived(store, clock, status)
        may = status in allowed
        assert do(store, verb, before.id, *more) is may, status
        changes = allowed[status](clock()) if may else {}
        assert stored(other, before.id) == before.model_copy(update=changes), status


@pytest.mark.parametrize("to", [SUCCEEDED, FAILED])
def test_a_run_finishes_from_running_and_paused_alone(store: Any, other: Any, clock: Any, to: RunStatus) -> None:
    for status in STATUSES:
        before = lived(store, clock, status)
        if status in (RUNNING, PAUSED):
            finished = do(store, "finish", before.id, to)
            now = clock()
            kind = "error" if to is FAILED else None
            ended = {"status": to, "failure_kind": kind, "updated_at": now, "finished_at": now}
            assert finished == before.model_copy(update=ended)
        else:
            with pytest.raises(TransitionError) as refused:
                do(store, "finish", before.id, to, error="lost", terminal_marker=("lost", None))
            assert (refused.value.current, refused.value.requested) == (status.value, to.value)
            assert before.id in refused.value.subject
            finished = before
        assert stored(other, before.id) == finished


def test_a_failure_without_a_context_leaves_its_error_there(store: Any) -> None:
    finished = do(store, "finish", make(store).id, "failed", error="boom")
    assert (finished.context, finished.phase_history, finished.current_phase) == ({"error": "boom"}, [], "plan")


def test_a_failure_keeps_the_rest_of_the_context(store: Any) -> None:
    made = make(store, context={"pr": {"n": 7}, "error": "older"})
    assert do(store, "finish", made.id, "failed", error="bo\x00m é").context == {"pr": {"n": 7}, "error": "bo\x00m é"}


def test_a_success_with_a_marker_has_both(store: Any, clock: Any) -> None:
    made = make(store)
    do(store, "append_phase", made.id, "code")
    finished = do(store, "finish", made.id, "succeeded", terminal_marker=("done", "PR #5"))
    assert (finished.status, finished.current_phase, finished.context) == (SUCCEEDED, "done", None)
    assert finished.phase_history[0]["phase"] == "code"
    instant = clock().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert finished.phase_history[1:] == [{"phase": "done", "timestamp": instant, "value": "PR #5"}]


def test_a_cancel_reason_is_the_error_of_the_context(store: Any) -> None:
    made = make(store, context={"kept": 1})
    assert do(store, "cancel", made.id, reason="no longer wanted") is True
    assert stored(store, made.id).context == {"kept": 1, "error": "no longer wanted"}
    silent = make(store)
    do(store, "cancel", silent.id)
    assert stored(store, silent.id).context is None


BAD_MARKERS: list[tuple[str, Any]] = [
    *(("marker", marker) for marker in ("done", ("done",), ("done", 1, 2), 7)),
    *(("phase", (phase, None)) for phase in ("", None, 7)),
    ("entry", ("done", object())),
]


@each(("path", "marker"), BAD_MARKERS)
def test_a_marker_is_checked_before_anything_is_written(store: Any, path: str, marker: Any) -> None:
    made = make(store)
    with store.begin() as tx:
        with pytest.raises(InvalidValue) as ending:
            tx.workflows.runs.finish(made.id, "succeeded", terminal_marker=marker)
        with pytest.raises(InvalidValue) as pausing:
            tx.workflows.approvals.pause_for_approval(made.id, gate="g", summary="s", marker=marker)
        assert (ending.value.path, pausing.value.path) == (path, path)
        assert tx.workflows.runs.get(made.id) == made


def test_restarting_past_the_cap_raises_it(store: Any) -> None:
    id = make(store, max_restarts=1).id
    caps = []
    for _ in range(3):
        do(store, "finish", id, "failed")
        assert do(store, "restart", id) is True
        run = stored(store, id)
        caps.append((run.restart_count, run.max_restarts))
    assert caps == [(1, 1), (2, 2), (3, 3)]
    with pytest.raises(Conflict):
        do(store, "increment_restart_count", id)


def test_restarts_are_counted_up_to_the_cap(store: Any, clock: Any) -> None:
    made = make(store, max_restarts=2)
    clock.advance(seconds=1)
    assert [do(store, "increment_restart_count", made.id) for _ in range(2)] == [1, 2]
    at_cap = stored(store, made.id)
    assert at_cap == made.model_copy(update={"restart_count": 2, "updated_at": clock()})
    with store.begin() as tx:
        with pytest.raises(Conflict) as refused:
            tx.workflows.runs.increment_restart_count(made.id)
        assert "max_restarts" in str(refused.value.constraint)
        assert tx.workflows.runs.get(made.id) == at_cap


def test_the_schema_itself_refuses_a_restart_too_many(store: Any, raw: Raw) -> None:
    id = make(store, max_restarts=2).id
    raw.rows("UPDATE workflow_runs SET restart_count = 2 WHERE id = ?", id)
    with pytest.raises(Exception, match="max_restarts"):  # whichever driver's
        raw.rows("UPDATE workflow_runs SET restart_count = 3 WHERE id = ?", id)
    assert stored(store, id).restart_count == 2


def test_a_run_of_an_older_file_has_a_cap_of_three(store: Any, raw: Raw) -> None:
    id = make(store).id
    raw.rows("UPDATE workflow_runs SET max_restarts = NULL WHERE id = ?", id)
    assert [do(store, "increment_restart_count", id) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(Conflict):
        do(store, "increment_restart_count", id)
    do(store, "finish", id, "failed")
    assert do(store, "restart", id) is True
    run = stored(store, id)
    assert (run.restart_count, run.max_restarts) == (4, None)
    assert ask(store, "count", status="running") == 1


# `runs.complete`: what a worker says when it has done with a run.


def pending(store: Any, lease: Any, *, pauses: bool) -> str:
    """The id of an open gate of the leased run."""
    with store.begin() as tx:
        verb = tx.workflows.approvals.pause_for_approval if pauses else tx.workflows.approvals.request
        options = {"marker": ("review", None), "lease": lease} if pauses else {}
        return str(verb(lease.run_id, gate="review", summary="text", **options).id)


def test_a_running_run_succeeds(store: Any, other: Any, clock: Any) -> None:
    lease = held(store, context={"a": 1})
    now = clock.advance(seconds=1)
    done = do(store, "complete", lease)
    expected = lease.run.model_copy(
        update={
            "status": RunStatus.SUCCEEDED,
            "lease_owner": None,
            "lease_expires_at": None,
            "updated_at": now,
            "finished_at": now,
        }
    )
    assert done == stored(other, lease.run_id) == expected
    clock.advance(seconds=1)
    assert do(store, "complete", lease) == done  # the answer of the first call may have been lost


def test_observers_hear_of_it_once(store: Any) -> None:
    ended: list[Any] = []
    store.on_run_finished(ended.append)
    lease = held(store)
    done = do(store, "complete", lease)
    do(store, "complete", lease)
    assert ended == [done]


def test_gates_of_the_run_are_closed(store: Any) -> None:
    lease, untouched = held(store), held(store)
    gate = pending(store, lease, pauses=False)
    left = pending(store, untouched, pauses=False)
    do(store, "complete", lease)
    closed = store.workflows.approvals.get(gate)
    assert (closed.status, closed.response) == (ApprovalStatus.REJECTED, "The run ended: it succeeded.")
    assert store.workflows.approvals.get(left).status == ApprovalStatus.PENDING


def test_a_paused_run_is_released_and_waits(store: Any, other: Any) -> None:
    lease = held(store)
    gate = pending(store, lease, pauses=True)
    done = do(store, "complete", lease)
    assert (done.status, done.lease_owner, done.lease_expires_at) == (RunStatus.PAUSED, None, None)
    assert stored(other, lease.run_id) == done
    assert claim(other) is None
    with store.begin() as tx:
        assert tx.workflows.approvals.get(gate).status == ApprovalStatus.PENDING
        tx.workflows.approvals.resolve_and_resume(gate)
    again = taken(other, "w2")
    assert again.run_id == lease.run_id


@each("status", ENDED)
def test_a_run_that_the_worker_ended_itself_stays_as_it_is(store: Any, status: RunStatus) -> None:
    lease = held(store)
    if status is RunStatus.CANCELLED:
        do(store, "cancel", lease.run_id)
        before = stored(store, lease.run_id)
        with pytest.raises(LeaseLost):
            do(store, "complete", lease)
    else:
        before = do(store, "finish", lease.run_id, status.value, lease=lease)
        assert do(store, "complete", lease) == before
    assert stored(store, lease.run_id) == before


def test_nobody_completes_a_run_of_another_worker(store: Any, clock: Any) -> None:
    lease = held(store)
    clock.advance(seconds=HOUR.total_seconds())
    newer = taken(store, "w2")
    before = stored(store, lease.run_id)
    with pytest.raises(LeaseLost) as lost:
        do(store, "complete", lease)
    assert (lost.value.run_id, lost.value.token) == (lease.run_id, lease.token)
    assert stored(store, lease.run_id) == before
    assert do(store, "complete", newer).status == RunStatus.SUCCEEDED


def test_a_run_that_is_gone(store: Any, raw: Any) -> None:
    lease = held(store)
    raw.rows("DELETE FROM workflow_runs WHERE id = ?", lease.run_id)
    with pytest.raises(NotFound):
        do(store, "complete", lease)
