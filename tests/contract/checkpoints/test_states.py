"""Threads and their checkpoints: values by version, lists that grow, writes, histories, trimming, copies."""

from typing import Any

import pytest

from persist.errors import Conflict, NotFound
from persist.framework_state.checkpoints.schemas import Blob, ChannelHistory, PendingWrite, Write
from persist.testing import FrozenClock

HARD = "Naïve\x00 text \ud83d stays what it was."
HEAD = Blob("head", b"\x00\xff")


def blob(text: str) -> Blob:
    return Blob("text", text.encode())


def pieces(*texts: str) -> list[Blob]:
    return [blob(text) for text in texts]


def put(tx: Any, id: str, *, thread: str = "t", versions: dict[str, str] | None = None, **more: Any) -> None:
    values = more.pop("values", {})
    known = versions if versions is not None else dict.fromkeys(values, id)
    given = {channel: (known[channel], value) for channel, value in values.items()}
    tx.checkpoints.states.put(thread, id, head=more.pop("head", HEAD), versions=known, values=given, **more)


def read(store: Any, thread: str = "t", **where: Any) -> Any:
    return store.checkpoints.states.find(thread, **where)


def test_a_checkpoint_is_read_as_it_was_put(store: Any, clock: FrozenClock) -> None:
    with store.begin() as tx:
        put(tx, "1", values={"a": blob("x")}, metadata={HARD: [HARD, 1.5]}, run_id="run", partial=["z", "y"], namespace="n")
    found = read(store, namespace="n")
    row = found.checkpoint
    assert (row.thread_id, row.namespace, row.id, row.parent_id, row.run_id) == ("t", "n", "1", None, "run")
    assert (row.metadata, row.versions, row.partial, row.head) == ({HARD: [HARD, 1.5]}, {"a": "1"}, ["y", "z"], HEAD)
    assert (row.created_at, found.values, found.writes) == (clock(), {"a": blob("x")}, [])
    assert read(store) is None
    assert read(store, namespace="n", id="2") is None


def test_a_value_is_that_of_the_version_a_checkpoint_is_at(store: Any) -> None:
    with store.begin() as tx:
        put(tx, "1", values={"a": blob("one"), "b": blob("b")})
        put(tx, "2", values={"a": blob("two")}, versions={"a": "2", "b": "1"}, parent_id="1")
        put(tx, "3", values={"b": None}, versions={"a": "2", "b": "3"}, parent_id="2")
    assert read(store, id="1").values == {"a": blob("one"), "b": blob("b")}
    assert read(store, id="2").values == {"a": blob("two"), "b": blob("b")}
    assert read(store).values == {"a": blob("two")}


def test_elements_of_a_list_are_stored_once(store: Any, raw: Any) -> None:
    texts = [f"element {number}" for number in range(6)]
    lists = [texts[:2], texts[:4], texts, texts[3:], texts[:1] + texts[4:], [texts[5]] * 3]
    with store.begin() as tx:
        for number, some in enumerate(lists):
            put(tx, f"{number}", values={"said": pieces(*some)})
    assert raw.count("checkpoint_pieces") == 6
    loaded = store.checkpoints.states.load(store.checkpoints.states.page(thread_id="t"))
    assert [found.values["said"] for found in loaded] == [pieces(*some) for some in lists[::-1]]


def test_a_checkpoint_that_is_put_again_is_the_last_one(store: Any, clock: FrozenClock) -> None:
    with store.begin() as tx:
        put(tx, "1", values={"a": blob("x")}, metadata={"n": 1})
    made = clock()
    clock.advance(seconds=1)
    with store.begin() as tx:
        put(tx, "1", values={"a": blob("y")}, metadata={"n": 2})
    found = read(store)
    assert (found.values, found.checkpoint.metadata, found.checkpoint.created_at) == ({"a": blob("y")}, {"n": 2}, made)


def test_writes_come_in_their_order_and_only_special_ones_are_replaced(store: Any) -> None:
    with store.begin() as tx:
        states = tx.checkpoints.states
        states.put_writes("t", "1", [Write(0, "a", blob("2"))], task_id="z", task_path="~1")
        states.put_writes("t", "1", [Write(1, "a", blob("1")), Write(-1, "error", blob("0"))], task_id="b")
        states.put_writes("t", "1", [Write(1, "a", blob("late")), Write(-1, "error", blob("new"))], task_id="b")
        states.put_writes("t", "1", [], task_id="none")
        put(tx, "1")
    assert read(store).writes == [
        PendingWrite("b", "error", blob("new")),
        PendingWrite("b", "a", blob("1")),
        PendingWrite("z", "a", blob("2")),
    ]


