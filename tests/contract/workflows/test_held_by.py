"""A worker that lost sight of its claims, because it was cancelled or restarted, finds the leases that it still holds."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.workflows.schemas import RunStatus
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.scenes import BAD_LABELS, HOUR, ask, claim, do, end, held, make, queue, start, stored


def test_a_worker_finds_its_leases_the_oldest_run_first(store: Any, other: Any, clock: Any) -> None:
    newer = held(store, "w1")
    clock.advance(seconds=-1)
    older = held(store, "w1", lease=timedelta(minutes=5))
    held(store, "w2")
    queue(store)
    make(store)
    assert ask(other, "held_by", "w1") == [older, newer]
    assert ask(store, "held_by", "w3") == []


def test_what_it_finds_is_as_good_as_what_it_lost(store: Any, clock: Any) -> None:
    lease = held(store, "w1")
    do(store, "merge_scratch", lease.run_id, {"half": "done"}, lease=lease)
    execution = start(store, lease.run, lease=lease)
    clock.advance(seconds=10)
    (found,) = ask(store, "held_by", "w1")
    assert (found.run_id, found.worker, found.token, found.expires_at) == (lease.run_id, "w1", lease.token, lease.expires_at)
    assert found.run == stored(store, lease.run_id)
    renewed = do(store, "renew", found, lease_for=2 * HOUR)
    assert ask(store, "held_by", "w1") == [renewed]
    end(store, execution, lease=found)
    do(store, "finish", lease.run_id, "succeeded", lease=found)
    assert ask(store, "held_by", "w1") == []


def test_a_lease_that_is_over_is_not_found(store: Any, clock: Any) -> None:
    lease = held(store, "w1", lease=timedelta(seconds=10))
    clock.advance(seconds=10)
    assert ask(store, "held_by", "w1") == []
    again = claim(store, "w2")
    assert again is not None
    assert (again.run_id, again.token) == (lease.run_id, 2)
    assert ask(store, "held_by", "w1") == []
    assert ask(store, "held_by", "w2") == [again]


@pytest.mark.parametrize("gone", ["release", "cancel", "requeue by a person"])
def test_a_run_that_was_let_go_of_is_not_found(store: Any, gone: str) -> None:
    lease = held(store, "w1")
    if gone == "release":
        do(store, "release", lease)
    else:
        assert do(store, "cancel", lease.run_id)
        if gone != "cancel":
            assert do(store, "restart", lease.run_id)
            assert do(store, "requeue", lease.run_id)
    assert ask(store, "held_by", "w1") == []


def test_a_paused_run_is_found_until_its_worker_lets_go(store: Any) -> None:
    lease = held(store, "w1")
    assert do(store, "pause", lease.run_id, lease=lease)
    (found,) = ask(store, "held_by", "w1")
    assert found.run.status == RunStatus.PAUSED
    do(store, "release", found)
    assert ask(store, "held_by", "w1") == []


@each("worker", BAD_LABELS)
def test_a_worker_needs_a_name(store: Any, worker: Any) -> None:
    with pytest.raises(InvalidValue, match="worker"):
        ask(store, "held_by", worker)


MANY = 3000


@pytest.mark.one_server
def test_it_reads_the_few_runs_that_are_leased(
    counted_store: Any, statements: list[str], open_raw: Callable[[str], Raw], database_url: str
) -> None:
    """Beside thousands that ended, and that have no lease any more, both databases choose the index of those that have."""
    made = make(counted_store, status="succeeded")
    leases = [held(counted_store, "w1") for _ in range(3)]
    raw = open_raw(database_url)
    columns = "workflow_name, trigger_id, current_phase, status, started_at, updated_at"
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})"
    copies = f"SELECT 'copy ' || i, {columns} FROM n, workflow_runs WHERE id = ?"
    insert = f"INSERT INTO workflow_runs (id, {columns}) {numbers} {copies}"
    raw.rows(insert, made.id)
    raw.rows("ANALYZE")
    statements.clear()
    assert ask(counted_store, "held_by", "w1") == leases
    (statement,) = [one for one in statements if one.startswith("SELECT") and "workflow_runs" in one]
    if raw.is_sqlite:
        plan = [str(row[3]) for row in raw.rows(f"EXPLAIN QUERY PLAN {statement}")]
    else:
        given = statement.replace("%s", "'w1'").replace("> 'w1'", "> '2026-01-01T00:00:00.000Z'")
        plan = [str(row[0]) for row in raw.rows(f"EXPLAIN {given}")]
    assert "ix_workflow_runs_leased" in " ".join(plan), plan
    assert not [step for step in plan if step.startswith("SCAN") or "Seq Scan" in step], plan
