"""Families under races of processes: a parent goes on once, nothing is left out of a cancelled family, a gate expires once."""

import json
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from tests.contract.workflows.scenes import claim, do, held, make, queue, stored
from tests.subprocesses import Worker

RACERS, ROUNDS = 8, 12
HOLDERS = {"complete", "release"}
VERBS = ("finish", "fail", "cancel", "cascade", "reject", "complete", "release", "finish")
PATIENCE = 120
Race = Callable[[list[list[Any]]], list[Any]]


@pytest.fixture
def race(store: Store, database_url: str) -> Iterator[Race]:
    """`race(commands)` gives each of eight processes one command at the same time -> their answers."""
    with ExitStack() as stack:
        processes = [Worker("tests.concurrency.family_worker", database_url, stdin=True) for _ in range(RACERS)]
        for process in processes:
            stack.callback(process.close)
        assert [json.loads(process.stdout.readline()) for process in processes] == ["ready"] * RACERS

        def run(commands: list[list[Any]]) -> list[Any]:
            for process, command in zip(processes, commands, strict=True):
                assert process.stdin is not None
                process.stdin.write(json.dumps(command) + "\n")
            for process in processes:
                assert process.stdin is not None
                process.stdin.flush()
            return [json.loads(process.stdout.readline()) for process in processes]

        yield run


def child(store: Store, parent: str, verb: str) -> list[Any]:
    """A new child of the parent, and the command that ends it by that verb."""
    if verb in HOLDERS:
        lease = held(store, parent_run_id=parent, max_attempts=1)
        return ["end", lease.run_id, verb, lease.model_dump(mode="json")]
    made = make(store, parent_run_id=parent)
    if verb == "reject":
        with store.begin() as tx:
            tx.workflows.approvals.pause_for_approval(made.id, gate="g", summary="?", marker=("g", None))
    return ["end", made.id, verb]


def waiting(store: Store, until: str = "all") -> str:
    """A parent that waits for eight children."""
    lease = held(store, workflow_name="parent")
    make(store, id=f"{lease.run_id}/first", parent_run_id=lease.run_id)
    assert do(store, "join", lease, until) is None
    return lease.run_id


def goes_on_once(store: Store, parent: str) -> None:
    run = stored(store, parent)
    assert (run.status, run.join_until, run.lease_token) == ("running", None, 1)
    lease = claim(store, "w9", workflow_name="parent")
    assert lease is not None
    assert (lease.run_id, lease.token) == (parent, 2)
    assert claim(store, "w9", workflow_name="parent") is None
    do(store, "finish", parent, "succeeded", lease=lease)


def test_children_that_end_at_the_same_instant_let_their_parent_go_on_once(store: Store, race: Race) -> None:
    for round in range(ROUNDS):
        parent = waiting(store)
        commands = [child(store, parent, VERBS[(number + round) % len(VERBS)]) for number in range(RACERS)]
        do(store, "finish", f"{parent}/first", "succeeded")
        assert stored(store, parent).status == "paused"
        assert race(commands) == [True] * RACERS
        goes_on_once(store, parent)


def test_children_that_fail_at_the_same_instant_let_their_parent_go_on_once(store: Store, race: Race) -> None:
    for round in range(ROUNDS):
        parent = waiting(store, "first_failure")
        commands = [child(store, parent, ("fail", "cancel", "reject")[(number + round) % 3]) for number in range(RACERS)]
        assert race(commands) == [True] * RACERS
        assert stored(store, f"{parent}/first").status == "running"
        goes_on_once(store, parent)


def test_one_child_that_many_end_lets_its_parent_go_on_once(store: Store, race: Race) -> None:
    for round in range(ROUNDS):
        parent = waiting(store)
        verbs = [("finish", "fail", "cancel", "cascade")[(number + round) % 4] for number in range(RACERS)]
        assert sum(race([["end", f"{parent}/first", verb] for verb in verbs])) == 1
        goes_on_once(store, parent)


