"""What a fork shows stays, whatever becomes of the order or the row of the branch that it was forked from."""

from typing import Any

import pytest

from persist.conversations.storage import lineage
from tests.contract.conftest import Raw
from tests.contract.conversations.making import (
    LONG,
    branch_of,
    branches,
    delete_branch,
    delete_session,
    fork,
    fork_into,
    make_branch,
    make_session,
    members,
    prune,
    put,
    say,
    shown,
    stored,
)

IDS = [f"m{number}" for number in range(6)]


def talk(store: Any) -> str:
    """A session with a branch `main` -> the branch's progression."""
    make_session(store, "s")
    make_branch(store, "s", "main")
    say(store, "main", *IDS)
    return branch_of(store, "main").progression_id


def replace(store: Any, pool: str, *ids: str) -> None:
    store.conversations.progressions.replace(pool, ids)


@pytest.mark.usefixtures("most_copied")
def test_forks_show_what_they_did_when_their_parent_is_compacted(store: Any, other: Any, raw: Raw) -> None:
    pool = talk(store)
    early, late = fork(store, "main", 2), fork(store, "main")
    say(store, late, "own")
    twig = fork(store, late, 5)
    make_session(store, "t")
    elsewhere = fork_into(store, "t", "main", 4)
    want = {early: IDS[:2], late: [*IDS, "own"], twig: IDS[:5], elsewhere: IDS[:4]}
    put(store, "summary")
    for after in (["summary", "m5"], ["m5"], ["m5", "m4", "summary"], []):
        replace(store, pool, *after)
        assert {id: shown(other, id) for id in want} == want
        assert shown(other, "main") == members(other, pool) == after
        assert raw.json("SELECT collection FROM progressions WHERE id = ?", pool) == after
        assert branch_of(store, "main").progression_id == pool
        made = fork(store, "main")
        want[made] = after
    say(store, "main", "later")
    assert {id: shown(other, id) for id in want} == want
    assert sorted(branches(store, "s")) == sorted(["main", *(id for id in want if id != elsewhere)])


@pytest.mark.usefixtures("most_copied")
def test_pruning_leaves_what_only_forks_show(store: Any, clock: Any) -> None:
    pool = talk(store)
    child = fork(store, "main", 3)
    session_pool = branch_of(store, child).session_id
    replace(store, pool, "m5")
    session_pool = store.conversations.sessions.get("s").progression_id
    replace(store, session_pool)
    clock.advance(delta=LONG)
    prune(store, keep_n=10)
    assert shown(store, child) == IDS[:3]
    assert stored(store, *IDS) == ["m0", "m1", "m2", "m5"]


def test_places_that_stay_are_inherited_from_the_parent_still(store: Any) -> None:
    """Only what changes is kept for the forks: whoever saves the whole order again changes nothing."""
    pool = talk(store)
    child = fork(store, "main", 3)
    before = branch_of(store, child)
    for after in (IDS, [*IDS, "more"], IDS[:3], ["m0", "m1", "m2", "m5"]):
        replace(store, pool, *after)
        assert branch_of(store, child) == before
        assert (shown(store, child), members(store, pool)) == (IDS[:3], after)


@pytest.mark.usefixtures("most_copied")
def test_a_fork_that_shares_the_progression_of_its_parent_keeps_what_it_inherits(store: Any) -> None:
    pool = talk(store)
    view = fork_into(store, "s", "main", 2, progression_id=pool)
    child = fork(store, view, 4)
    replace(store, pool, "m5")
    assert shown(store, view)[:2] == ["m0", "m1"]
    assert (shown(store, child), shown(store, "main")) == (["m0", "m1", "m0", "m1"], ["m5"])


def test_much_is_kept_and_not_copied(store: Any, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many forks there are, the places of a branch that goes are stored once."""
    monkeypatch.setattr(lineage, "MAX_COPIED", 20)
    pool = talk(store)
    forks = [fork(store, "main", 5) for _ in range(6)]
    make_session(store, "t")
    forks.append(fork_into(store, "t", "main", 5))
    places = raw.count("progression_members")
    assert delete_branch(store, "main")
    assert [shown(store, id) for id in forks] == [IDS[:5]] * 7
    assert raw.count("progression_members") == places - 1  # the last one was shown by nobody else
    assert members(store, pool) == IDS[:5]
    found = [branch_of(store, id) for id in forks]
    assert {branch.forked_at_ord for branch in found} == {5}
    (keeper,) = {branch.parent_branch_id for branch in found}
    assert all(branch.node_metadata["parent_branch_id"] == keeper for branch in found)
    assert shown(store, str(keeper)) == IDS[:5]
    assert sorted(branches(store, "s")) == sorted(forks[:6])
    for id in forks[:-1]:
        assert delete_branch(store, id)
    assert shown(store, forks[-1]) == IDS[:5]
    assert delete_session(store, "s")
    assert shown(store, forks[-1]) == IDS[:5]
    assert delete_session(store, "t")
    assert (raw.count("branches"), raw.count("progressions"), raw.count("progression_members")) == (0, 0, 0)


@pytest.mark.usefixtures("most_copied")
def test_lines_of_forks_survive_whatever_of_them_goes_or_changes(store: Any, raw: Raw) -> None:
    pool = talk(store)
    want: dict[str, list[str]] = {}
    parent = "main"
    for number in range(4):
        make_session(store, f"t{number}")
        child = fork_into(store, f"t{number}", parent, 5 - number // 2)
        say(store, child, f"own{number}")
        want[child] = shown(store, child)
        parent = child
    line = list(want)
    replace(store, pool, "m3")
    assert delete_session(store, "t0")
    want.pop(line[0])
    assert {id: shown(store, id) for id in want} == want
    replace(store, branch_of(store, line[1]).progression_id, "x")
    want.pop(line[1])
    assert {id: shown(store, id) for id in want} == want
    for session in ("s", "t2", "t1"):
        assert delete_session(store, session)
        want.pop(line[2], None) if session == "t2" else None
        assert {id: shown(store, id) for id in want} == want
    assert delete_session(store, "t3")
    assert (raw.count("branches"), raw.count("progressions")) == (0, 0)
