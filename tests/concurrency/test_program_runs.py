"""Many processes want to go on with the run of a program: one does, once the process that runs it is gone."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from persist import Store
from tests.subprocesses import Worker

PROCESSES = 8
RUN = "20260116-143052-a7b3c9"


@pytest.fixture
def work(database_url: str) -> Iterator[Callable[[str], Worker]]:
    """`work(command)` starts a worker on the test's database; none outlives the test."""
    with ExitStack() as stack:

        def begin(command: str) -> Worker:
            worker = Worker("tests.concurrency.program_worker", command, database_url, RUN, stdin=True)
            stack.callback(worker.close)
            return worker

        yield begin


def heard(process: Worker) -> Any:
    return json.loads(process.stdout.readline())


def asked(processes: list[Worker]) -> list[Any]:
    """What each says at the word."""
    for process in processes:
        process.tell()
    return [heard(process) for process in processes]


def test_one_process_takes_a_run_over_when_its_process_was_killed(store: Store, work: Callable[[str], Worker]) -> None:
    first = work("begin")
    assert heard(first) == "begun"
    others = [work("resume") for _ in range(PROCESSES)]
    assert [heard(process) for process in others] == ["ready"] * PROCESSES
    assert asked(others) == [[first.pid, False]] * PROCESSES
    first.kill()
    first.wait(30)
    pids = {process.pid for process in others}
    for _ in range(PROCESSES):
        answers = asked(others)
        (winner,) = {pid for pid, _ in answers}
        assert winner in pids
        took = [process for process, (_, mine) in zip(others, answers, strict=True) if mine]
        assert [process.pid for process in took] == [winner]
        assert asked(others) == [[winner, False]] * len(others)
        took[0].kill()
        took[0].wait(30)
        others.remove(took[0])
        pids.remove(winner)
    assert not others
    run = store.programs.runs.get(RUN)
    assert (run.status, (run.held_by or "").rsplit("/", 3)[1]) == ("running", str(winner))
