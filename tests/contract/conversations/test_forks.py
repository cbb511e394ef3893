"""Forks: branches that begin with what another one shows, and circles of them, which no verb makes."""

from typing import Any

import pytest

from persist.errors import Conflict
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import (
    branch_of,
    fork,
    history,
    items,
    make_branch,
    make_session,
    message,
    numbered,
    put,
    put_many,
    refused,
    say,
    talk,
)

# ---------------------------------------------------------------- forking


def test_a_fork_shows_what_it_inherits_and_its_own(store: Any, raw: Raw) -> None:
    """(c) 26"""
    root = talk(store, 25, prefix="r")
    child = fork(store, root.id, at=12)
    assert raw.count("messages") == 25
    put_many(store, [message(id) for id in numbered(18, 25, "r")], progression_ids=[root.progression_id])
    assert history(store, child.id) == numbered(12, prefix="r")
    say(store, child.id, "own 1", "own 2")
    assert history(store, child.id) == [*numbered(12, prefix="r"), "own 1", "own 2"]
    assert history(store, root.id) == numbered(43, prefix="r")
    assert items(store, child.progression_id) == ["own 1", "own 2"]


def test_a_fork_at_0_has_nothing_but_its_own(store: Any) -> None:
    """(c) 26"""
    child = fork(store, talk(store, 5).id, at=0)
    assert history(store, child.id) == []
    say(store, child.id, "own")
    assert history(store, child.id) == ["own"]
    assert history(store, fork(store, child.id).id) == ["own"]


def test_without_a_place_a_fork_inherits_all(store: Any) -> None:
    root = talk(store, 5)
    child = fork(store, root.id)
    say(store, child.id, "c")
    grandchild = fork(store, child.id)
    say(store, root.id, "later")
    assert history(store, child.id) == history(store, grandchild.id) == [*numbered(5), "c"]
    assert (child.forked_at_ord, grandchild.forked_at_ord) == (5, 6)
    assert fork(store, make_branch(store).id).forked_at_ord == 0


def test_a_fork_takes_after_its_parent(store: Any, raw: Raw, clock: Any) -> None:
    put(store, "s", role="system")
    root = make_branch(store, name="Main", user="ada", node_metadata={"model": "m", "tools": []}, system_msg_id="s")
    say(store, root.id, "a")
    at = clock.advance(seconds=5)
    child = fork(store, root.id, name="Other")
    pointers = {"parent_branch_id": root.id, "forked_at_ord": 1}
    assert child.model_dump() == {
        **root.model_dump(),
        **pointers,
        "id": child.id,
        "created_at": at,
        "name": "Other",
        "progression_id": child.progression_id,
        "node_metadata": {"model": "m", "tools": [], **pointers},
    }
    assert branch_of(store, child.id) == child
    assert fork(store, root.id).name is None
    assert raw.json("SELECT node_metadata FROM branches WHERE id = ?", child.id) == child.node_metadata
    grandchild = fork(store, child.id)
    assert (grandchild.parent_branch_id, grandchild.node_metadata["parent_branch_id"]) == (child.id, child.id)


def test_a_fork_beyond_the_end_is_refused(store: Any, raw: Raw) -> None:
    root = talk(store, 3)
    child = fork(store, root.id, at=2)
    with store.begin() as tx:
        for id, places in ((root.id, (4, -1, 2**70, True, 1.0, "1")), (child.id, (3, -1))):
            for at in places:
                assert refused(tx.conversations.branches.fork, id, at=at) == "at"
        assert refused(tx.conversations.branches.fork, root.id, name=5) == "name"
    assert (raw.count("branches"), raw.count("progressions")) == (2, 3)
    assert fork(store, child.id, at=2).forked_at_ord == 2


def test_a_branch_copied_with_its_pointers_is_a_fork(store: Any) -> None:
    """Metadata as published, of a branch that comes from elsewhere; its parent may come later, or never."""
    session = make_session(store).id
    child = make_branch(store, session, node_metadata={"parent_branch_id": "root", "forked_at_ord": 2})
    say(store, child.id, "own")
    assert (child.parent_branch_id, child.forked_at_ord) == ("root", 2)
    assert history(store, child.id) == ["own"]
    root = make_branch(store, session, id="root")
    say(store, root.id, *numbered(3))
    assert history(store, child.id) == [*numbered(2), "own"]
    empty = make_branch(store, session, id="empty")
    copied = make_branch(store, session, node_metadata={"parent_branch_id": "empty", "forked_at_ord": 2})
    say(store, empty.id, "x", "y", "z")
    assert history(store, copied.id) == ["x", "y"]


# ---------------------------------------------------------------- circles


def join(raw: Raw, child: str, parent: str, at: int) -> None:
    raw.rows("UPDATE branches SET parent_branch_id = ?, forked_at_ord = ? WHERE id = ?", parent, at, child)


@pytest.mark.parametrize("said", [0, 3])
def test_a_circle_of_parents_is_a_conflict(store: Any, raw: Raw, said: int) -> None:
    """(a): cycle-guarded"""
    session = make_session(store).id
    a, b, c = (talk(store, said, session, prefix=name).id for name in "abc")
    leaf, stranger = fork(store, a).id, talk(store, 2, session, prefix="s").id
    say(store, leaf, "leaf")
    for at in (1, 2, 3, 50):
        for circle in ([a], [a, b], [a, b, c]):
            for child, parent in zip(circle, [*circle[1:], circle[0]], strict=True):
                join(raw, child, parent, at)
            join(raw, leaf, a, max(1, at - 1))
            for branch in (*circle, leaf):
                for options in ({}, {"limit": 1}, {"before": 1}, {"limit": 2, "before": 2}):
                    with store.read() as tx, pytest.raises(Conflict):
                        tx.conversations.branches.history(branch, **options)
            assert history(store, stranger) == numbered(2, prefix="s")


def test_a_circle_of_different_places_is_a_conflict_too(store: Any, raw: Raw) -> None:
    session = make_session(store).id
    a, b = (talk(store, 5, session, prefix=name).id for name in "ab")
    for first, second in ((1, 4), (4, 1), (5, 5), (7, 2)):
        join(raw, a, b, first)
        join(raw, b, a, second)
        for branch in (a, b):
            with store.read() as tx, pytest.raises(Conflict):
                tx.conversations.branches.history(branch)


def test_a_circle_is_broken_by_deleting_one_of_it(store: Any, raw: Raw) -> None:
    session = make_session(store).id
    a, b = (talk(store, 3, session, prefix=name).id for name in "ab")
    join(raw, a, b, 2)
    join(raw, b, a, 2)
    assert store.conversations.branches.delete(a)
    assert history(store, b)[-3:] == numbered(3, prefix="b")


def test_no_verb_makes_a_circle(store: Any, raw: Raw) -> None:
    session = make_session(store).id

    def pointing_at(parent: str) -> dict[str, Any]:
        return {"node_metadata": {"parent_branch_id": parent, "forked_at_ord": 1}}

    make_branch(store, session, id="a", **pointing_at("c"))
    make_branch(store, session, id="b", **pointing_at("a"))
    progressions = raw.count("progressions")
    with store.begin() as tx:
        for id, parent in (("c", "b"), ("c", "a"), ("d", "d")):
            with pytest.raises(Conflict):
                tx.conversations.branches.create(session, id=id, **pointing_at(parent))
        tx.conversations.branches.create(session, id="c", **pointing_at("elsewhere"))  # the transaction is still good
    assert raw.count("progressions") == progressions + 1
    say(store, "c", "c")
    assert [history(store, id) for id in "abc"] == [[], [], ["c"]]
