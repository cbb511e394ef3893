"""Tasks by owner and id: a save writes what changed, an end is an end, and lists have an order that pages keep."""

from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound
from persist.framework_state.agent_tasks.schemas import Piece


def part(number: int, data: bytes = b"x") -> Piece:
    return Piece("artifact", 0, number, data)


def save(tx: Any, owner: str, id: str, *pieces: Piece, **more: Any) -> int:
    written: int = tx.agent_tasks.tasks.save(owner, id, **{"state": "working", "head": b"h", "pieces": pieces, **more})
    return written


def test_a_save_writes_what_is_new_alone(store: Any) -> None:
    pieces = [part(-1), *(part(number, bytes([number])) for number in range(50))]
    with store.begin() as tx:
        assert save(tx, "ann", "t", *pieces) == 51
        assert save(tx, "ann", "t", *pieces, head=b"other") == 0
        assert save(tx, "ann", "t", *pieces, part(50)) == 1
        assert save(tx, "ann", "t", part(-1, b"renamed"), *pieces[1:], part(50)) == 1
        assert save(tx, "ann", "t", *pieces[:3]) == 1  # the others are gone
    found = store.agent_tasks.tasks.get("ann", "t")
    assert (found.head, list(found.pieces)) == (b"h", pieces[:3])
    assert store.agent_tasks.tasks.by_id(found.task.id) == found


def test_each_owner_has_tasks_of_its_own(store: Any) -> None:
    with store.begin() as tx:
        save(tx, "ann", "t", part(-1, b"of ann"))
        save(tx, "", "t", part(-1, b"of nobody"))
    tasks = store.agent_tasks.tasks
    assert [tasks.get(owner, "t").pieces[0].data for owner in ("ann", "")] == [b"of ann", b"of nobody"]
    assert tasks.get("bob", "t") is None
    assert tasks.list("bob").total == 0
    with store.begin() as tx:
        assert tx.agent_tasks.tasks.delete("bob", "t") is False
        assert tx.agent_tasks.tasks.delete("ann", "t") is True
    assert store.agent_tasks.tasks.get("ann", "t") is None
    assert store.agent_tasks.tasks.get("", "t") is not None


def test_what_ended_stays_ended(store: Any) -> None:
    with store.begin() as tx:
        save(tx, "ann", "t", state="completed", final=True)
        for state, final in (("working", False), ("failed", True)):
            with pytest.raises(Conflict, match="has ended as 'completed'"):
                save(tx, "ann", "t", part(-1), state=state, final=final)
        assert save(tx, "ann", "t", part(-1), state="completed", final=True) == 1


def test_pages_keep_the_order_and_the_total(store: Any) -> None:
    keys = {"a": "2", "b": "", "c": "2", "d": "3", "e": ""}
    with store.begin() as tx:
        for id, key in keys.items():
            save(tx, "ann", id, part(-1, id.encode()), status_key=key, context_id="odd" if id in "ace" else "even")
    with store.read() as tx:
        tasks, found, after = tx.agent_tasks.tasks, [], None
        while True:
            page = tasks.list("ann", limit=2, after=after)
            assert page.total == 5
            found += [(one.task.task_id, one.pieces[0].data) for one in page.items]
            if not page.more:
                break
            after = (page.items[-1].task.status_key, page.items[-1].task.task_id)
        assert found == [(id, id.encode()) for id in "dcaeb"]
        assert [one.task.task_id for one in tasks.list("ann", since="2", context_id="odd").items] == ["c", "a"]
        assert tasks.list("ann", state="completed").items == []
        latest = tasks.latest(limit=3)
        assert len(latest.items) == 3
        assert len(tasks.latest(limit=3, after=latest.cursor).items) == 2


def test_a_page_goes_on_behind_a_task_that_cannot_be_read(store: Any, raw: Any) -> None:
    with store.begin() as tx:
        for id in "abcd":
            save(tx, "ann", id, part(-1, id.encode()), status_key=id)
    raw.rows("UPDATE agent_task_records SET created_at = 9000000000000000000 WHERE task_id = 'c'")
    page = store.agent_tasks.tasks.list("ann", limit=2)
    assert ([(one.task.task_id, one.pieces[0].data) for one in page.items], page.more) == ([("d", b"d"), ("b", b"b")], True)
    rest = store.agent_tasks.tasks.list("ann", limit=2, after=("b", "b"))
    assert ([one.task.task_id for one in rest.items], rest.more) == (["a"], False)


def test_what_is_refused_leaves_nothing(store: Any) -> None:
    wrong: list[dict[str, Any]] = [
        {"pieces": [part(-1), part(-1)]},
        {"pieces": [Piece("artifact", -1, 0, b"")]},
        {"pieces": [Piece("artifact", 0, 0, "text")]},  # type: ignore[arg-type]  # the point
        {"pieces": ["x"]},
        {"head": "text"},
        {"state": ""},
        {"final": 1},
        {"context_id": "x" * 601},
    ]
    with store.begin() as tx:
        for given in wrong:
            with pytest.raises(InvalidValue):
                save(tx, "ann", "t", **given)
        with pytest.raises(InvalidValue):
            save(tx, "ann", "")
        assert tx.agent_tasks.tasks.latest().items == []
        with pytest.raises(NotFound):
            tx.agent_tasks.tasks.by_id("atk_unknown")


def test_webhooks_are_an_owners_and_are_found_by_task(store: Any) -> None:
    with store.begin() as tx:
        hooks = tx.agent_tasks.webhooks
        hooks.set("t", "1", owner="ann", data=b"a")
        hooks.set("t", "2", owner="ann", data=b"b")
        hooks.set("t", "1", owner="bob", data=b"c")
        hooks.set("t", "1", owner="ann", data=b"again")
    hooks = store.agent_tasks.webhooks
    assert [one.data for one in hooks.list("t", owner="ann")] == [b"b", b"again"]
    assert [one.data for one in hooks.list("t")] == [b"b", b"c", b"again"]
    assert hooks.list("u") == []
    with store.begin() as tx:
        hooks = tx.agent_tasks.webhooks
        assert hooks.delete("t", owner="bob", id="2") == 0
        assert hooks.delete("t", owner="ann") == 2
        assert [one.owner for one in hooks.list("t")] == ["bob"]
