"""Workers share the runs of one database: claiming, renewing, releasing, and what a lost lease may not write."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue, LeaseLost, NotFound, TransitionError
from persist.workflows.schemas import Lease, RunStatus
from tests.contract.conftest import Raw
from tests.contract.workflows.making import SKILL, TRIGGER, execution, gate_of, pause, run_of
from tests.contract.workflows.scenes import (
    HOUR,
    NOWHERE,
    ask,
    assert_all_lost,
    claim,
    do,
    end,
    held,
    make,
    queue,
    result,
    start,
    stored,
    taken,
    writes,
)

MS = timedelta(milliseconds=1)


def test_nothing_to_do_is_none(store: Any) -> None:
    for status in RunStatus:
        if status is not RunStatus.QUEUED:
            make(store, status=status)
    assert claim(store) is None


def test_a_claimed_run_runs_under_a_lease(store: Any, other: Any, clock: Any) -> None:
    made = make(store, status="queued", context={"a": 1})
    now = clock.advance(seconds=1)
    lease = claim(store, "w1", lease=timedelta(minutes=1))
    until = now + timedelta(minutes=1)
    taken = made.model_copy(
        update={"status": RunStatus.RUNNING, "lease_owner": "w1", "lease_expires_at": until, "lease_token": 1, "updated_at": now}
    )
    assert lease == Lease(run_id=made.id, worker="w1", token=1, expires_at=until, run=taken)
    assert stored(other, made.id) == taken
    assert claim(other, "w2") is None


def test_the_oldest_queued_run_is_claimed_first(store: Any, clock: Any) -> None:
    ids = [queue(store, id=name) for name in ("run_b", "run_a")]
    clock.advance(seconds=-1)
    oldest = queue(store)
    found = [claim(store, f"w{number}") for number in range(4)]
    assert [lease and lease.run_id for lease in found] == [oldest, *sorted(ids), None]


def test_a_worker_may_want_one_workflow_only(store: Any, clock: Any) -> None:
    build = queue(store)
    clock.advance(seconds=1)
    triage = queue(store, workflow_name="triage")
    assert claim(store, workflow_name="deploy") is None
    lease = taken(store, workflow_name="triage", lease=timedelta(seconds=1))
    assert lease.run_id == triage
    clock.advance(seconds=2)
    found = taken(store, workflow_name="build")
    assert found.run_id == build  # not the other workflow's expired one
    again = taken(store, workflow_name="triage")
    assert again.run_id == triage


def test_one_worker_holds_many_runs(store: Any) -> None:
    first, second = held(store, "w"), held(store, "w")
    for lease in (first, second):
        do(store, "append_phase", lease.run_id, "code", lease=lease)
    execution = start(store, first.run, lease=first)
    for write in writes(store, first.run_id, execution, second).values():
        with pytest.raises(InvalidValue) as refused:
            write()
        assert refused.value.path == "lease"


def test_a_claim_that_is_refused_fails_no_execution_of_a_dead_worker(store: Any, clock: Any) -> None:
    lease = held(store)
    execution = start(store, lease.run, lease=lease)
    clock.advance(delta=HOUR)
    with store.begin() as tx:
        with pytest.raises(InvalidValue):
            tx.workflows.runs.claim("w", lease=timedelta.max)
        assert tx.workflows.executions.get(execution).success is None


def test_whoever_holds_the_lease_writes(store: Any, clock: Any) -> None:
    lease = held(store)
    execution = start(store, lease.run, lease=lease)
    clock.advance(delta=HOUR - MS)
    for write in writes(store, lease.run_id, execution, lease).values():
        write()
    run = stored(store, lease.run_id)
    assert (run.status, run.current_phase, run.scratch, run.node_statuses) == ("succeeded", "code", {"a": 1}, {"lint": "done"})
    assert (run.lease_owner, run.lease_expires_at, run.lease_token) == (None, None, 1)
    assert result(store, execution) == (True, None)


def test_others_do_not_write_while_it_is_held(store: Any, clock: Any) -> None:
    lease = held(store)
    execution = start(store, lease.run, lease=lease)
    clock.advance(delta=HOUR - MS)
    assert_all_lost(store, lease.run_id, execution, None)
    for verb in ("requeue", "increment_restart_count"):
        with pytest.raises(LeaseLost):
            do(store, verb, lease.run_id)
    assert do(store, "recover_interrupted") == ([], [])
    assert stored(store, lease.run_id) == lease.run


def test_nobody_writes_under_a_lease_that_has_expired(store: Any, clock: Any) -> None:
    lease = held(store)
    execution = start(store, lease.run, lease=lease)
    clock.advance(delta=HOUR)
    assert_all_lost(store, lease.run_id, execution, lease)
    with pytest.raises(LeaseLost):
        do(store, "renew", lease, lease_for=HOUR)
    with pytest.raises(LeaseLost):
        do(store, "release", lease)
    for write in writes(store, lease.run_id, execution, None).values():  # without a lease it is anybody's again
        write()


def test_nobody_writes_under_a_lease_when_another_worker_has_the_run(store: Any, clock: Any) -> None:
    old = held(store, "w")
    execution = start(store, old.run, lease=old)
    clock.advance(delta=HOUR)
    new = claim(store, "w")  # even one of the same name
    assert new is not None
    assert (new.run_id, new.token) == (old.run_id, old.token + 1)
    assert_all_lost(store, old.run_id, execution, old)
    for verb, options in [("renew", {"lease_for": HOUR}), ("release", {})]:
        with pytest.raises(LeaseLost):
            do(store, verb, old, **options)
    do(store, "append_phase", new.run_id, "code", lease=new)


def test_nobody_writes_under_a_lease_that_was_released(store: Any) -> None:
    lease = held(store)
    execution = start(store, lease.run, lease=lease)
    do(store, "release", lease)
    assert_all_lost(store, lease.run_id, execution, lease)
    with pytest.raises(LeaseLost):
        do(store, "release", lease)
    assert do(store, "admit", lease.run_id) is True
    assert_all_lost(store, lease.run_id, execution, lease)


def test_nobody_writes_under_a_lease_that_was_never_given(store: Any) -> None:
    lease = held(store)
    execution = start(store, lease.run, lease=lease)
    for forged in ({"token": 0}, {"token": 2}, {"worker": "w2"}):
        assert_all_lost(store, lease.run_id, execution, lease.model_copy(update=forged))
    do(store, "append_phase", lease.run_id, "code", lease=lease)


def test_a_lease_on_an_unknown_run_is_not_found(store: Any) -> None:
    unknown = held(store).model_copy(update={"run_id": NOWHERE})
    for verb, options in [("renew", {"lease_for": HOUR}), ("release", {})]:
        with pytest.raises(NotFound):
            do(store, verb, unknown, **options)


def test_a_renewed_lease_lasts_from_now(store: Any, clock: Any) -> None:
    lease = held(store, lease=timedelta(seconds=10))
    now = clock.advance(seconds=9)
    renewed = do(store, "renew", lease, lease_for=timedelta(seconds=10))
    until = now + timedelta(seconds=10)
    run = lease.run.model_copy(update={"lease_expires_at": until})
    assert renewed == lease.model_copy(update={"expires_at": until, "run": run})
    clock.advance(seconds=9)
    do(store, "append_phase", lease.run_id, "code", lease=lease)  # the same lease, whichever value of it is at hand
    do(store, "append_phase", lease.run_id, "code", lease=renewed)
    assert claim(store, "w2") is None
    clock.advance(seconds=1)
    with pytest.raises(LeaseLost):
        do(store, "append_phase", lease.run_id, "code", lease=renewed)


def test_a_released_run_goes_back_into_the_queue_and_counts_no_restart(store: Any, clock: Any) -> None:
    lease = held(store)
    now = clock.advance(seconds=1)
    assert do(store, "release", lease) is None
    free = {"status": RunStatus.QUEUED, "lease_owner": None, "lease_expires_at": None, "queued_at": now, "updated_at": now}
    assert stored(store, lease.run_id) == lease.run.model_copy(update=free)
    again = taken(store, "w2")
    assert (again.run_id, again.token, again.run.restart_count) == (lease.run_id, 2, 0)


def test_a_worker_finishes_once_and_releasing_then_is_nothing(store: Any, clock: Any) -> None:
    lease = held(store)
    finished = do(store, "finish", lease.run_id, "succeeded", lease=lease)
    with pytest.raises(TransitionError):
        do(store, "finish", lease.run_id, "failed", lease=lease)
    with pytest.raises(LeaseLost):
        do(store, "renew", lease, lease_for=HOUR)
    assert do(store, "release", lease) is None
    clock.advance(delta=2 * HOUR)
    assert do(store, "release", lease) is None  # however late
    assert stored(store, lease.run_id) == finished


# A worker that lost sight of its claims, because it was cancelled or restarted, finds the leases that it still holds.


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
    again = taken(store, "w2")
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


# Executions and gates of a run that a worker holds: its lease is asked for, and a lease that is over is refused.


def start_in(tx: Any, lease: Lease | None, run_id: str) -> str:
    verb = tx.workflows.executions.start
    return str(verb(trigger_type="webhook", trigger_id=TRIGGER, skill=SKILL, workflow_run_id=run_id, lease=lease).id)


@pytest.fixture
def lease(store: Any) -> Lease:
    return held(store)


def test_an_execution_of_no_run_under_a_lease_needs_a_lease_that_holds(store: Any, clock: Any, raw: Raw, lease: Lease) -> None:
    clock.set(lease.expires_at)
    gone = lease.model_copy(update={"run_id": "gone"})
    for given, error in ((lease, LeaseLost), (gone, NotFound)):
        with store.begin() as tx, pytest.raises(error):
            tx.workflows.executions.start(trigger_type="api", trigger_id="t", skill="s", lease=given)
    assert raw.count("executions") == 0


def test_what_a_worker_began_it_may_finish_after_it_ended_the_run(store: Any, lease: Lease) -> None:
    with store.begin() as tx:
        begun = start_in(tx, lease, lease.run_id)
        tx.workflows.runs.finish(lease.run_id, "succeeded", lease=lease)
        assert tx.workflows.executions.finish(begun, success=True, lease=lease)
    assert execution(store, begun).success is True


def test_gates_are_asked_for_and_answered_without_the_lease(store: Any, lease: Lease) -> None:
    """A write without a lease is refused on a held run, except cancel and approvals."""
    with store.begin() as tx:
        verbs = tx.workflows.approvals
        first = verbs.request(lease.run_id, gate="a", summary="s").id
        second = verbs.request(lease.run_id, gate="b", summary="s", kind="reply").id
        assert verbs.respond(first, approved=True)
        assert verbs.resolve_reply(second, response="r")


def test_a_held_run_is_resumed_by_an_answer_and_stays_its_workers(store: Any, lease: Lease) -> None:
    id = pause(store, lease.run_id, lease=lease).id
    run = store.workflows.approvals.resolve_and_resume(id, by="maria")
    shown = (run.status, run.lease_owner, run.lease_token, run.lease_expires_at)
    assert shown == ("running", "w1", lease.token, lease.expires_at)
    with store.begin() as tx:
        assert start_in(tx, lease, lease.run_id)


def test_a_held_run_is_failed_by_an_answer(store: Any, lease: Lease) -> None:
    id = pause(store, lease.run_id, lease=lease).id
    store.workflows.approvals.resolve_and_fail(id, by="maria")
    run = run_of(store, lease.run_id)
    assert (run.status, run.lease_owner, run.lease_expires_at) == ("failed", None, None)
    with store.begin() as tx, pytest.raises(LeaseLost):
        tx.workflows.runs.renew(lease, lease_for=timedelta(hours=1))


def test_a_run_that_its_worker_let_go_of_is_claimed_after_the_answer(store: Any, lease: Lease) -> None:
    id = pause(store, lease.run_id, lease=lease).id
    with store.begin() as tx:
        tx.workflows.runs.release(lease)
        assert tx.workflows.runs.claim("w2", lease=timedelta(minutes=1)) is None
    assert store.workflows.approvals.resolve_and_resume(id).status == "running"
    newer = taken(store, "w2")
    assert (newer.run_id, newer.token > lease.token, newer.run.restart_count) == (lease.run_id, True, 0)
    assert gate_of(store, id).status == "approved"
