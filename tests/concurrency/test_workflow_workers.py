"""Many workers share the runs of one database: every run has one of them at a time, and none is lost with its worker."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from persist import Store
from persist.errors import LeaseLost, TransitionError
from persist.workflows.schemas import Lease, WorkflowRun
from tests.at_once import together
from tests.contract.workflows.scenes import ask, claim, do, make, queue, result, start, stored
from tests.subprocesses import Worker

Work = Callable[..., Worker]


@pytest.fixture
def work(database_url: str) -> Iterator[Work]:
    """`work(command, name, seconds)` starts a worker on the test's database; none outlives the test."""
    with ExitStack() as stack:

        def begin(command: str, name: str, seconds: float) -> Worker:
            worker = Worker("tests.concurrency.workflow_worker", command, database_url, name, seconds, stdin=True)
            stack.callback(worker.close)
            return worker

        yield begin


def heard(process: Worker) -> Any:
    """What it says next."""
    return json.loads(process.stdout.readline())


def tell(process: Worker) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def claimed_in_time(store: Store) -> Lease:
    """The first run that can be claimed, once it can."""
    for _ in range(600):
        if (lease := claim(store, "successor")) is not None:
            return lease
        time.sleep(0.05)
    raise AssertionError("nothing could be claimed")


@pytest.mark.parametrize("alone", [False, True])
def test_32_threads_claim_each_run_once(store: Store, alone: bool) -> None:
    """In transactions of their own, and each claim a transaction by itself."""
    with store.begin() as tx:
        ids = [tx.workflows.runs.create("build", trigger_id="t", current_phase="p", status="queued").id for _ in range(160)]

    def drain(worker: str) -> list[str]:
        found: list[str] = []
        while True:
            if alone:
                lease = store.workflows.runs.claim(worker, lease=timedelta(hours=1))
            else:
                with store.begin() as tx:
                    lease = tx.workflows.runs.claim(worker, lease=timedelta(hours=1))
            if lease is None:
                return found
            assert (lease.worker, lease.token, lease.run.status) == (worker, 1, "running")
            found.append(lease.run_id)

    claimed = together([partial(drain, f"w{number}") for number in range(32)])
    assert sorted(id for found in claimed for id in found) == sorted(ids)


def test_of_200_queued_runs_each_is_claimed_once_by_four_processes(store: Store, work: Work) -> None:
    with store.begin() as tx:
        ids = [tx.workflows.runs.create("build", trigger_id="t", current_phase="p", status="queued").id for _ in range(200)]
    workers = [work("drain", f"w{number}", 3600) for number in range(4)]
    assert [heard(worker) for worker in workers] == ["ready"] * 4
    for worker in workers:
        tell(worker)
    claimed = {f"w{number}": heard(worker) for number, worker in enumerate(workers)}
    assert sorted(id for done in claimed.values() for id, _ in done) == sorted(ids)
    assert {token for done in claimed.values() for _, token in done} == {1}
    for name, done in claimed.items():
        for id, _ in done:
            run = stored(store, id)
            assert (run.status, run.restart_count, run.lease_owner) == ("succeeded", 0, None)
            assert [item["worker"] for item in run.phase_history] == [name]
    assert [worker.wait(30) for worker in workers] == [0] * 4


def test_the_run_of_a_killed_worker_is_claimed_again_after_its_lease(store: Store, work: Work) -> None:
    id = queue(store)
    worker = work("stall", "w1", 1)
    assert heard(worker)[0] == id
    worker.kill()
    worker.wait(30)
    (execution,) = executions_of(store, id)
    lease = claimed_in_time(store)
    assert (lease.run_id, lease.token, lease.run.restart_count) == (id, 2, 1)
    assert result(store, execution) == (False, "stale: lease expired")
    assert do(store, "finish", id, "succeeded", lease=lease).status == "succeeded"


def test_a_worker_that_comes_back_too_late_writes_nothing(store: Store, work: Work) -> None:
    id = queue(store)
    late = work("stall", "w1", 1)
    assert heard(late)[0] == id
    lease = claimed_in_time(store)
    tell(late)
    assert heard(late) == ["append_phase", "merge_scratch", "finish"]
    assert stored(store, id) == lease.run


def test_a_worker_killed_while_claiming_has_claimed_nothing(store: Store, work: Work) -> None:
    id = queue(store)
    worker = work("hold", "w1", 3600)
    assert heard(worker) == id
    worker.kill()
    worker.wait(30)
    lease = claimed_in_time(store)
    assert (lease.run_id, lease.token, lease.run.restart_count) == (id, 1, 0)


def executions_of(store: Store, id: str) -> list[str]:
    with store.read() as tx:
        return [execution.id for execution in tx.workflows.executions.for_run(id)]


