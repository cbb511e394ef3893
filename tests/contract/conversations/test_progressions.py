"""Progressions: ordered lists of message ids, appended to in the time of one insert."""

from contextlib import suppress
from typing import Any

import pytest

from persist.errors import NotFound
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import (
    NOT_LABELS,
    NOWHERE,
    append,
    containing,
    counted,
    items,
    make_progression,
    message,
    numbered,
    put_many,
    refused,
    replace,
)


def test_a_progression_is_a_list_of_ids(store: Any, other: Any, raw: Raw) -> None:
    """(c) 12"""
    progression = make_progression(store, ["a"])
    assert append(store, progression, "b", "c", "b") == [True, True, False]
    assert items(other, progression) == ["a", "b", "c"]
    places = raw.rows("SELECT ord, message_id FROM progression_members WHERE progression_id = ? ORDER BY ord", progression)
    assert places == [(0, "a"), (1, "b"), (2, "c")]


def test_a_missing_progression_is_empty_and_stays_missing(store: Any, raw: Raw) -> None:
    """(c) 12"""
    assert items(store, NOWHERE) == []
    assert append(store, NOWHERE, "a") == [False]
    assert items(store, NOWHERE) == []
    assert (raw.count("progressions"), raw.count("progression_members")) == (0, 0)
    assert items(store, make_progression(store)) == []


def test_creating_one_again_changes_nothing(store: Any) -> None:
    """(c) 13"""
    assert make_progression(store, ["x"], "mine") == "mine"
    assert make_progression(store, ["y"], "mine") == "mine"
    assert make_progression(store, [], "mine") == "mine"
    assert items(store, "mine") == ["x"]


def test_duplicates_it_begins_with_are_kept(store: Any) -> None:
    """(a), (d) 1"""
    progression = make_progression(store, ["a", "b", "a"])
    assert append(store, progression, "a", "c") == [False, True]
    put_many(store, [message("b"), message("d")], progression_ids=[progression])
    assert items(store, progression) == ["a", "b", "a", "c", "d"]
    assert containing(store, "a") == [progression]


def test_ids_need_name_no_message(store: Any, raw: Raw) -> None:
    progression = make_progression(store, ["ghost"])
    append(store, progression, "other ghost")
    assert items(store, progression) == ["ghost", "other ghost"]
    assert raw.count("messages") == 0


def test_replacing_makes_these_its_whole_content(store: Any) -> None:
    progression = make_progression(store, numbered(600))
    for ids in (["b", "a", "b"], [], numbered(700), ["z"]):
        replace(store, progression, ids)
        assert items(store, progression) == ids
    assert append(store, progression, "z", "y") == [False, True]
    assert items(store, progression) == ["z", "y"]
    assert containing(store, "b") == []


def test_an_unknown_progression_is_not_replaced(store: Any, raw: Raw) -> None:
    with store.begin() as tx:
        with pytest.raises(NotFound) as missing:
            tx.conversations.progressions.replace(NOWHERE, ["a"])
        assert (missing.value.kind, missing.value.id) == ("progression", NOWHERE)
        tx.conversations.progressions.create("mine")  # the transaction is still good
    assert raw.rows("SELECT id FROM progressions") == [("mine",)]


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


def test_what_is_rolled_back_was_never_there(store: Any) -> None:
    progression = make_progression(store, ["a"])
    with suppress(InterruptedError), store.begin() as tx:
        tx.conversations.progressions.append(progression, "b")
        tx.conversations.progressions.replace(progression, numbered(100))
        tx.conversations.progressions.create("new", ids=["c"])
        raise InterruptedError
    assert items(store, progression) == ["a"]
    assert append(store, "new", "a") == [False]


def test_a_bad_id_is_named_and_nothing_is_written(store: Any, raw: Raw) -> None:
    progression = make_progression(store, ["a"])
    with store.begin() as tx:
        verbs = tx.conversations.progressions
        for bad in [None, *NOT_LABELS]:
            assert refused(verbs.get, bad) == "id"
            assert refused(verbs.append, bad, "b") == "id"
            assert refused(verbs.append, progression, bad) == "message_id"
            assert refused(verbs.replace, bad, []) == "id"
            assert refused(verbs.replace, progression, ["b", bad]) == "ids[1]"
            assert refused(verbs.create, "new", ids=["b", bad]) == "ids[1]"
            assert refused(verbs.containing, bad) == "message_id"
        for bad in NOT_LABELS:
            assert refused(verbs.create, bad) == "id"
        for bad in ("text", b"x", None, 5):
            assert refused(verbs.create, "new", ids=bad) == "ids"
            assert refused(verbs.replace, progression, bad) == "ids"
    assert items(store, progression) == ["a"]
    assert raw.rows("SELECT id FROM progressions") == [(progression,)]


@pytest.mark.parametrize("verb", ["append", "put_many"])
def test_appending_costs_the_same_however_long_it_is(counted_store: Any, statements: list[str], verb: str) -> None:
    """(d) 1"""

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