def test_a_parent_that_joins_while_its_children_end_waits_for_none_that_is_gone(store: Store, race: Race) -> None:
    """The last end comes before the join, or after it; either way the parent does not wait for ever."""
    for round in range(ROUNDS):
        lease = held(store, workflow_name="parent")
        commands = [child(store, lease.run_id, VERBS[(number + round) % 5]) for number in range(RACERS)]
        joined: list[Any] = []
        with store.begin() as tx:
            tx.workflows.runs.append_phase(lease.run_id, "wait", lease=lease)
        ending = _Beside(lambda commands=commands: race(commands))  # type: ignore[misc]  # a default that binds the loop variable
        joined.append(do(store, "join", lease))
        assert ending.result() == [True] * RACERS
        run = stored(store, lease.run_id)
        assert run.status == "running"
        assert (run.lease_owner is None) == (joined[0] is None)
        if joined[0] is None:
            goes_on_once(store, lease.run_id)
        else:
            assert joined[0].total == RACERS
            do(store, "finish", lease.run_id, "succeeded", lease=lease)


def test_nothing_is_left_of_a_family_that_is_cancelled_while_it_grows(store: Store, race: Race) -> None:
    for _ in range(ROUNDS):
        root = make(store)
        middle = make(store, parent_run_id=root.id)
        growing = [["grow", (root.id, middle.id)[number % 2], 30] for number in range(RACERS - 2)]
        answers = race([*growing, ["end", root.id, "cascade"], ["end", middle.id, "cascade"]])
        assert answers[-2] is True
        with store.read() as tx:
            family = tx.workflows.runs.family(root.id)
        assert family.runs == 2 + sum(answers[:-2])
        assert set(family.by_status) <= {"cancelled", "succeeded"}


def test_of_many_processes_one_closes_a_gate_that_expires(store: Store, race: Race) -> None:
    gates = []
    parents = [waiting(store) for _ in range(3)]
    with store.begin() as tx:
        now = store.runtime.now()
        for number in range(90):
            run = tx.workflows.runs.create("build", trigger_id="t", current_phase="p", parent_run_id=parents[number % 3])
            gate: dict[str, Any] = {"gate": "g", "summary": "?", "marker": ("g", None), "expires_at": now}
            gates.append(tx.workflows.approvals.pause_for_approval(run.id, **gate).id)
    for parent in parents:
        do(store, "finish", f"{parent}/first", "succeeded")
    closed = [id for found in race([["expire"]] * RACERS) for id in found]
    while left := do_expire(store):
        closed += left
    assert sorted(closed) == sorted(gates)
    assert [stored(store, parent).status for parent in parents] == ["running"] * 3


def do_expire(store: Store) -> list[str]:
    return [gate.id for gate in store.workflows.approvals.expire_due()]


def test_parents_and_children_of_killed_workers_go_on(store: Store, database_url: str, tmp_path: Path) -> None:
    """Workers die at every moment: while they create children, before and after the join, and while they end the last child."""
    world = tmp_path / "world"
    world.touch()
    names = ("w0", "w1", "w2")
    ids = [queue(store, workflow_name="parent", max_restarts=1000) for _ in range(5)]

    def at_once(*moments: int) -> Counter[int]:
        working = [
            Worker("tests.concurrency.dying_family", database_url, name, world, number)
            for name, number in zip(names, moments, strict=True)
        ]
        try:
            return Counter(process.wait(PATIENCE) for process in working)
        finally:
            for process in working:
                process.close()

    seeded = random.Random(11)
    killed = sum(at_once(*(seeded.randint(1, 14) for _ in names))[-signal.SIGKILL] for _ in range(8))
    assert killed >= len(names)
    assert at_once(0, 0, 0) == {0: 3}
    for id in ids:
        run = stored(store, id)
        assert (run.status, run.scratch) == ("succeeded", {"ended": 3})
        with store.read() as tx:
            children = tx.workflows.runs.children(id).items
            assert [found.status for found in children] == ["succeeded"] * 3
            done = [found.skill for found in tx.workflows.executions.for_run(id) if found.success]
            assert sorted(done) == ["parent:gather", "parent:plan"]
    assert sorted(world.read_text(encoding="utf-8").split()) == sorted(ids)


class _Beside:
    """A function that runs beside the test."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._executor = ThreadPoolExecutor(1)
        self._future = self._executor.submit(function)

    def result(self) -> Any:
        """What it returned."""
        try:
            return self._future.result(PATIENCE)
        finally:
            self._executor.shutdown()