def chain(tx: Any) -> None:
    """A channel that is stored at 1 and at 3 alone."""
    for number in range(1, 6):
        values = {"log": blob(f"whole {number}")} if number in (1, 3) else {}
        parent = f"{number - 1}" if number > 1 else None
        more: dict[str, Any] = {"partial": () if values else ("log",), "run_id": f"run-{number}", "parent_id": parent}
        put(tx, f"{number}", values=values, versions={"log": f"{number}"}, **more)
        tx.checkpoints.states.put_writes("t", f"{number}", [Write(0, "log", blob(f"w{number}"))], task_id="task")


def test_a_history_begins_at_the_nearest_stored_value(store: Any) -> None:
    with store.begin() as tx:
        chain(tx)
    history = store.checkpoints.states.history
    assert history("t", "5", ["log", "none"]) == {
        "log": ChannelHistory(blob("whole 3"), [PendingWrite("task", "log", blob(f"w{n}")) for n in (3, 4)]),
        "none": ChannelHistory(None, []),
    }
    assert history("t", "1", ["log"]) == {"log": ChannelHistory(None, [])}


@pytest.mark.parametrize("how", ["latest", "runs"])
def test_what_a_kept_checkpoint_is_rebuilt_from_stays(store: Any, raw: Any, how: str) -> None:
    with store.begin() as tx:
        chain(tx)
        before = tx.checkpoints.states.history("t", "5", ["log"])
        if how == "latest":
            assert tx.checkpoints.threads.keep_latest("t") == 2
        else:
            assert tx.checkpoints.threads.delete_runs(["run-1", "run-2", "run-3", "unknown"]) == 2
    kept = store.checkpoints.states.page(thread_id="t")
    assert [(found.id, found.parent_id) for found in kept] == [("5", "4"), ("4", "3"), ("3", None)]
    assert store.checkpoints.states.history("t", "5", ["log"]) == before
    assert (raw.count("checkpoint_values"), raw.count("checkpoint_writes")) == (1, 3)


def test_trimming_leaves_no_piece_that_no_list_has(store: Any, raw: Any) -> None:
    with store.begin() as tx:
        put(tx, "1", values={"said": pieces("a", "b", "c")})
        put(tx, "2", values={"said": pieces("b", "x", "y")}, parent_id="1")
        put(tx, "9", values={"said": pieces("n")}, namespace="other")
        assert tx.checkpoints.threads.keep_latest("t") == 1
        assert tx.checkpoints.threads.keep_latest("t") == 0
        assert tx.checkpoints.threads.keep_latest("unknown") == 0
    assert read(store).values == {"said": pieces("b", "x", "y")}
    assert read(store, namespace="other").values == {"said": pieces("n")}
    assert raw.count("checkpoint_pieces") == 4


def test_a_copy_and_its_source_go_their_own_ways(store: Any, raw: Any) -> None:
    with store.begin() as tx:
        chain(tx)
        put(tx, "6", values={"said": pieces("a", "b")}, parent_id="5")
        assert tx.checkpoints.threads.copy("t", "u") is True
        assert tx.checkpoints.threads.copy("unknown", "v") is False
        put(tx, "7", thread="u", values={"said": pieces("a", "b", "c")}, parent_id="6")
        assert tx.checkpoints.threads.delete("t") is True
        assert tx.checkpoints.threads.delete("t") is False
    assert read(store, "u").values == {"said": pieces("a", "b", "c")}
    assert read(store, "u", id="6").values == {"said": pieces("a", "b")}
    assert raw.count("checkpoint_states") == 7
    with store.begin() as tx, pytest.raises(Conflict):
        tx.checkpoints.threads.copy("u", "u")


def test_threads_are_listed_by_their_last_use(store: Any, clock: FrozenClock) -> None:
    for thread in ("a", "b", "c", "a"):
        with store.begin() as tx:
            put(tx, "1", thread=thread)
        clock.advance(seconds=1)
    first = store.checkpoints.threads.list(limit=2)
    second = store.checkpoints.threads.list(limit=2, after=first.cursor)
    assert [[thread.id for thread in page.items] for page in (first, second)] == [["a", "c"], ["b"]]
    assert second.cursor is None
    assert store.checkpoints.threads.get("a").updated_at > store.checkpoints.threads.get("a").created_at
    with pytest.raises(NotFound):
        store.checkpoints.threads.get("d")


def test_pages_go_on_where_the_last_ended(store: Any) -> None:
    with store.begin() as tx:
        for number in range(7):
            put(tx, f"{number % 4}", thread=f"t{number % 3}", namespace=f"n{number % 2}")
    with store.read() as tx:
        whole = tx.checkpoints.states.page()
        found: list[Any] = []
        while some := tx.checkpoints.states.page(limit=2, after=found[-1] if found else None):
            found += some
        assert found == whole
        assert [(one.id, one.thread_id, one.namespace) for one in whole] == sorted(
            {(one.id, one.thread_id, one.namespace) for one in whole}, reverse=True
        )
        assert {one.id for one in tx.checkpoints.states.page(before="2", namespace="n1")} == {"1"}
