"""Deleting sessions and branches: what anything else shows stays as it was."""

from typing import Any

import pytest

from persist.errors import NotFound
from tests.contract.conftest import Raw
from tests.contract.conversations.making import (
    branch_of,
    branches,
    delete_branch,
    delete_session,
    dump,
    fork,
    fork_into,
    make_branch,
    make_session,
    members,
    put,
    say,
    session_of,
    shown,
    stored,
)


def talk(store: Any, session_id: str = "s", branch_id: str = "root", count: int = 5) -> list[str]:
    """A session with a branch of so many messages -> their ids."""
    make_session(store, session_id)
    make_branch(store, session_id, branch_id)
    ids = [f"{branch_id}{number}" for number in range(count)]
    say(store, branch_id, *ids)
    return ids


# ---------------------------------------------------------------- sessions


def test_a_session_goes_with_its_branches_and_progressions(store: Any, other: Any, raw: Raw) -> None:
    """(c) 21"""
    talk(store)
    fork(store, "root", 2)
    put(store, "m")
    make_session(store, "kept")
    kept = make_branch(store, "kept", system_msg_id="m")
    assert delete_session(store, "s") is True
    assert delete_session(store, "s") is False
    for gone in (lambda: session_of(other, "s"), lambda: branch_of(other, "root"), lambda: shown(other, "root")):
        with pytest.raises(NotFound):
            gone()
    assert branches(store, "s") == []
    assert [branch.id for branch in [branch_of(store, kept)]] == branches(store, "kept") == [kept]
    assert (raw.count("progressions"), raw.count("progression_members")) == (2, 0)


def test_its_messages_stay(store: Any) -> None:
    ids = talk(store)
    delete_session(store, "s")
    assert stored(store, *ids) == ids
    with store.read() as tx:
        assert tx.conversations.progressions.containing(ids[0]) == []


def test_forks_in_other_sessions_keep_their_history(store: Any, other: Any) -> None:
    """(c) 29"""
    talk(store)
    make_session(store, "t")
    inside, outside = fork(store, "root", 3), fork_into(store, "t", "root", 3)
    say(store, outside, "own1", "own2")
    before = shown(store, outside)
    assert before == ["root0", "root1", "root2", "own1", "own2"]
    delete_session(store, "s")
    assert shown(other, outside) == before
    with pytest.raises(NotFound):
        shown(store, inside)
    say(store, outside, "own3")
    assert shown(store, outside) == [*before, "own3"]


def test_forks_of_forks_keep_their_history(store: Any) -> None:
    """(c) 29: whichever of the line goes, and in whatever order."""
    talk(store)
    for session in ("t", "u", "v"):
        make_session(store, session)
    one = fork_into(store, "t", "root", 4)
    say(store, one, "one1", "one2")
    two = fork_into(store, "u", one, 5)
    say(store, two, "two1")
    three = fork_into(store, "v", two, 6)
    twig = fork_into(store, "v", two, 2)
    say(store, three, "three1")
    want = {
        one: ["root0", "root1", "root2", "root3", "one1", "one2"],
        two: ["root0", "root1", "root2", "root3", "one1", "two1"],
        three: ["root0", "root1", "root2", "root3", "one1", "two1", "three1"],
        twig: ["root0", "root1"],
    }
    for victim, its in (("t", one), ("s", "root"), ("u", two)):
        assert {id: shown(store, id) for id in want} == want
        delete_session(store, victim)
        want.pop(its, None)
    assert {id: shown(store, id) for id in want} == want


def test_parents_that_go_together_leave_the_history_of_a_fork(store: Any) -> None:
    """The parent and its fork are of one session; the fork of the fork is not."""
    talk(store)
    make_session(store, "t")
    one = fork(store, "root", 4)
    say(store, one, "one1")
    two = fork_into(store, "t", one, 5)
    say(store, two, "two1")
    delete_session(store, "s")
    assert shown(store, two) == ["root0", "root1", "root2", "root3", "one1", "two1"]


def test_a_fork_that_loses_its_parent_has_none_and_keeps_its_configuration(store: Any) -> None:
    talk(store)
    make_session(store, "t")
    put(store, "prompt")
    orphan = fork_into(store, "t", "root", 2, name="n", user="u", system_msg_id="prompt")
    before = branch_of(store, orphan)
    delete_session(store, "s")
    after = branch_of(store, orphan)
    assert (after.parent_branch_id, after.forked_at_ord, after.node_metadata) == (None, None, {"model": "m"})
    same = ("id", "name", "user", "session_id", "system_msg_id", "created_at", "status", "progression_id")
    assert all(getattr(after, name) == getattr(before, name) for name in same)


def test_what_a_fork_gets_is_in_the_published_array_too(store: Any, raw: Raw) -> None:
    talk(store)
    make_session(store, "t")
    orphan = fork_into(store, "t", "root", 2)
    say(store, orphan, "own")
    delete_session(store, "s")
    pool = branch_of(store, orphan).progression_id
    assert members(store, pool) == ["root0", "root1", "own"]
    assert raw.json("SELECT collection FROM progressions WHERE id = ?", pool) == ["root0", "root1", "own"]


def test_a_fork_of_nothing_keeps_its_own(store: Any) -> None:
    talk(store)
    make_session(store, "t")
    empty = fork_into(store, "t", "root", 0)
    say(store, empty, "own")
    delete_session(store, "s")
    assert shown(store, empty) == ["own"]


