"""Checkpoints whose parents lead in a circle: nothing walks for ever, what cannot be known is said, and doctor names them."""

from typing import Any

import pytest

from persist import Store
from persist.errors import StoreCorrupt
from persist.framework_state.checkpoints.schemas import Blob, Write
from persist.maintenance import doctor
from tests.cases import each

HEAD = Blob("msgpack", b"\x80")


def put(tx: Any, id: str, parent: str | None, **more: Any) -> None:
    tx.checkpoints.states.put("t", id, head=HEAD, parent_id=parent, versions={"said": f"v{id}"}, **more)


CIRCLES = {"itself": {"1": "1"}, "two": {"1": "2", "2": "1"}, "beyond": {"3": "2", "2": "1", "1": "2"}}
"""The parent of each checkpoint."""


@each("circle", CIRCLES)
def test_the_history_of_a_circle_is_refused(store: Store, circle: str) -> None:
    with store.begin() as tx:
        for id, parent in CIRCLES[circle].items():
            put(tx, id, parent, partial=["said"])
            tx.checkpoints.states.put_writes("t", id, [Write(0, "said", Blob("null", b""))], task_id="task")
    for id in CIRCLES[circle]:
        with store.read() as tx, pytest.raises(StoreCorrupt, match="circle"):
            tx.checkpoints.states.history("t", id, ["said"])


def test_the_history_ends_before_a_circle_where_it_has_what_it_looks_for(store: Store) -> None:
    with store.begin() as tx:
        put(tx, "1", "3")
        put(tx, "2", "1", values={"said": ("v2", Blob("x", b"seed"))})
        put(tx, "3", "2", partial=["said"])
    assert store.checkpoints.states.history("t", "3", ["said"])["said"].seed == Blob("x", b"seed")


@pytest.mark.parametrize("circle", CIRCLES)
def test_trimming_a_circle_ends_and_keeps_what_it_is_rebuilt_from(store: Store, circle: str) -> None:
    with store.begin() as tx:
        for id, parent in CIRCLES[circle].items():
            put(tx, id, parent, partial=["said"], run_id="run")
        put(tx, "0", None, run_id="other")
    with store.begin() as tx:
        assert tx.checkpoints.threads.delete_runs(["other"]) == 1
        assert tx.checkpoints.threads.keep_latest("t") == 0
    assert {one.id: one.parent_id for one in store.checkpoints.states.page(thread_id="t")} == CIRCLES[circle]
    with store.begin() as tx:
        assert tx.checkpoints.threads.copy("t", "u")
        assert tx.checkpoints.threads.delete("t")


def test_doctor_names_each_circle(database_url: str) -> None:
    with Store.open(database_url) as store:
        with store.begin() as tx:
            for id, parent in ({"7": "6", "6": "9", "9": "7", "8": "7", "4": "4", "3": "5", "5": "2", "2": None}).items():
                put(tx, id, parent)
            tx.checkpoints.states.put("u", "1", namespace="child", head=HEAD, parent_id="1")
            tx.checkpoints.states.put("u", "1", head=HEAD)
        found = [(one.code, one.severity, one.subject, one.message.partition(" is among ")[0]) for one in doctor(store)]
    code = ("checkpoint_circle", "error")
    assert sorted(found) == [
        (*code, "thread t", "the checkpoint '4'"),
        (*code, "thread t", "the checkpoint '6'"),
        (*code, "thread u", "the checkpoint '1'"),
    ]
