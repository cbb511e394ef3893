"""After a crash, at boot: which runs are dispatched again, which have crashed too often, and what became of their executions."""

from typing import Any

from persist.workflows.schemas import RunStatus, WorkflowRun
from tests.contract.conftest import Raw
from tests.contract.workflows.scenes import HOUR, STATUSES, ask, claim, do, end, held, make, result, start, stored


def boot(store: Any) -> tuple[list[str], list[str]]:
    """Recover -> the ids (to dispatch again, that failed)."""
    again, failed = do(store, "recover_interrupted")
    return [run.id for run in again], [run.id for run in failed]


def test_without_runs_there_is_nothing_to_do(store: Any) -> None:
    assert boot(store) == ([], [])


def test_a_run_that_crashes_at_every_boot_fails_at_the_fourth(store: Any, clock: Any) -> None:
    """(d) 12"""
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


def test_a_crash_of_the_recovery_itself_changes_nothing(store: Any) -> None:
    run = make(store)
    id = start(store, run)

    class Crash(Exception):  # noqa: N818  # no error, an accident
        pass

    try:
        with store.begin() as tx:
            assert [found.id for found in tx.workflows.runs.recover_interrupted()[0]] == [run.id]
            raise Crash
    except Crash:
        pass
    assert stored(store, run.id) == run
    assert result(store, id) == (None, None)
    assert ask(store, "count", status="running") == 1
