"""Whoever names a row that another deletes waits for it or is told; one ends a session, and no patch of it is lost."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict, InvalidValue, NotFound, TransitionError
from persist.testing import FrozenClock
from tests.at_once import together
from tests.contract.conftest import Raw
from tests.contract.conversations.making import (
    LONG,
    branch_of,
    branches,
    change,
    fork,
    make_branch,
    make_session,
    members,
    message,
    put,
    say,
    session_of,
    set_status,
    shown,
    stored,
    transitions,
)

IDS = [f"m{number}" for number in range(5)]
Verb = Callable[[Any], Any]
DELETIONS: dict[str, Verb] = {
    "branch": lambda tx: tx.conversations.branches.delete("main"),
    "session": lambda tx: tx.conversations.sessions.delete("s"),
    "prune": lambda tx: tx.conversations.sessions.prune(keep_days=0, keep_n=0, orphan_grace=timedelta()),
}
POINTERS = {"parent_branch_id": "main", "forked_at_ord": 3}


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def both(open_store: Callable[..., Store], clock: FrozenClock) -> tuple[Store, Store]:
    """Two handles; `main` of the session `s` says five messages, and is old; the session `t` runs."""
    store, other = open_store(clock=clock), open_store(clock=clock)
    make_session(store, "s")
    make_branch(store, "s", "main")
    say(store, "main", *IDS)
    make_session(store, "t", status="running")
    clock.advance(delta=LONG)
    return store, other


def meanwhile(both: tuple[Store, Store], first: Verb, second: Verb) -> Any:
    """While the first has not committed yet, the second begins -> what it is given, or the error that it meets."""

    def follow() -> Any:
        try:
            with both[1].begin() as tx:
                return second(tx)
        except (NotFound, Conflict, InvalidValue) as error:
            return error

    with ThreadPoolExecutor(1) as pool:
        with both[0].begin() as tx:
            first(tx)
            answer = pool.submit(follow)
            time.sleep(0.3)  # it may have begun or not: what comes of it is the same
        return answer.result(30)


@pytest.mark.parametrize("deletion", DELETIONS)
def test_a_branch_that_goes_is_not_forked(both: tuple[Store, Store], deletion: str) -> None:
    answer = meanwhile(both, DELETIONS[deletion], lambda tx: tx.conversations.branches.fork("main", at=3))
    assert isinstance(answer, NotFound)
    assert branches(both[0], "s") == []


@pytest.mark.parametrize("deletion", DELETIONS)
def test_a_branch_that_is_being_forked_goes_after_that(both: tuple[Store, Store], deletion: str) -> None:
    meanwhile(both, lambda tx: tx.conversations.branches.create("t", id="copy", node_metadata=POINTERS), DELETIONS[deletion])
    assert shown(both[0], "copy") == IDS[:3]
    with pytest.raises(NotFound):
        branch_of(both[0], "main")


@pytest.mark.parametrize("deletion", DELETIONS)
def test_a_copied_fork_never_loses_a_parent_that_was_there(both: tuple[Store, Store], deletion: str) -> None:
    def make(tx: Any) -> Any:
        return tx.conversations.branches.create("t", id="copy", node_metadata=POINTERS)

    answer = meanwhile(both, DELETIONS[deletion], make)
    if both[0].runtime.dialect.one_writer:
        assert shown(both[0], "copy") == []  # it came after: a parent that is not there may come later
    else:
        assert isinstance(answer, Conflict)
        assert branches(both[0], "t") == []


def test_a_fork_is_of_what_its_parent_was_before_or_after_it_changed(both: tuple[Store, Store]) -> None:
    pool = branch_of(both[0], "main").progression_id

    def compact(tx: Any) -> None:
        tx.conversations.progressions.replace(pool, ["m4"])

    def branch_off(tx: Any) -> Any:
        return tx.conversations.branches.fork("main")

    child = meanwhile(both, compact, branch_off)
    say(both[0], "main", "later")
    assert (child.forked_at_ord, shown(both[0], child.id)) == (1, ["m4"])
    made: list[str] = []
    meanwhile(both, lambda tx: made.append(tx.conversations.branches.fork("main").id), compact)
    assert (shown(both[0], made[0]), shown(both[0], "main")) == (["m4", "later"], ["m4"])


def test_places_of_one_progression_change_one_after_another(both: tuple[Store, Store]) -> None:
    """Whoever inserts while another removes finds what that left, and a fork that is made meanwhile keeps it."""
    pool = branch_of(both[0], "main").progression_id
    answer = meanwhile(
        both,
        lambda tx: tx.conversations.progressions.remove(pool, "m4"),
        lambda tx: tx.conversations.progressions.insert(pool, 5, "m9"),
    )
    assert isinstance(answer, InvalidValue)  # there are only four places now
    made: list[str] = []
    answer = meanwhile(
        both,
        lambda tx: made.append(tx.conversations.branches.fork("main", at=3).id),
        lambda tx: tx.conversations.progressions.insert(pool, 1, "m4"),
    )
    assert answer is True
    assert shown(both[0], made[0]) == IDS[:3]
    assert members(both[0], pool) == shown(both[0], "main") == ["m0", "m4", "m1", "m2", "m3"]


@pytest.mark.parametrize("deletion", DELETIONS)
def test_nothing_is_recorded_in_a_branch_that_goes(both: tuple[Store, Store], deletion: str) -> None:
    answer = meanwhile(both, DELETIONS[deletion], lambda tx: tx.conversations.messages.record("main", message("late")))
    assert isinstance(answer, NotFound)
    assert stored(both[0], "late") == []


NAMING: dict[str, Verb] = {
    "append": lambda tx: tx.conversations.progressions.append("mine", "m1"),
    "replace": lambda tx: tx.conversations.progressions.replace("mine", ["m0", "m1"]),
    "insert": lambda tx: tx.conversations.progressions.insert("mine", 0, "m1"),
    "create": lambda tx: tx.conversations.progressions.create("new", ids=["m0", "m1"]),
}


@pytest.mark.parametrize("naming", NAMING)
def test_a_message_that_is_being_named_is_not_pruned(both: tuple[Store, Store], naming: str) -> None:
    with both[0].begin() as tx:
        tx.conversations.progressions.create("mine", ids=["m0"])
    meanwhile(both, NAMING[naming], DELETIONS["prune"])
    named = [id for pool in ("mine", "new") for id in members(both[0], pool)]
    assert "m1" in named
    assert sorted(stored(both[0], *IDS)) == sorted(set(named))


@pytest.mark.parametrize("naming", NAMING)
def test_a_message_that_is_being_named_is_not_deleted(both: tuple[Store, Store], naming: str) -> None:
    put(both[0], "m0", "m1")
    with both[0].begin() as tx:
        DELETIONS["prune"](tx)
        tx.conversations.progressions.create("mine")
    put(both[0], "m0", "m1")
    answer = meanwhile(both, NAMING[naming], lambda tx: tx.conversations.messages.delete("m1"))
    assert isinstance(answer, Conflict)
    assert stored(both[0], "m1") == ["m1"]


def test_two_lines_of_forks_that_cross_sessions_go_at_once(both: tuple[Store, Store]) -> None:
    """Each deletes branches whose forks the other deletes: neither is ever told that it waited in a circle."""
    store, other = both
    for number in range(10):
        for name in ("x", "y"):
            make_session(store, f"{name}{number}")
            make_branch(store, f"{name}{number}", f"{name}{number}a")
            say(store, f"{name}{number}a", *IDS)
        for name, from_ in (("x", "y"), ("y", "x")):
            pointers = {"parent_branch_id": f"{from_}{number}a", "forked_at_ord": 2}
            make_branch(store, f"{name}{number}", f"{name}{number}b", node_metadata=pointers)
        kept = fork(store, f"x{number}b")
        assert shown(store, kept) == IDS[:2]

        def delete(tx: Any, id: str) -> bool:
            return bool(tx.conversations.sessions.delete(id))

        with ThreadPoolExecutor(2) as pool:
            answers = [
                pool.submit(handle.transact, lambda tx, id=f"{name}{number}": delete(tx, id))
                for handle, name in ((store, "x"), (other, "y"))
            ]
            assert [answer.result(30) for answer in answers] == [True, True]


# Conversations of several writers: one ends a session, no patch is lost, and a reader of the exchange misses nothing.


@pytest.mark.parametrize("handles", [1, 2])
def test_one_of_two_threads_ends_a_session(store: Store, open_store: Callable[..., Store], handles: int) -> None:
    """One says completed, the other failed."""
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


def test_no_patch_is_lost(store: Store, open_store: Callable[..., Store]) -> None:
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


def test_a_reader_who_follows_the_exchange_sees_each_message_once_in_one_order(
    store: Store, open_store: Callable[..., Store]
) -> None:
    """It marks what it saw as read while others commit; what were to appear behind its cursor would be lost."""

    def send(handle: Store, sender: str) -> list[str]:
        sent = []
        for number in range(30):
            with handle.begin() as tx:
                recipient = None if number % 3 == 0 else "reader"
                message = tx.conversations.exchange.send(sender=sender, recipient=recipient, content=number)
                time.sleep(0.001 * (number % 4))  # it is slow to commit
            sent.append(message.id)
        return sent

    seen: list[tuple[str, Any, str]] = []
    over = False
    with ThreadPoolExecutor(4) as pool:
        sending = [pool.submit(send, open_store(), f"sender {number}") for number in range(4)]
        while True:
            with store.read() as tx:
                unread = tx.conversations.exchange.inbox("reader", limit=7).items
            seen += [(str(one.sender), one.content, one.id) for one in unread]
            if unread:
                with store.begin() as tx:
                    assert tx.conversations.exchange.mark_read("reader", unread[-1].id) is True
            elif over:
                break
            over = all(one.done() for one in sending)
    sent = [one.result() for one in sending]
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
