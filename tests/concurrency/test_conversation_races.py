"""Handles, threads and processes that write one conversation at once: nothing is lost, doubled or waited for in a circle."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from persist import Store
from tests.at_once import together
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import (
    append,
    branch_of,
    fork,
    history,
    items,
    make_branch,
    make_progression,
    make_session,
    message,
    numbered,
    of_class,
    present,
    put_many,
    say,
    session_of,
)
from tests.subprocesses import output_of


@pytest.fixture
def other(open_store: Callable[..., Store]) -> Store:
    return open_store()


def processes(url: str, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """Run a worker for each at once -> what each reported."""

    def run(command: Sequence[Any]) -> Any:
        name, *arguments = command
        return json.loads(output_of("tests.concurrency.recording_worker", name, url, *arguments))

    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(run, commands))


def places(url: str, progression_id: str) -> list[int]:
    with closing(Raw(url)) as raw:
        return [row[0] for row in raw.rows("SELECT ord FROM progression_members WHERE progression_id = ?", progression_id)]


def test_two_handles_append_to_one_progression(store: Store, other: Store, database_url: str) -> None:
    progression = make_progression(store)

    def write(handle: Store, name: str) -> None:
        for number in range(30):
            assert append(handle, progression, f"{name} {number}") == [True]

    together([lambda: write(store, "a"), lambda: write(other, "b")])
    found = items(store, progression)
    assert sorted(found) == sorted(f"{name} {number}" for name in "ab" for number in range(30))
    for name in "ab":
        assert [id for id in found if id.startswith(name)] == [f"{name} {number}" for number in range(30)]
    assert sorted(places(database_url, progression)) == list(range(60))


def test_one_id_of_many_threads_is_appended_once(store: Store) -> None:
    progression = make_progression(store)
    told = together([lambda: append(store, progression, "a", "b")] * 8)
    assert sorted(new for one in told for new in one) == [False] * 14 + [True] * 2
    assert items(store, progression) == ["a", "b"]


def test_batches_and_appends_mix(store: Store, other: Store, database_url: str) -> None:
    progression = make_progression(store)

    def batches() -> None:
        for start in range(0, 100, 10):
            put_many(store, [message(id) for id in numbered(10, start)], progression_ids=[progression])

    together([batches, lambda: [append(other, progression, id) for id in numbered(100, 0, "x")]])
    found = items(store, progression)
    assert [id for id in found if id.startswith("m")] == numbered(100)
    assert [id for id in found if id.startswith("x")] == numbered(100, 0, "x")
    assert sorted(places(database_url, progression)) == list(range(200))


def types(url: str) -> list[tuple[Any, ...]]:
    with closing(Raw(url)) as raw:
        return raw.rows("SELECT type_id, lion_class FROM message_types WHERE type_id > 5 ORDER BY type_id")


def test_one_new_class_gets_one_number(store: Store, other: Store, database_url: str) -> None:

    def put(handle: Store, id: str) -> int:
        with handle.begin() as tx:
            return tx.conversations.messages.put(of_class(id, "my.Note")).lion_class

    calls = [partial(put, handle, f"m{n}") for n in range(10) for handle in (store, other)]
    assert together(calls) == [6] * 20
    assert types(database_url) == [(6, "my.Note")]


def test_who_waited_for_a_class_that_was_rolled_back_gets_its_number(store: Store, other: Store, database_url: str) -> None:
    def put(handle: Store, path: str, fails: bool) -> None:
        try:
            with handle.begin() as tx:
                tx.conversations.messages.put(of_class(path, path))
                if fails:
                    raise InterruptedError
        except InterruptedError:
            pass

    for round in range(5):
        together([partial(put, store, "gone", True), partial(put, other, f"kept {round}", False)])
    assert [path for _, path in types(database_url)] == [f"kept {round}" for round in range(5)]


def test_one_message_put_by_many_is_one_row(store: Store, other: Store) -> None:
    def put(handle: Store, at: float) -> float:
        with handle.begin() as tx:
            return tx.conversations.messages.put(message("m", at, created_at=at)).created_at_epoch

    calls = [partial(put, handle, float(n)) for n in range(8) for handle in (store, other)]
    assert set(together(calls)) == {present(store, "m").created_at_epoch}


def test_batches_of_the_same_messages_never_wait_for_each_other(store: Store, database_url: str) -> None:
    progression = make_progression(store)
    assert processes(database_url, [("overlap", progression, name, 40) for name in range(3)]) == [1600] * 3
    found = items(store, progression)
    assert sorted(found) == [f"m{number:02}" for number in range(40)]
    assert found in (sorted(found), sorted(found, reverse=True))
    assert len({present(store, id).content for id in found}) == 1


def test_processes_record_into_branches_of_one_session(store: Store, database_url: str) -> None:
    session = make_session(store)
    branches = [make_branch(store, session.id) for _ in range(3)]
    commands = [("record", branch.id, name, 80) for branch, name in zip(branches, "abc", strict=True)]
    said = processes(database_url, commands)
    pool = items(store, session.progression_id)
    for branch, ids in zip(branches, said, strict=True):
        assert history(store, branch.id) == ids
        assert [id for id in pool if id in ids] == ids
        assert branch_of(store, branch.id).system_msg_id == ids[77]
    assert sorted(pool) == sorted(id for ids in said for id in ids)
    found = session_of(store, session.id)
    assert (found.first_msg_id, found.last_msg_id) == (pool[0], pool[-1])
    assert sorted(places(database_url, session.progression_id)) == list(range(240))


def test_a_conversation_is_ended_while_it_is_recorded(store: Store, other: Store) -> None:
    """Each locks what it changes, and in one order: neither is ever told that it waited in a circle."""
    for round in range(15):
        session = make_session(store, status="running").id
        branch = make_branch(store, session).id
        ids = [f"{round} {number}" for number in range(6)]

        def record(branch: str = branch, ids: list[str] = ids) -> None:
            for id in ids:  # each in a transaction of its own
                say(store, branch, id, role="system")

        def finish(session: str = session, branch: str = branch) -> bool:
            with other.begin() as tx:
                assert tx.conversations.sessions.set_status(session, "completed")
            with other.begin() as tx:
                return tx.conversations.branches.finalize(branch, "completed")

        def batch(session: str = session, branch: str = branch, round: int = round) -> int:
            own = branch_of(other, branch).progression_id
            return put_many(other, [message(f"{round} batch")], progression_ids=[own], session_id=session)

        assert together([record, finish, batch]) == [None, True, 1]
        assert sorted(history(store, branch)) == sorted([*ids, f"{round} batch"])
        assert (session_of(store, session).status, branch_of(store, branch).status) == ("completed", "completed")


def test_one_branch_made_by_many_is_one_row(store: Store, other: Store, database_url: str) -> None:
    session = make_session(store).id
    for round in range(5):
        made = together([partial(make_branch, handle, session, id=f"b{round}") for handle in (store, other) * 4])
        assert made == [made[0]] * 8
    with closing(Raw(database_url)) as raw:
        assert (raw.count("branches"), raw.count("progressions")) == (5, 6)


def test_metadata_patches_of_many_all_stay(store: Store, other: Store) -> None:
    branch = make_branch(store).id

    def patch(handle: Store, name: str) -> None:
        for number in range(10):
            with handle.begin() as tx:
                tx.conversations.branches.update_metadata(branch, {f"{name} {number}": number, "deep": {name: {str(number): 1}}})

    together([partial(patch, handle, name) for name, handle in zip("abcd", (store, other) * 2, strict=True)])
    found = branch_of(store, branch).node_metadata
    assert found.pop("deep") == {name: {str(number): 1 for number in range(10)} for name in "abcd"}
    assert found == {f"{name} {number}": number for name in "abcd" for number in range(10)}


def test_a_branch_ends_once_among_many(store: Store, other: Store) -> None:
    for _ in range(4):
        branch = make_branch(store).id

        def end(handle: Store, to: str, branch: str = branch) -> str | None:
            with handle.begin() as tx:
                return to if tx.conversations.branches.finalize(branch, to) else None

        won = together([lambda: end(store, "completed"), lambda: end(other, "failed")] * 3)
        (winner,) = [to for to in won if to is not None]
        assert branch_of(store, branch).status == winner


def test_forks_of_a_branch_that_grows_show_what_it_was(store: Store, other: Store) -> None:
    root = make_branch(store).id
    ids = numbered(60)

    def forks() -> list[tuple[str, int]]:
        made = []
        for _ in range(20):
            child = fork(other, root)
            assert child.forked_at_ord is not None
            made.append((child.id, child.forked_at_ord))
            say(other, child.id, f"own {child.id}")
        return made

    def grow() -> None:
        for id in ids:
            say(store, root, id)

    _, made = together([grow, forks])
    assert history(store, root) == ids
    for child, at in made:
        assert history(store, child) == [*ids[:at], f"own {child}"]
