"""Attempts of a run that fail and are repeated, why a run did not succeed, and which runs are dispatched again after a crash."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.workflows.schemas import FailureKind, RunStatus, WorkflowRun
from tests.contract.conftest import Raw
from tests.contract.workflows.scenes import HOUR, STATUSES, ask, claim, do, end, held, make, queue, result, start, stored, taken


def test_an_attempt_that_failed_is_repeated(store: Any, clock: Any) -> None:
    lease = held(store, max_attempts=3, context={"a": 1})
    execution = start(store, lease.run, lease=lease)
    assert (lease.run.attempt, lease.run.max_attempts) == (1, 3)
    now = clock.advance(seconds=1)
    assert do(store, "release", lease, retry_in=timedelta(minutes=1), error="503") is None
    run, due = stored(store, lease.run_id), now + timedelta(minutes=1)
    waiting = {"status": RunStatus.QUEUED, "lease_owner": None, "lease_expires_at": None, "attempt": 2, "last_error": "503"}
    times = {"queued_at": due, "not_before": due, "updated_at": now}
    assert run == lease.run.model_copy(update={**waiting, **times})
    assert result(store, execution) == (False, "stale: the run was queued again")
    assert claim(store) is None
    clock.set(due)
    second = taken(store)
    assert (second.run_id, second.run.attempt, second.run.restart_count) == (lease.run_id, 2, 0)


def test_the_last_attempt_fails_the_run(store: Any, clock: Any) -> None:
    told: list[WorkflowRun] = []
    store.on_run_finished(told.append)
    id = queue(store, max_attempts=2, context={"a": 1})
    do(store, "release", taken(store), retry_in=timedelta(0), error="first")
    lease = taken(store)
    assert lease.run.attempt == 2
    execution = start(store, lease.run, lease=lease)
    do(store, "release", lease, retry_in=HOUR, error="second")
    run = stored(store, id)
    assert (run.status, run.failure_kind, run.attempt) == (RunStatus.FAILED, FailureKind.RETRIES, 2)
    assert (run.context, run.last_error, run.finished_at) == ({"a": 1, "error": "second"}, "first", clock())
    assert result(store, execution)[0] is False
    assert told == [run]
    assert claim(store) is None


def test_without_a_maximum_it_is_repeated_as_often_as_it_is_released(store: Any) -> None:
    id = queue(store)
    for number in range(1, 6):
        lease = taken(store)
        assert lease.run.attempt == number
        do(store, "release", lease, error="again")
    assert stored(store, id).last_error == "again"


def test_the_last_attempt_says_so_if_nobody_says_why(store: Any) -> None:
    id = queue(store, max_attempts=1)
    do(store, "release", taken(store), retry_in=timedelta(0))
    assert stored(store, id).context == {"error": "Each of its 1 attempts failed."}


def test_a_release_without_an_error_counts_no_attempt(store: Any) -> None:
    id = queue(store, max_attempts=1)
    for _ in range(3):
        do(store, "release", taken(store))
    run = stored(store, id)
    assert (run.status, run.attempt, run.last_error) == (RunStatus.QUEUED, 1, None)


def test_a_paused_run_waits_for_its_gate_whatever_its_worker_says(store: Any) -> None:
    lease = held(store, max_attempts=1)
    do(store, "pause", lease.run_id, lease=lease)
    do(store, "release", lease, error="late")
    run = stored(store, lease.run_id)
    assert (run.status, run.attempt, run.lease_owner) == (RunStatus.PAUSED, 1, None)


def test_a_restart_begins_anew(store: Any) -> None:
    id = queue(store, max_attempts=1)
    do(store, "release", taken(store), retry_in=timedelta(0), error="x")
    assert do(store, "restart", id) is True
    run = stored(store, id)
    assert (run.status, run.attempt, run.failure_kind, run.last_error, run.not_before) == ("running", 1, None, None, None)


def rejected(store: Any) -> str:
    id = make(store).id
    with store.begin() as tx:
        gate = tx.workflows.approvals.pause_for_approval(id, gate="g", summary="?", marker=("g", None))
        tx.workflows.approvals.resolve_and_fail(gate.id)
    return id


def worn_out(store: Any) -> str:
    id = make(store, max_restarts=0).id
    do(store, "recover_interrupted")
    return id


def given_up(store: Any) -> str:
    id = queue(store, max_attempts=1)
    do(store, "release", taken(store), error="x")
    return id


def ended(store: Any, verb: str, *args: Any, status: str = "running", **options: Any) -> str:
    id = make(store, status=status).id
    assert do(store, verb, id, *args, **options)
    return id


WAYS: dict[str, Callable[[Any], str]] = {
    "error": lambda store: ended(store, "finish", "failed", error="x"),
    "rejected": rejected,
    "restarts": worn_out,
    "retries": given_up,
    "expired": lambda store: ended(store, "expire_queued", "late", status="queued"),
    "cancelled": lambda store: ended(store, "cancel"),
}


def test_every_end_but_success_has_a_kind(store: Any) -> None:
    assert set(WAYS) == set(FailureKind)
    ids = {kind: way(store) for kind, way in WAYS.items()}
    silent, good = ended(store, "finish", "failed"), ended(store, "finish", "succeeded")
    assert {kind: stored(store, id).failure_kind for kind, id in ids.items()} == {kind: kind for kind in WAYS}
    assert (stored(store, silent).failure_kind, stored(store, good).failure_kind) == ("error", None)
    for kind, id in ids.items():
        expected = {id, silent} if kind == "error" else {id}
        items = ask(store, "list", failure_kind=kind).items
        assert {item.id for item in items} == expected
        assert {item.failure_kind for item in items} == {kind}
        assert {row.id for row in ask(store, "list_rows", failure_kind=kind, workflow_name="build").items} == expected
        assert ask(store, "count", failure_kind=kind) == len(expected)
    assert ask(store, "count", failure_kind="error", status="cancelled") == 0
    assert [item.id for item in ask(store, "list", failure_kind="expired", status=["failed", "cancelled"]).items] == [
        ids["expired"]
    ]
    with pytest.raises(InvalidValue):
        ask(store, "list", failure_kind="bad luck")


def test_a_run_that_is_created_as_failed_has_a_kind(store: Any) -> None:
    kinds = {status: make(store, status=status).failure_kind for status in RunStatus}
    assert {status: kind for status, kind in kinds.items() if kind} == {"failed": "error", "cancelled": "cancelled"}


# After a crash, at boot: which runs are dispatched again, which have crashed too often, and what became of their executions.


def boot(store: Any) -> tuple[list[str], list[str]]:
    """Recover -> the ids (to dispatch again, that failed)."""
    again, failed = do(store, "recover_interrupted")
    return [run.id for run in again], [run.id for run in failed]


def test_a_run_that_crashes_at_every_boot_fails_at_the_fourth(store: Any, clock: Any) -> None:
    told: list[WorkflowRun] = []
    store.on_run_finished(told.append)
    id = make(store, context={"pr": 5}).id
    for number in (1, 2, 3):
        now = clock.advance(seconds=1)
        again, failed = do(store, "recover_interrupted")
        assert (again, failed) == ([stored(store, id)], [])
        assert (again[0].restart_count, again[0].status, again[0].updated_at) == (number, RunStatus.RUNNING, now)
    assert told == []
    now = clock.advance(seconds=1)
    again, failed = do(store, "recover_interrupted")
    assert (again, failed) == ([], [stored(store, id)])
    run = failed[0]
    assert (run.status, run.restart_count, run.finished_at) == (RunStatus.FAILED, 3, now)
    assert run.context is not None
    assert run.context["pr"] == 5
    assert "3 restarts" in run.context["error"]
    assert told == [run]
    assert boot(store) == ([], [])


def test_a_run_may_have_a_cap_of_its_own(store: Any) -> None:
    once, never = make(store, max_restarts=1).id, make(store, max_restarts=0).id
    assert boot(store) == ([once], [never])
    assert boot(store) == ([], [once])
    assert [stored(store, id).restart_count for id in (once, never)] == [1, 0]


def test_a_run_of_an_older_file_may_crash_three_times(store: Any, raw: Raw) -> None:
    id = make(store).id
    raw.rows("UPDATE workflow_runs SET max_restarts = NULL WHERE id = ?", id)
    assert [boot(store) for _ in range(4)] == [([id], [])] * 3 + [([], [id])]
    assert stored(store, id).restart_count == 3


def test_a_run_that_was_restarted_past_its_cap_may_crash_no_more(store: Any) -> None:
    id = make(store, max_restarts=1).id
    boot(store)
    boot(store)
    do(store, "restart", id)
    assert boot(store) == ([], [id])
    run = stored(store, id)
    assert (run.restart_count, run.max_restarts) == (2, 2)


def test_only_running_runs_were_interrupted(store: Any, clock: Any) -> None:
    before = {status: make(store, status=status) for status in STATUSES}
    now = clock.advance(seconds=1)
    assert boot(store) == ([before[RunStatus.RUNNING].id], [])
    for status, run in before.items():
        changed: dict[RunStatus, dict[str, Any]] = {
            RunStatus.RUNNING: {"restart_count": 1, "updated_at": now},
            RunStatus.QUEUED: {"updated_at": now},  # stamped: it still waits
        }
        assert stored(store, run.id) == run.model_copy(update=changed.get(status, {}))


def test_runs_are_given_oldest_first(store: Any, clock: Any) -> None:
    ids = [make(store, id=name).id for name in ("run_b", "run_a")]
    clock.advance(seconds=-1)
    oldest = make(store).id
    assert boot(store) == ([oldest, *sorted(ids)], [])


def test_unfinished_executions_of_the_trigger_are_failed_as_stale(store: Any, clock: Any) -> None:
    run, paused, another = make(store), make(store, status="paused"), make(store, trigger_id="another", status="paused")
    of_run, legacy, of_paused = start(store, run), start(store), start(store, paused)
    done, failed, elsewhere = start(store, run), start(store), start(store, another)
    end(store, done)
    end(store, failed, success=False, error="boom")
    now = clock.advance(seconds=1)
    assert boot(store) == ([run.id], [])
    stale = (False, "stale: harness restarted")
    assert [result(store, id) for id in (of_run, legacy, of_paused)] == [stale] * 3
    assert [result(store, id) for id in (done, failed, elsewhere)] == [(True, None), (False, "boom"), (None, None)]
    with store.read() as tx:
        executions = tx.workflows.executions
        assert executions.get(of_run).finished_at == now
        assert executions.should_run("build:plan", run.trigger_id, workflow_run_id=run.id) == "done"


def test_phases_that_are_done_are_skipped_and_the_interrupted_one_runs_again(store: Any) -> None:
    run = make(store)
    end(store, start(store, run, skill="build:plan"))
    start(store, run, skill="build:code")
    boot(store)
    with store.read() as tx:
        should_run = tx.workflows.executions.should_run
        words = [should_run(f"build:{phase}", run.trigger_id, workflow_run_id=run.id) for phase in ("plan", "code", "review")]
    assert words == ["done", "run", "run"]


def test_a_failed_recovery_also_fails_the_executions(store: Any) -> None:
    run = make(store, max_restarts=0)
    id = start(store, run)
    assert boot(store) == ([], [run.id])
    assert result(store, id) == (False, "stale: harness restarted")


def test_a_run_that_a_worker_holds_is_left_alone_with_its_executions(store: Any) -> None:
    lease = held(store)
    working = start(store, lease.run, lease=lease)
    mine = make(store)  # of the same trigger, and nobody's
    unfinished = start(store, mine)
    assert boot(store) == ([mine.id], [])
    assert stored(store, lease.run_id) == lease.run
    assert result(store, working) == (None, None)
    assert result(store, unfinished) == (False, "stale: harness restarted")


def test_a_run_whose_worker_died_is_dispatched_again_and_taken_from_it(store: Any, clock: Any) -> None:
    lease = held(store)
    now = clock.advance(delta=HOUR)
    assert boot(store) == ([lease.run_id], [])
    run = stored(store, lease.run_id)
    free = {"restart_count": 1, "lease_owner": None, "lease_expires_at": None, "updated_at": now}
    assert run == lease.run.model_copy(update={**free, "lease_token": lease.token + 1})
    assert claim(store, "w2") is None  # whoever recovered it runs it
