"""What a branch shows: what it inherits, then its own, whole or the tail of it."""

from collections.abc import Callable
from functools import partial
from typing import Any

from persist import Store
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import (
    append,
    counted,
    fork,
    history,
    make_branch,
    message,
    numbered,
    put,
    put_many,
    replace,
    say,
    selects,
    talk,
)
from tests.contract.faces import on_one_face


def windows(store: Any, branch_id: str, whole: list[str]) -> None:
    """Every tail and every place, against slices."""
    size = len(whole)
    for before in (None, 0, 1, size // 2, size - 1, size, size + 5, 2**62):
        upto = whole if before is None else whole[:before]
        assert history(store, branch_id, before=before) == upto
        for limit in (1, 2, max(1, size // 3), size, 100_000):
            assert history(store, branch_id, before=before, limit=limit) == upto[-limit:]


def test_tails_are_slices_of_the_whole(store: Any) -> None:
    root = talk(store, 7, prefix="r")
    child = fork(store, root.id, at=5)
    say(store, child.id, "c0", "c1", "c2")
    grandchild = fork(store, child.id, at=6)
    say(store, grandchild.id, "g0", "g1")
    say(store, root.id, "later")
    windows(store, grandchild.id, [*numbered(5, prefix="r"), "c0", "g0", "g1"])
    windows(store, fork(store, grandchild.id, at=3).id, numbered(3, prefix="r"))
    windows(store, root.id, [*numbered(7, prefix="r"), "later"])


def test_ids_of_no_message_are_skipped_and_keep_their_place(store: Any) -> None:
    branch = talk(store, 3)
    append(store, branch.progression_id, "ghost")
    say(store, branch.id, "d")
    child = fork(store, branch.id, at=4)
    say(store, child.id, "own")
    assert history(store, branch.id) == [*numbered(3), "d"]
    assert history(store, branch.id, limit=2) == ["d"]
    assert history(store, branch.id, before=4, limit=1) == []
    assert history(store, child.id) == [*numbered(3), "own"]
    put(store, "ghost")
    assert history(store, child.id) == [*numbered(3), "ghost", "own"]


def test_duplicates_are_shown_twice(store: Any) -> None:
    branch = talk(store, 2)
    replace(store, branch.progression_id, ["m000001", "m000000", "m000001"])
    assert history(store, branch.id) == ["m000001", "m000000", "m000001"]


def test_history_shows_whole_messages(store: Any) -> None:
    branch = make_branch(store)
    given = message("a", {"t": [1]}, sender="s", node_metadata={"lion_class": "my.Note"}, embedding=[1.5])
    with store.begin() as tx:
        made = tx.conversations.messages.record(branch.id, given)
        assert tx.conversations.branches.history(branch.id) == [made]
    assert (made.embedding, made.lion_class_str) == ([1.5], "my.Note")


@on_one_face
def test_a_very_long_branch_is_shown_whole_and_in_order(store: Any) -> None:
    branch, ids = make_branch(store), numbered(33_000)  # a statement may have fewer parameters
    put_many(store, [message(id) for id in ids], progression_ids=[branch.progression_id])
    assert history(store, branch.id) == ids
    assert history(store, branch.id, limit=3) == ids[-3:]
    assert history(store, branch.id, limit=3, before=20_000) == ids[19_997:20_000]
    child = fork(store, branch.id, at=32_999)
    say(store, child.id, "own")
    assert history(store, child.id, limit=2) == [ids[-2], "own"]


def test_fifty_levels_of_forks(store: Any) -> None:
    branch = talk(store, 3)
    wanted = numbered(3)
    for level in range(50):
        at = len(wanted) - level % 2  # every other one leaves the last item out
        branch = fork(store, branch.id, at=at)
        say(store, branch.id, f"level {level}")
        wanted = [*wanted[:at], f"level {level}"]
    assert history(store, branch.id) == wanted
    assert history(store, branch.id, limit=5, before=20) == wanted[15:20]


def test_history_is_one_select_however_deep_and_long(counted_store: Any, statements: list[str]) -> None:
    store = counted_store
    shallow = talk(store, 10, prefix="s")
    deep = talk(store, 3000, prefix="d")
    for level in range(50):
        deep = fork(store, deep.id)
        say(store, deep.id, f"level {level}")
    for branch, size in ((shallow, 10), (deep, 3050)):
        statements.clear()
        assert len(history(store, branch.id)) == size
        assert len(selects(statements)) == 1
        statements.clear()
        assert len(history(store, branch.id, limit=5)) == 5
        assert len(selects(statements)) <= 2


def test_a_fork_is_a_handful_of_statements_and_copies_nothing(counted_store: Any, statements: list[str], raw: Raw) -> None:
    store = counted_store
    short, long = talk(store, 10, prefix="s"), talk(store, 5000, prefix="l")
    deep = long
    for _ in range(20):
        deep = fork(store, deep.id)
    before = [raw.count(table) for table in ("messages", "progression_members")]
    costs = [counted(statements, partial(fork, store, branch.id)) for branch in (short, long, deep)]
    assert costs[0] == costs[1] == costs[2] <= 12
    assert [raw.count(table) for table in ("messages", "progression_members")] == before


def test_a_tail_reads_only_the_tail_on_sqlite(sqlite_url: str, statements: list[str], open_raw: Callable[[str], Raw]) -> None:
    """Members are found by their place, and the branches of the line by their ids."""
    with Store.open(sqlite_url) as store:
        child = fork(store, talk(store, 10).id)
        say(store, child.id, "own")
        statements.clear()
        history(store, child.id, limit=3)
        statement = selects(statements)[-1]
    plan = [str(row[3]) for row in open_raw(sqlite_url).rows(f"EXPLAIN QUERY PLAN {statement}")]
    (members,) = [step for step in plan if "progression_members" in step]
    assert members.startswith("SEARCH")
    assert "progression_id=? AND ord>? AND ord<?" in members
    assert {step for step in plan if step.startswith("SCAN")} == {"SCAN line", "SCAN walked"}