def test_a_run_that_is_claimed_finished_and_cancelled_at_once_ends_once(store: Store) -> None:
    told: list[WorkflowRun] = []
    store.on_run_finished(told.append)
    ids = [queue(store) for _ in range(30)]

    def worker() -> list[str]:
        finished = []
        while (lease := claim(store)) is not None:
            try:
                do(store, "append_phase", lease.run_id, "work", lease=lease)
                do(store, "finish", lease.run_id, "succeeded", lease=lease)
                finished.append(lease.run_id)
            except LeaseLost:
                assert stored(store, lease.run_id).status == "cancelled"
        return finished

    def canceller() -> list[str]:
        return [id for id in ids if do(store, "cancel", id)]

    results = together([worker, canceller] * 3)
    finished, cancelled = ([id for ended in results[first::2] for id in ended] for first in (0, 1))
    assert sorted(finished + cancelled) == sorted(ids)
    assert {stored(store, id).status for id in finished} <= {"succeeded"}
    assert {stored(store, id).status for id in cancelled} <= {"cancelled"}
    assert Counter(run.id for run in told) == Counter(ids)


@pytest.mark.parametrize(
    ("status", "verbs"),
    [
        ("queued", [("admit", ()), ("expire_queued", ("late",))]),
        ("running", [("pause", ()), ("pause", ())]),
        ("failed", [("restart", ()), ("restart", ())]),
        ("paused", [("resume", ()), ("resume", ())]),
    ],
)
def test_of_two_verbs_that_exclude_each_other_one_wins(
    store: Store, status: str, verbs: list[tuple[str, tuple[Any, ...]]]
) -> None:
    for _ in range(10):
        id = make(store, status=status).id
        assert sum(together([partial(do, store, verb, id, *args) for verb, args in verbs * 2])) == 1


def test_of_many_who_finish_a_run_one_does(store: Store) -> None:
    told: list[WorkflowRun] = []
    store.on_run_finished(told.append)
    id = make(store).id

    def finish(number: int) -> bool:
        try:
            do(store, "finish", id, "failed", error=str(number), terminal_marker=(f"p{number}", None))
        except TransitionError:
            return False
        return True

    won = together([partial(finish, number) for number in range(8)])
    assert sum(won) == 1
    run = stored(store, id)
    assert (run.context, run.current_phase) == ({"error": str(won.index(True))}, f"p{won.index(True)}")
    assert told == [run]


def test_patches_of_many_threads_all_survive(store: Store) -> None:
    id = make(store).id

    def write(number: int) -> None:
        for key in range(10):
            do(store, "merge_scratch", id, {f"{number}.{key}": 1})
            do(store, "update_node_status", id, f"{number}.{key}", "done")
            do(store, "append_phase", id, f"{number}.{key}")

    together([partial(write, number) for number in range(4)])
    run = stored(store, id)
    assert len(run.scratch or {}) == len(run.node_statuses or {}) == len({item["phase"] for item in run.phase_history}) == 40


def test_restarts_counted_by_many_stay_within_the_cap(store: Store) -> None:
    id = make(store, max_restarts=30).id

    def recover() -> int:
        return sum(len(do(store, "recover_interrupted")[0]) for _ in range(10))

    assert sum(together([recover] * 4)) == 30
    run = stored(store, id)
    assert (run.status, run.restart_count) == ("failed", 30)


def test_workers_people_and_boots_at_once_leave_every_run_in_order(store: Store) -> None:
    """Whatever meets: no deadlock, no error but a refusal, and every end is told once."""
    told: list[str] = []
    store.on_run_finished(lambda run: told.append(run.id))
    ids = [queue(store, max_restarts=1000, id=f"run_{number}") for number in range(6)]

    def worker(number: int) -> int:
        ended = 0
        dice = random.Random(number)
        for _ in range(25):
            lease = claim(store, f"w{number}")
            if lease is None:
                continue
            try:
                start(store, lease.run, lease=lease)
                if dice.random() < 0.5:
                    do(store, "release", lease)
                else:
                    do(store, "finish", lease.run_id, "failed", lease=lease)
                    ended += 1
            except LeaseLost:
                pass
        return ended

    def person(number: int) -> int:
        ended = 0
        dice = random.Random(number)
        for _ in range(40):
            id = dice.choice(ids)
            verb = dice.choice(["cancel", "restart", "admit", "requeue", "resume"])
            try:
                ended += do(store, verb, id) and verb == "cancel"
            except LeaseLost:
                assert verb == "requeue"
        return ended

    def boot() -> int:
        return sum(len(do(store, "recover_interrupted")[1]) for _ in range(10))

    everybody = [partial(worker, number) for number in range(3)] + [partial(person, number) for number in range(10, 12)]
    assert sum(together([*everybody, boot])) == len(told)
    runs = ask(store, "list", limit=100).items
    assert sorted(run.id for run in runs) == ids


def test_on_postgres_a_claim_does_not_wait_for_another_that_is_not_over(postgres_url: str) -> None:
    with Store.open(postgres_url) as store:
        ids = [queue(store) for _ in range(3)]
        with store.begin() as tx:
            mine = tx.workflows.runs.claim("w1", lease=timedelta(hours=1))
            assert mine is not None
            (others,) = together([lambda: [claim(store, "w2"), claim(store, "w3"), claim(store, "w4")]])
        found = [mine.run_id, *(lease and lease.run_id for lease in others)]
        assert found[3] is None
        assert sorted(found[:3]) == sorted(ids)
        assert stored(store, mine.run_id).lease_owner == "w1"
