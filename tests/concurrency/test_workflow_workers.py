"""Many workers share the runs of one database: every run has one of them at a time, and none is lost with its worker."""

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict, LeaseLost, TransitionError
from persist.workflows.schemas import Approval, Lease, WorkflowRun
from tests.at_once import together
from tests.contract.workflows.making import gate_of, make_run, pause, paused, run_of
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
    late.tell()
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


# Workers of `persist.workflows` as processes that SIGTERM stops.


faces = pytest.mark.parametrize("face", ["sync", "async"])


@faces
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_worker_when_its_handlers_have_ended(
    store: Store, database_url: str, face: str, number: signal.Signals
) -> None:
    id = queue(store)
    with Worker("tests.concurrency.stopping_worker", database_url, face, "attentive") as process:
        assert process.stdout.readline() == "began\n"
        process.send_signal(number)
        assert process.stdout.readline() == "stopped\n"
        assert process.wait(60) == 0
    assert (stored(store, id).status, claim(store)) == ("succeeded", None)


@faces
def test_a_second_signal_ends_the_process(store: Store, database_url: str, face: str) -> None:
    id = queue(store)
    with Worker("tests.concurrency.stopping_worker", database_url, face, "patient") as process:
        assert process.stdout.readline() == "began\n"
        while process.poll() is None:  # the first one is seen only when the process looks at it
            with suppress(ProcessLookupError):  # it ended in this moment
                process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        assert process.wait(60) == -signal.SIGTERM
    run = stored(store, id)
    assert (run.status, run.lease_owner) == ("running", "w")


# Many people answer one gate: exactly one answer counts, the others are told so, and the run agrees with it.


RACERS = 8
ANSWERS = ("resume", "fail", "respond", "reply")


def answer(store: Store, verb: str, gate: str, name: str) -> str:
    """Answer one gate -> "won", "False" or "Conflict"."""
    try:
        with store.begin() as tx:
            verbs = tx.workflows.approvals
            if verb == "resume":
                verbs.resolve_and_resume(gate, by=name, response=name, scratch={"winner": name})
            elif verb == "fail":
                verbs.resolve_and_fail(gate, by=name, reason=name)
            elif verb == "respond":
                return "won" if verbs.respond(gate, approved=False, by=name, response=name) else "False"
            else:
                return "won" if verbs.resolve_reply(gate, by=name, response=name) else "False"
    except Conflict:
        return "Conflict"
    return "won"


def verb_of(number: int, round: int) -> str:
    """Every racer uses every verb, and in every round all verbs race."""
    return ANSWERS[(number + round) % len(ANSWERS)]


def agree(run: WorkflowRun, gate: Approval, winner: str, verb: str) -> None:
    """What is stored of the gate and of its run is what the winner said, and nothing of the others."""
    assert (gate.responded_by, gate.response) == (winner, winner)
    assert gate.status == ("approved" if verb in ("resume", "reply") else "rejected")
    status, context, scratch = {
        "resume": ("running", None, {"winner": winner}),
        "fail": ("failed", {"error": f"Rejected: {winner}"}, None),
    }.get(verb, ("paused", None, None))
    assert (run.status, run.context, run.scratch) == (status, context, scratch)
    assert (run.finished_at is not None) == (verb == "fail")


def judge(store: Store, run_id: str, gate_id: str, round: int, outcomes: Sequence[str]) -> None:
    """One racer won, by whatever verb, and each other one lost as its verb says."""
    assert outcomes.count("won") == 1
    for number, outcome in enumerate(outcomes):
        expected = "Conflict" if verb_of(number, round) in ("resume", "fail") else "False"
        assert outcome in ("won", expected)
    winner = outcomes.index("won")
    agree(run_of(store, run_id), gate_of(store, gate_id), str(winner), verb_of(winner, round))


@pytest.mark.parametrize("round", range(8))
def test_of_many_threads_one_answers_a_gate(store: Store, open_store: Callable[..., Store], round: int) -> None:
    """Half of them by another handle on the database, which shares no lock with the first."""
    handles = (store, open_store())
    run, gate = paused(store, kind="reply")
    outcomes = together([lambda n=n: answer(handles[n % 2], verb_of(n, round), gate, str(n)) for n in range(RACERS)])  # type: ignore[misc]  # a default that binds the loop variable
    judge(store, run, gate, round, outcomes)


def test_of_many_pauses_one_opens_its_gate(store: Store) -> None:
    run = make_run(store)

    def wait(number: int) -> bool:
        try:
            pause(store, run.id, gate=f"g{number}", marker=(f"m{number}", None), scratch={"asked": number})
        except TransitionError:
            return False
        return True

    results = together([lambda number=number: wait(number) for number in range(RACERS)])  # type: ignore[misc]  # a default that binds the loop variable
    assert sum(results) == 1
    winner, after = results.index(True), run_of(store, run.id)
    assert (after.status, after.current_phase, after.scratch) == ("paused", f"m{winner}", {"asked": winner})
    assert [item["phase"] for item in after.phase_history] == [f"m{winner}"]
    with store.read() as tx:
        assert [gate.gate for gate in tx.workflows.approvals.list_for_run(run.id)] == [f"g{winner}"]


def test_two_gates_of_one_run_resume_it_once_both_are_approved(store: Store) -> None:
    run, first = paused(store)
    with store.begin() as tx:
        second = tx.workflows.approvals.request(run, gate="second", summary="s").id

    def resume(gate: str) -> bool:
        try:
            return answer(store, "resume", gate, gate) == "won"
        except TransitionError:
            return False

    gates = [first, second]
    results = together([lambda gate=gate: resume(gate) for gate in gates])  # type: ignore[misc]  # a default that binds the loop variable
    assert results == [True, True]
    after = run_of(store, run)
    assert after.status == "running"
    assert after.scratch is not None
    assert after.scratch["winner"] in gates
    assert [gate_of(store, gate).status for gate in gates] == ["approved", "approved"]


@pytest.mark.parametrize("round", range(4))
def test_a_cancelled_run_stays_so_whoever_answers_its_gate(store: Store, round: int) -> None:
    run, gate = paused(store)

    def resume() -> bool:
        try:
            return answer(store, "resume", gate, "maria") == "won"
        except TransitionError:
            return False

    def cancel() -> bool:
        with store.begin() as tx:
            return tx.workflows.runs.cancel(run, reason=f"round {round}")

    resumed, cancelled = together([resume, cancel])
    assert cancelled
    after = run_of(store, run)
    assert (after.status, after.context) == ("cancelled", {"error": f"round {round}"})
    assert after.scratch == ({"winner": "maria"} if resumed else None)
    assert gate_of(store, gate).status == ("approved" if resumed else "rejected")
