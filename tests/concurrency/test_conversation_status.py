"""Conversations of several writers: one ends a session, no patch is lost, and a reader of the exchange misses nothing."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from persist import Store
from persist.errors import NotFound, TransitionError
from persist.testing import FrozenClock
from tests.concurrency.test_threads import together
from tests.contract.conftest import Raw
from tests.contract.conversations.making import change, make_branch, make_session, message, session_of, set_status, transitions
from tests.subprocesses import Worker

DAY = timedelta(days=1)


@pytest.fixture
def clock() -> FrozenClock:
    """One instant for all, which a test can move; processes have their own clocks."""
    return FrozenClock()


@pytest.fixture
def workers(database_url: str) -> Iterator[Callable[..., list[Any]]]:
    """`workers(commands)` starts a process for each and lets all of them go at once; none outlives the test."""
    with ExitStack() as stack:

        def start(commands: list[list[Any]]) -> list[Worker]:
            started = []
            for command, *arguments in commands:
                worker = Worker("tests.concurrency.conversation_worker", command, database_url, *arguments, stdin=True)
                stack.callback(worker.close)
                started.append(worker)
            for process in started:
                assert process.stdout.readline() == "ready\n"
            for process in started:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            return started

        yield start


def report(process: Worker) -> Any:
    return json.loads(process.stdout.readline())


# ---------------------------------------------------------------- one status


@pytest.mark.parametrize("handles", [1, 2])
def test_one_of_two_threads_ends_a_session(store: Store, open_store: Callable[..., Store], handles: int) -> None:
    """(c) 23: one says completed, the other failed."""
    second = store if handles == 1 else open_store()
    for number in range(20):
        id = make_session(store, f"s{number}", status="running").id
        ways: list[Callable[[], bool]] = [
            lambda id=id: set_status(store, id, "completed", expected=["running"]),  # type: ignore[misc]  # a default that binds the loop variable
            lambda id=id: set_status(second, id, "failed", expected=["running"]),  # type: ignore[misc]  # likewise
        ]
        won = together(ways)
        assert sorted(won) == [False, True]
        (created, ended) = transitions(store, id)
        assert (created.status, ended.previous_status) == ("running", "running")
        assert ended.status == session_of(store, id).status == ("completed" if won[0] else "failed")


def test_without_a_guard_whoever_comes_second_is_told_that_it_is_over(store: Store, open_store: Callable[..., Store]) -> None:
    stores = [store, open_store()]

    def end(id: str, number: int) -> str:
        try:
            return str(set_status(stores[number % 2], id, ["completed", "failed", "aborted", "timed_out"][number]))
        except TransitionError:
            return "over"

    for number in range(10):
        id = make_session(store, f"s{number}", status="running").id
        told = together([lambda id=id, way=way: end(id, way) for way in range(4)])  # type: ignore[misc]  # a default that binds the loop variable
        assert sorted(told) == ["True", "over", "over", "over"]
        assert len(transitions(store, id)) == 2


def test_one_of_two_processes_ends_a_session(store: Store, workers: Callable[..., Any]) -> None:
    """(c) 23"""
    with store.begin() as tx:
        for number in range(60):
            tx.conversations.sessions.create(id=f"s{number}", status="running")
    completed, failed = map(report, workers([["end", "completed", 60], ["end", "failed", 60]]))
    assert sorted(completed + failed) == list(range(60))
    for number in range(60):
        status = "completed" if number in completed else "failed"
        assert session_of(store, f"s{number}").status == status
        (_, ended) = transitions(store, f"s{number}")
        assert (ended.status, ended.actor) == (status, status)


def test_no_patch_is_lost(store: Store, open_store: Callable[..., Store]) -> None:
    """(d) 2"""
    make_session(store, "s")
    stores = [store, open_store()]

    def patch(number: int) -> None:
        for key in range(10):
            change(stores[number % 2], "s", metadata_patch={"keys": {f"{number}.{key}": key}})

    together([lambda number=number: patch(number) for number in range(4)])  # type: ignore[misc]  # a default that binds the loop variable
    assert session_of(store, "s").node_metadata == {"keys": {f"{n}.{key}": key for n in range(4) for key in range(10)}}


def test_a_session_that_many_create_is_one_with_one_progression(store: Store, database_url: str) -> None:
    made = together([lambda: make_session(store, "s", status="running")] * 8)
    assert made == [made[0]] * 8
    assert len(transitions(store, "s")) == 1
    with closing(Raw(database_url)) as raw:
        assert (raw.count("sessions"), raw.count("progressions")) == (1, 1)


# ---------------------------------------------------------------- the exchange


def test_a_reader_who_follows_the_exchange_sees_each_message_once_in_one_order(store: Store, workers: Callable[..., Any]) -> None:
    """It marks what it saw as read while others commit; what were to appear behind its cursor would be lost."""
    processes = workers([["send", f"sender {number}", 30] for number in range(4)])
    seen: list[tuple[str, Any, str]] = []
    over = False
    while True:
        with store.read() as tx:
            unread = tx.conversations.exchange.inbox("reader", limit=7).items
        seen += [(str(one.sender), one.content, one.id) for one in unread]
        if unread:
            with store.begin() as tx:
                assert tx.conversations.exchange.mark_read("reader", unread[-1].id) is True
        elif over:
            break
        over = all(process.poll() is not None for process in processes)
    sent = [report(process) for process in processes]
    assert len(seen) == 120
    assert sorted(id for _, _, id in seen) == sorted(id for ids in sent for id in ids)
    for number, ids in enumerate(sent):
        own = [(content, id) for sender, content, id in seen if sender == f"sender {number}"]
        assert own == list(enumerate(ids))
    with store.read() as tx:
        assert [one.id for one in tx.conversations.exchange.inbox("reader", unread_only=False, limit=1000).items] == [
            id for _, _, id in seen
        ]
        assert tx.conversations.exchange.unread_count("reader") == 0


# A session is deleted while others record into it: whoever comes first, nobody waits for ever, and nothing is half there.


ROUNDS = 25


def record_all(store: Store, branch: str, role: str) -> int:
    done = 0
    for number in range(5):
        with store.begin() as tx:
            try:
                tx.conversations.messages.record(branch, {**message(f"{branch}-{number}"), "role": role})
            except NotFound:
                return done
            done += 1
    return done


@pytest.mark.parametrize("role", ["user", "system"])
def test_recording_and_deleting_a_session_never_wait_for_each_other(open_store: Callable[..., Any], role: str) -> None:
    stores = [open_store() for _ in range(3)]
    for number in range(ROUNDS):
        id = make_session(stores[0], f"s{number}").id
        branches = [make_branch(stores[0], id, f"b{number}-{side}") for side in range(2)]

        def delete(id: str = id) -> bool:
            with stores[2].begin() as tx:
                gone: bool = tx.conversations.sessions.delete(id)
                return gone

        recording = [partial(record_all, stores[side], branches[side], role) for side in range(2)]
        *_, gone = together([*recording, delete])
        assert gone is True
        with stores[0].read() as tx:
            assert tx.conversations.branches.list(id) == []
            assert all(tx.conversations.progressions.containing(f"{branch}-0") == [] for branch in branches)
