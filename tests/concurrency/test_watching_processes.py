"""Processes that write, and processes that watch and are killed: nothing is missing, nothing comes twice, all is in order."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from persist import Store
from tests.examples import examples
from tests.subprocesses import Worker

Start = Callable[..., Worker]
WRITERS, EACH = 4, examples(1000)
TOTAL = WRITERS * EACH
KILLED_AFTER = (1, 280, 760, 16, 1200)


@pytest.fixture
def start(database_url: str) -> Iterator[Start]:
    """`start(command, *arguments)`: a worker on the test's database; none outlives the test."""
    with ExitStack() as stack:

        def run(command: str, *arguments: Any) -> Worker:
            worker = Worker("tests.concurrency.watching_worker", command, database_url, *arguments)
            stack.callback(worker.close)
            return worker

        yield run


def said(process: Worker, least: int) -> list[Any]:
    """So many lines of a reader, and those it got out until SIGKILL ended it; half a line is none."""
    lines = [process.stdout.readline() for _ in range(least)]
    process.kill()
    rest = process.stdout.read()
    lines += rest[: rest.rfind("\n") + 1].splitlines(keepends=True)
    process.wait(30)
    assert all(line.endswith("\n") for line in lines), "the reader ended by itself"
    return [json.loads(line) for line in lines]


def followed(start: Start, stream: str, total: int, cursor: int) -> list[Any]:
    """What readers saw of a stream, each killed and followed by one that goes on; `cursor`: which number it goes on from."""
    seen: list[Any] = []
    for least in (*KILLED_AFTER, total):
        if len(seen) < total:
            after = seen[-1][cursor] if seen else 0
            seen += said(start("watch", stream, after), min(least, total - len(seen)))
    return seen


def test_readers_that_are_killed_and_go_on_see_everything_once_and_in_order(
    open_store: Callable[..., Store], start: Start
) -> None:
    store = open_store(events=True)
    writers = [start("write", f"writer {number}", EACH) for number in range(WRITERS)]
    seen = followed(start, "*", TOTAL, cursor=0)
    for writer in writers:
        assert writer.wait(300) == 0
    positions = [position for position, *_ in seen]
    assert positions == sorted(set(positions))
    assert len(positions) == TOTAL
    seqs, numbers = defaultdict(list), defaultdict(list)
    for _, seq, stream, data in seen:
        seqs[stream].append(seq)
        numbers[data["writer"]].append(data["number"])
    assert all(found == list(range(1, len(found) + 1)) for found in seqs.values())
    assert dict(numbers) == {f"writer {number}": list(range(EACH)) for number in range(WRITERS)}
    assert list(store.watch("*", after=positions[-1], timeout=0)) == []

    again = followed(start, "shared 0", len(seqs["shared 0"]), cursor=1)
    assert again == [line for line in seen if line[2] == "shared 0"]
