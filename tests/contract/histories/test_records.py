"""Conversations: compare-and-swap on the revision, histories that share messages, and what deleting one leaves."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from persist.errors import Conflict, InvalidValue, NotFound
from persist.framework_state.histories.schemas import Message, NewEntry
from persist.testing import START
from tests.cases import each
from tests.contract.conftest import ids_of_pages
from tests.contract.histories.scenes import chain, entry, put, said


def test_a_conversation_reads_as_it_was_written(store: Any) -> None:
    at = datetime(2026, 5, 4, 3, 2, 1, 123_457, tzinfo=UTC)
    message = Message({"z": [1.5, None], "a": "\x00 \ud83d"}, kind="answer", extra=[["a"], "x"])
    with store.begin() as tx:
        entries = [entry("a", None), NewEntry("b", "a", message)]
        more = {"scope": "maria", "forked_from": "x", "forked_at": "a", "usage": {"requests": 2}, "deferred": {"calls": [1]}}
        put(tx, "c", "1", None, "b", entries, updated_at=at, branches=["a"], format_version=3, **more)
    found = store.histories.records.get("c")
    assert found.model_dump() == {
        "id": "c",
        "head_id": "b",
        "branches": ["a"],
        "revision": "1",
        "format_version": 3,
        "created_at": START,
        "updated_at": at,
        **more,
    }
    assert store.histories.records.find("c") == found
    first, second = store.histories.entries.list("b")
    assert (second.parent_id, second.kind, second.message, second.extra) == ("a", "answer", message.data, message.extra)
    assert list(second.message) == ["z", "a"]
    assert store.histories.entries.get("b") == second
    assert first.parent_id is None


@pytest.mark.parametrize(
    ("expected", "head", "entries"),
    [
        (None, "a", []),  # it is there already
        ("0", "a", []),  # another revision
        ("1", "x", []),  # a head that is nowhere
        ("1", "y", [entry("y", "x")]),  # behind an entry that is gone
        ("1", "a", [entry("a", None)]),  # an id that is taken by another message
    ],
)
def test_a_conflict_leaves_nothing_behind(store: Any, expected: str | None, head: str, entries: list[NewEntry]) -> None:
    with store.begin() as tx:
        put(tx, "c", "1", None, "a", [NewEntry("a", None, Message({"said": "first"}))])
    with pytest.raises(Conflict), store.begin() as tx:
        put(tx, "c", "2", expected, head, [*entries, entry("new", "a")], branches=["a"])
    with store.read() as tx:
        assert tx.histories.records.get("c").revision == "1"
        assert tx.histories.records.get("c").branches == []
        assert said(tx, "a") == "a"
        with pytest.raises(NotFound):
            tx.histories.entries.get("new")


def test_an_entry_that_is_there_already_is_not_stored_twice(store: Any) -> None:
    with store.begin() as tx:
        put(tx, "c", "1", None, "b", chain("ab"))
        put(tx, "d", "1", None, "x", [*chain("ab"), entry("x", "b")])
        assert said(tx, "x") == "abx"


def test_a_history_is_read_whole_or_from_its_end(store: Any) -> None:
    with store.begin() as tx:
        put(tx, "c", "1", None, "e", chain("abcde"))
        assert [said(tx, "e", limit=limit) for limit in (0, 1, 2, 5, 9, 2**62)] == ["", "e", "de", "abcde", "abcde", "abcde"]
        assert said(tx, "c") == "abc"


def test_forks_share_entries(store: Any) -> None:
    with store.begin() as tx:
        put(tx, "c", "1", None, "d", chain("abcd"))
        put(tx, "fork", "1", None, "b", forked_from="c", forked_at="b")
        put(tx, "fork", "2", "1", "y", chain("xy", "b"))
        put(tx, "third", "1", None, "x")
        put(tx, "third", "2", "1", "r", chain("qr", "x"))
        put(tx, "c", "2", "1", "e", [entry("e", "d")])
        assert [said(tx, head) for head in "eyrb"] == ["abcde", "abxy", "abxqr", "ab"]
        assert said(tx, "r", limit=4) == "bxqr"


def test_entries_of_one_call_may_form_a_tree(store: Any) -> None:
    with store.begin() as tx:
        new = [entry("a", None), entry("b", "a"), entry("c", "a"), entry("d", "b"), entry("e", "c"), entry("f", None)]
        put(tx, "c", "1", None, "e", new, branches=["d", "f"])
        assert [said(tx, head) for head in "edf"] == ["ace", "abd", "f"]


@each("entries", [[entry("a", "b"), entry("b", None)], [entry("a", "a")], [entry("a", None), entry("a", None)]])
def test_entries_that_lead_in_a_circle_are_refused(store: Any, entries: list[NewEntry]) -> None:
    with pytest.raises(InvalidValue), store.begin() as tx:
        put(tx, "c", "1", None, "a", entries)


def test_deleting_keeps_what_any_head_or_branch_reaches(store: Any) -> None:
    with store.begin() as tx:
        put(tx, "c", "1", None, "e", chain("abcde"))
        put(tx, "fork", "1", None, "x", [entry("x", "b")])
        put(tx, "left", "1", None, "z", [entry("z", None)], branches=["c"])
        assert tx.histories.records.delete("c") is True
        assert [said(tx, head) for head in "cxz"] == ["abc", "abx", "z"]
        for gone in "de":
            with pytest.raises(NotFound):
                tx.histories.entries.get(gone)
        tx.histories.records.delete("left")
        assert said(tx, "x") == "abx"
        for gone in "cz":
            with pytest.raises(NotFound):
                tx.histories.entries.get(gone)
        tx.histories.records.delete("fork")
        for gone in "abx":
            with pytest.raises(NotFound):
                tx.histories.entries.get(gone)


def test_deleting_takes_entries_that_a_conversation_let_go(store: Any) -> None:
    with store.begin() as tx:
        put(tx, "c", "1", None, "c", chain("abc"))
        put(tx, "c", "2", "1", "a")
        assert said(tx, "c") == "abc"
        tx.histories.records.delete("c", expected_revision="2")
        with pytest.raises(NotFound):
            tx.histories.entries.get("c")


def test_a_snapshot_keeps_no_conversation_and_the_other_way_round(store: Any) -> None:
    with store.begin() as tx:
        put(tx, "c", "1", None, "b", chain("ab"))
        tx.histories.snapshots.save("run", [Message({"said": "a"})], state="complete", step_index=0, taken_at=START)
        tx.histories.records.delete("c")
        found = tx.histories.snapshots.latest("run")
        assert [one.message for one in found.entries] == [{"said": "a"}]


def test_conversations_are_listed_the_one_written_last_first(store: Any) -> None:
    with store.begin() as tx:
        for number in range(5):
            at = START + timedelta(microseconds=number)
            put(tx, f"c{number}", "1", None, None, updated_at=at, scope="even" if number % 2 == 0 else None)
        listed = tx.histories.records
        assert [found.id for found in listed.latest()] == ["c4", "c3", "c2", "c1", "c0"]
        assert [found.id for found in listed.latest(scope="even", limit=2)] == ["c4", "c2"]
        assert [found.id for found in listed.latest(limit=0)] == []
        assert [*ids_of_pages(listed.list, limit=2)] == [["c4", "c3"], ["c2", "c1"], ["c0"]]
        assert [found.id for found in listed.list(scope="even").items] == ["c4", "c2", "c0"]


def test_branches_belong_to_their_conversation(store: Any) -> None:
    with store.begin() as tx:
        put(tx, "c", "1", None, "b", chain("ab"), branches=["b", "a", "b"])
        put(tx, "d", "1", None, "a")
        assert {found.id: found.branches for found in tx.histories.records.latest()} == {"c": ["b", "a", "b"], "d": []}
        put(tx, "c", "2", "1", "b", branches=["a"])
        assert tx.histories.records.get("c").branches == ["a"]


def test_entries_that_are_none_are_refused(store: Any) -> None:
    hostile: list[Any] = [[object()], "ab", [NewEntry("a", None, cast(Any, object()))], [NewEntry("a", None, Message({1: 2}))]]
    for entries in hostile:
        with pytest.raises(InvalidValue), store.begin() as tx:
            put(tx, "c", "1", None, None, entries)
