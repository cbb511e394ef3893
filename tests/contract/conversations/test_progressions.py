"""Progressions: ordered lists of message ids, appended to in the time of one insert."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.conversations.storage import lineage
from tests.contract.conftest import Raw
from tests.contract.conversations.making import delete_branch, fork_into
from tests.contract.conversations.scenes import (
    NOWHERE,
    append,
    array,
    branch_of,
    containing,
    counted,
    fork,
    history,
    insert,
    items,
    make_branch,
    make_progression,
    make_session,
    message,
    numbered,
    put_many,
    remove,
    replace,
    say,
)
from tests.contract.faces import on_one_face


def test_a_progression_is_a_list_of_ids(store: Any, other: Any, raw: Raw) -> None:
    progression = make_progression(store, ["a"])
    assert append(store, progression, "b", "c", "b") == [True, True, False]
    assert items(other, progression) == ["a", "b", "c"]
    places = raw.rows("SELECT ord, message_id FROM progression_members WHERE progression_id = ? ORDER BY ord", progression)
    assert places == [(0, "a"), (1, "b"), (2, "c")]


def test_a_missing_progression_is_empty_and_stays_missing(store: Any, raw: Raw) -> None:
    assert items(store, NOWHERE) == []
    assert append(store, NOWHERE, "a") == [False]
    assert items(store, NOWHERE) == []
    assert (raw.count("progressions"), raw.count("progression_members")) == (0, 0)
    assert items(store, make_progression(store)) == []


def test_duplicates_it_begins_with_are_kept(store: Any) -> None:
    progression = make_progression(store, ["a", "b", "a"])
    assert append(store, progression, "a", "c") == [False, True]
    put_many(store, [message("b"), message("d")], progression_ids=[progression])
    assert items(store, progression) == ["a", "b", "a", "c", "d"]
    assert containing(store, "a") == [progression]


def test_replacing_makes_these_its_whole_content(store: Any) -> None:
    progression = make_progression(store, numbered(600))
    for ids in (["b", "a", "b"], [], numbered(700), ["z"]):
        replace(store, progression, ids)
        assert items(store, progression) == ids
    assert append(store, progression, "z", "y") == [False, True]
    assert items(store, progression) == ["z", "y"]
    assert containing(store, "b") == []


def test_a_message_knows_the_progressions_that_hold_it(store: Any) -> None:
    for name in ("p3", "p1", "p2"):
        make_progression(store, ["a", name, "a"], name)
    assert containing(store, "a") == ["p1", "p2", "p3"]
    assert containing(store, "p1") == ["p1"]
    assert containing(store, NOWHERE) == []
    append(store, "p1", "p2")
    replace(store, "p3", ["p2"])
    assert containing(store, "a") == ["p1", "p2"]
    assert containing(store, "p2") == ["p1", "p2", "p3"]


@pytest.mark.parametrize("verb", ["append", "put_many"])
def test_appending_costs_the_same_however_long_it_is(counted_store: Any, statements: list[str], verb: str) -> None:

    def cost(progression: str, id: str) -> int:
        if verb == "append":
            return counted(statements, lambda: append(counted_store, progression, id))
        return counted(statements, lambda: put_many(counted_store, [message(id)], progression_ids=[progression]))

    short, long = make_progression(counted_store, numbered(10)), make_progression(counted_store, numbered(5000))
    cost(short, "first")  # what a store asks once is asked here
    costs = [cost(progression, f"{verb} {n}") for n in range(3) for progression in (short, long)]
    assert len(set(costs)) == 1
    assert costs[0] <= 12
    assert len(items(counted_store, long)) == 5003


# Inserting into a progression and taking out of it: what Python's list does, by writing the places from there on alone.


IDS = [f"m{number}" for number in range(6)]


def test_an_id_is_inserted_where_a_list_would_have_it(store: Any, other: Any, raw: Raw) -> None:
    progression = make_progression(store, ["a", "b"])
    for index, id in ((2, "end"), (0, "start"), (2, "middle")):
        assert insert(store, progression, index, id)
    assert items(other, progression) == ["start", "a", "middle", "b", "end"]
    places = raw.rows("SELECT ord FROM progression_members WHERE progression_id = ? ORDER BY ord", progression)
    assert places == [(0,), (1,), (2,), (3,), (4,)]
    assert containing(store, "middle") == [progression]


HARD = ["\ufdd0", '\\u0000 "', "\ufdd0\ufdd00041", "漢\u2028\U0001f468"]


def test_a_short_array_shows_it_at_once(store: Any, raw: Raw) -> None:
    progression = make_progression(store, [*HARD, *IDS])
    assert insert(store, progression, 4, "new\ufdd0")
    assert remove(store, progression, "m5")
    want = [*HARD, "new\ufdd0", *IDS[:5]]
    shown = raw.json("SELECT collection FROM progressions WHERE id = ?", progression)
    assert items(store, progression) == want
    replace(store, progression, [])
    replace(store, progression, want)
    assert shown == raw.json("SELECT collection FROM progressions WHERE id = ?", progression)
    for id in want:
        assert remove(store, progression, id)
    assert array(raw, progression) == []


def test_a_long_array_shows_what_is_before_the_change_and_catches_up(store: Any, raw: Raw) -> None:
    ids = numbered(2000)
    progression = make_progression(store, ids)
    assert remove(store, progression, ids[1990])
    assert array(raw, progression) == ids[:1990]
    assert insert(store, progression, 1995, "new")  # behind what is shown
    assert array(raw, progression) == ids[:1990]
    now = items(store, progression)
    assert now == [*ids[:1990], *ids[1991:1996], "new", *ids[1996:]]
    assert insert(store, progression, 1000, "far")  # a sixteenth is new
    assert array(raw, progression) == items(store, progression) == [*now[:1000], "far", *now[1000:]]
    assert remove(store, progression, ids[-1])  # nothing is behind it
    assert array(raw, progression) == items(store, progression)


def test_what_lags_is_shown_when_the_store_closes(open_store: Any, store: Any, raw: Raw) -> None:
    writer = open_store()
    ids = numbered(200)
    progression = make_progression(writer, ids)
    assert insert(writer, progression, 195, "new")
    assert array(raw, progression) == ids[:195]
    writer.close()
    assert array(raw, progression) == items(store, progression) == [*ids[:195], "new", *ids[195:]]


def talk(store: Any) -> tuple[str, str]:
    """A branch that says six messages -> its id, and its progression."""
    branch = make_branch(store)
    say(store, branch.id, *IDS, "new")
    assert remove(store, branch.progression_id, "new")
    return branch.id, branch.progression_id


@pytest.mark.usefixtures("most_copied")
def test_forks_show_what_they_did(store: Any, other: Any) -> None:
    main, pool = talk(store)
    want = {fork(store, main, at=at).id: IDS[:at] for at in (0, 2, 3, 4, 6)}
    elsewhere = fork_into(store, make_session(store).id, main, 5)
    twig = fork(store, elsewhere, at=4).id
    want |= {elsewhere: IDS[:5], twig: IDS[:4]}
    steps: list[tuple[Callable[[], bool], list[str]]] = [
        (lambda: insert(store, pool, 3, "new"), ["m0", "m1", "m2", "new", "m3", "m4", "m5"]),
        (lambda: remove(store, pool, "m1"), ["m0", "m2", "new", "m3", "m4", "m5"]),
        (lambda: insert(store, pool, 0, "m1"), ["m1", "m0", "m2", "new", "m3", "m4", "m5"]),
    ]
    for change, now in steps:
        assert change()
        assert {id: history(other, id) for id in want} == want
        assert history(other, main) == items(other, pool) == now
        made = fork(store, main).id
        want[made] = now
    say(store, main, "later")
    assert {id: history(other, id) for id in want} == want


def test_forks_that_inherit_nothing_behind_the_place_are_left_alone(store: Any) -> None:
    main, pool = talk(store)
    before = {at: fork(store, main, at=at) for at in (1, 3)}
    assert insert(store, pool, 3, "new")
    assert remove(store, pool, "m4")
    assert {at: branch_of(store, one.id) for at, one in before.items()} == before
    assert insert(store, pool, 2, "m4")
    assert branch_of(store, before[1].id) == before[1]
    assert branch_of(store, before[3].id).parent_branch_id != main
    assert history(store, before[3].id) == IDS[:3]


@pytest.mark.parametrize("change", ["insert", "remove", "replace"])
@pytest.mark.parametrize("ats", [(5,), (2, 5)], ids=["its last fork", "one of its forks"])
def test_the_order_of_a_branch_that_went_may_still_change(
    store: Any, monkeypatch: pytest.MonkeyPatch, change: str, ats: tuple[int, ...]
) -> None:
    """Its forks still show it; whoever changes it finds it as it was left, and makes no gap in it."""
    monkeypatch.setattr(lineage, "MAX_COPIED", 0)
    main, pool = talk(store)
    forks = {fork(store, main, at=at).id: IDS[:at] for at in ats}
    assert delete_branch(store, main)
    assert items(store, pool) == IDS[:5]
    monkeypatch.setattr(lineage, "MAX_COPIED", 100)  # what the fork loses becomes its own
    after = {"insert": [*IDS[:3], "new", *IDS[3:5]], "remove": [*IDS[:3], "m4"], "replace": [*IDS[:3], "new"]}[change]
    doing: dict[str, Callable[[], object]] = {
        "insert": lambda: insert(store, pool, 3, "new"),
        "remove": lambda: remove(store, pool, "m3"),
        "replace": lambda: replace(store, pool, after),
    }
    doing[change]()
    assert items(store, pool) == after
    assert {id: history(store, id) for id in forks} == forks


# Inserting and removing near the end of a long progression: few statements, few rows, and nothing of what stays.


@pytest.mark.parametrize("verb", ["insert", "remove"])
def test_near_the_end_it_costs_the_same_however_long_it_is(counted_store: Any, statements: list[str], verb: str) -> None:
    def cost(progression: str, size: int) -> int:
        """Of a change ten places before the end, where the array shows all, and of one more where it does not."""
        ids, before = numbered(size), len(statements)
        if verb == "insert":
            counts = counted(statements, lambda: insert(counted_store, progression, size - 10, "new"))
            counts += counted(statements, lambda: insert(counted_store, progression, size - 5, "newer"))
        else:
            counts = counted(statements, lambda: remove(counted_store, progression, ids[size - 10]))
            counts += counted(statements, lambda: remove(counted_store, progression, ids[size - 5]))
        assert not [statement for statement in statements[before:] if ids[size - 11] in statement], "what stays was sent"
        return counts

    sizes = {size: make_progression(counted_store, numbered(size)) for size in (500, 5000)}
    cost(make_progression(counted_store, numbered(500)), 500)  # what a store asks once is asked here
    costs = {size: cost(progression, size) for size, progression in sizes.items()}
    assert costs[500] == costs[5000] <= 2 * 24


@on_one_face
def test_only_the_places_from_there_on_are_written(open_store: Any) -> None:
    """As the log of events tells it: each row that was written, and the array."""
    store = open_store(events=True)
    progression = make_progression(store, numbered(5000))
    changes_of: list[Callable[[], bool]] = [
        lambda: insert(store, progression, 4998, "new"),
        lambda: remove(store, progression, "new"),
    ]
    for change_it in changes_of:
        assert change_it()
        changes = store.events.read("conversations", limit=1000)[-1].data["changes"]
        kinds = [(change["table"], change["op"]) for change in changes if change["table"] == "progression_members"]
        assert 4 <= len(kinds) <= 5
        assert {change.get("key", change.get("row"))["ord"] for change in changes[: len(kinds)]} <= {4998, 4999, 5000}