def test_what_a_fork_inherits_is_shown_once_however_often_it_is_recorded(store: Any) -> None:
    """As in a branch that is no fork; what of its parent it does not inherit is new there."""
    talk(store)
    make_session(store, "t")
    echo = fork_into(store, "t", "root", 2)
    twig = fork(store, echo)
    say(store, echo, "root0", "root3", "root0", "root3")
    say(store, twig, "root1", "own", "root3")
    for _ in range(2):
        assert shown(store, echo) == ["root0", "root1", "root3"]
        assert shown(store, twig) == ["root0", "root1", "own", "root3"]
        assert members(store, session_of(store, "t").progression_id) == ["root0", "root3", "root1", "own"]
        delete_session(store, "s")


# ---------------------------------------------------------------- branches


def test_a_branch_goes_alone(store: Any) -> None:
    ids = talk(store)
    make_branch(store, "s", "sibling")
    say(store, "sibling", "x")
    pool = session_of(store, "s").progression_id
    own = branch_of(store, "root").progression_id
    assert delete_branch(store, "root") is True
    assert delete_branch(store, "root") is False
    assert branches(store, "s") == ["sibling"]
    assert (members(store, own), members(store, pool)) == ([], [*ids, "x"])
    assert shown(store, "sibling") == ["x"]


def test_forks_of_a_branch_that_goes_keep_their_history(store: Any) -> None:
    talk(store)
    one = fork(store, "root", 3)
    say(store, one, "one1")
    two = fork(store, one)
    say(store, two, "two1")
    delete_branch(store, "root")
    assert (shown(store, one), shown(store, two)) == (
        ["root0", "root1", "root2", "one1"],
        ["root0", "root1", "root2", "one1", "two1"],
    )
    delete_branch(store, one)
    assert shown(store, two) == ["root0", "root1", "root2", "one1", "two1"]
    say(store, two, "two2")
    assert shown(store, fork(store, two)) == ["root0", "root1", "root2", "one1", "two1", "two2"]


def test_a_history_with_missing_messages_keeps_its_places(store: Any) -> None:
    """A place whose message is not there yet is inherited like any other."""
    make_session(store, "s")
    with store.begin() as tx:
        tx.conversations.progressions.create("pool", ids=["a", "later", "b"])
    put(store, "a", "b")
    make_branch(store, "s", "root", progression_id="pool")
    one = fork(store, "root", 2)
    delete_branch(store, "root")
    put(store, "later")
    assert shown(store, one) == ["a", "later"]


def test_an_unknown_branch_is_not_deleted(store: Any, raw: Raw) -> None:
    talk(store)
    before = dump(raw)
    assert delete_branch(store, "nowhere") is False
    assert dump(raw) == before


# ---------------------------------------------------------------- shared progressions


def test_a_progression_stays_as_long_as_anything_owns_it(store: Any) -> None:
    talk(store)
    pool = session_of(store, "s").progression_id
    own = branch_of(store, "root").progression_id
    make_session(store, "t", progression_id=own)
    make_branch(store, "t", "view", progression_id=pool)
    assert delete_session(store, "s")
    assert len(shown(store, "view")) == 5
    assert len(members(store, own)) == 5
    assert delete_branch(store, "view")
    assert (members(store, pool), len(members(store, own))) == ([], 5)
    assert delete_session(store, "t")
    assert members(store, own) == []


def test_a_session_and_its_branch_may_own_one_progression(store: Any, raw: Raw) -> None:
    session = make_session(store, "s")
    make_branch(store, "s", "root", progression_id=session.progression_id)
    say(store, "root", "m1", "m2")
    assert members(store, session.progression_id) == ["m1", "m2"]
    assert delete_branch(store, "root")
    assert members(store, session.progression_id) == ["m1", "m2"]
    assert delete_session(store, "s")
    assert raw.count("progressions") == 0


def test_a_fork_with_a_shared_progression_does_not_change_what_others_show(store: Any, raw: Raw) -> None:
    """What it inherited becomes its own, and not that of whoever shares its progression."""
    talk(store)
    make_session(store, "t")
    orphan = fork_into(store, "t", "root", 2)
    make_branch(store, "t", "view", progression_id=branch_of(store, orphan).progression_id)
    say(store, "view", "x")
    assert (shown(store, orphan), shown(store, "view")) == (["root0", "root1", "x"], ["x"])
    delete_session(store, "s")
    assert (shown(store, orphan), shown(store, "view")) == (["root0", "root1", "x"], ["x"])
    delete_branch(store, orphan)
    assert shown(store, "view") == ["x"]
    assert raw.count("progressions") == 2  # of the session and of the view


def test_a_progression_of_nobody_is_left_alone(store: Any) -> None:
    talk(store)
    with store.begin() as tx:
        tx.conversations.progressions.create("mine", ids=["root0"])
    delete_session(store, "s")
    assert members(store, "mine") == ["root0"]


def test_deleting_is_all_or_nothing(store: Any, raw: Raw) -> None:
    talk(store)
    make_session(store, "t")
    fork_into(store, "t", "root", 2)
    before = dump(raw)
    with pytest.raises(ZeroDivisionError), store.begin() as tx:
        assert tx.conversations.sessions.delete("s") / 0
    assert dump(raw) == before
