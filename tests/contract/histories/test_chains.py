"""Messages that another program made lead in a circle or nowhere: nothing walks for ever, and doctor names them."""

from typing import Any

import pytest
from sqlalchemy import delete, update

from persist import Store
from persist.errors import StoreCorrupt, UnreadableRow
from persist.framework_state.histories.models import entries
from persist.maintenance import doctor
from tests.cases import each
from tests.contract.faces import on_one_face
from tests.contract.histories.scenes import chain, entry, put, said

SPOILT = {
    "the first behind itself": ("a", "a"),
    "the first behind the last": ("a", "e"),
    "one behind itself": ("c", "c"),
    "one behind the last": ("c", "e"),
    "the first of a line behind its last": ("x", "y"),
    "one behind none": ("d", None),
    "one behind one that is gone": ("x", "gone"),
}


@on_one_face
@each("spoilt", SPOILT)
def test_a_history_that_is_no_chain_is_refused(store: Store, spoilt: str) -> None:
    id, parent = SPOILT[spoilt]
    with store.begin() as tx:
        put(tx, "c", "1", None, "e", chain("abcde"))
        put(tx, "fork", "1", None, "y", chain("xy", "b"))
        tx._work.change(update(entries).where(entries.c.id == id).values(parent_id=parent))
    head = "y" if id == "x" else "e"
    with store.read() as tx, pytest.raises(StoreCorrupt, match="no chain"):
        said(tx, head)
    with store.begin() as tx:
        assert tx.histories.records.delete("c")
        assert tx.histories.records.delete("fork")
        assert tx.histories.records.latest() == []


@on_one_face
def test_the_end_of_a_history_is_read_without_its_damaged_beginning(store: Store) -> None:
    with store.begin() as tx:
        put(tx, "c", "1", None, "e", chain("abcde"))
        tx._work.change(update(entries).where(entries.c.id == "b").values(parent_id="c"))
        assert said(tx, "e", limit=3) == "cde"


def test_a_message_that_cannot_be_read_is_left_out_of_a_list(store: Any, raw: Any) -> None:
    with store.begin() as tx:
        put(tx, "c", "1", None, "e", chain("abcde"))
    for id, left in (("c", "abde"), ("a", "bde"), ("e", "bd")):
        raw.rows(f"UPDATE history_entries SET created_at = 9000000000000000000 WHERE id = '{id}'")
        with store.read() as tx:
            assert said(tx, "e") == left
            assert said(tx, "e", limit=3) == left.lstrip("ab")
            with pytest.raises(UnreadableRow, match="created_at"):
                tx.histories.entries.get(id)


@on_one_face
def test_doctor_names_messages_that_follow_none(store: Store) -> None:
    with store.begin() as tx:
        put(tx, "c", "1", None, "e", chain("abcde"), branches=["x"])
        put(tx, "d", "1", None, "y", [entry("y", None)])
        tx._work.change(update(entries).where(entries.c.id == "c").values(parent_id="e"))
        tx._work.change(delete(entries).where(entries.c.id == "y"))
    found = {(one.code, one.subject) for one in doctor(store)}
    assert found == {("history_chain", "history entry c"), ("history_end", "history c"), ("history_end", "history d")}


@on_one_face
def test_doctor_finds_nothing_in_what_verbs_wrote(store: Store) -> None:
    with store.begin() as tx:
        put(tx, "c", "1", None, "e", chain("abcde"))
        put(tx, "fork", "1", None, "y", chain("xy", "b"), branches=["d"])
        tx.histories.records.delete("c")
    assert doctor(store) == []
