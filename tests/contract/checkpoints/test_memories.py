"""Memories: objects under keys of namespaces, and how they expire."""

from datetime import timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.testing import FrozenClock
from tests.cases import each

HARD = "Naïve\x00 text \ud83d stays what it was."


def put(store: Any, namespace: tuple[str, ...], key: str, value: dict[str, Any], **more: Any) -> None:
    store.checkpoints.memories.put(namespace, key, value, **more)


def listed(store: Any, prefix: tuple[str, ...] = (), **more: Any) -> list[tuple[tuple[str, ...], str]]:
    return [(memory.namespace, memory.key) for memory in store.checkpoints.memories.list(prefix, **more)]


def test_a_memory_is_read_as_it_was_put(store: Any, clock: FrozenClock) -> None:
    put(store, ("a", HARD[:2]), "k", {HARD: [HARD]})
    made = clock()
    clock.advance(seconds=1)
    put(store, ("a", HARD[:2]), "k", {"n": 1}, ttl_minutes=2.5)
    found = store.checkpoints.memories.get(("a", HARD[:2]), "k")
    assert store.checkpoints.memories.get(("a",), "k") is None
    assert (found.value, found.created_at, found.updated_at, found.ttl_minutes) == ({"n": 1}, made, clock(), 2.5)
    assert found.expires_at == clock() + timedelta(seconds=150)
    with store.begin() as tx:
        assert [tx.checkpoints.memories.delete(("a", HARD[:2]), "k") for _ in range(2)] == [True, False]


def test_each_put_is_later_than_the_last_whatever_the_clock_says(store: Any, clock: FrozenClock) -> None:
    made = clock()

    def at() -> Any:
        return store.checkpoints.memories.get(("a",), "k").updated_at

    seen = []
    for seconds in (0, 0, -3600, -0.001, 0, 7200, 0):
        clock.advance(seconds=seconds)
        put(store, ("a",), "k", {})
        seen.append(at())
    with store.begin() as tx:
        for _ in range(3):
            tx.checkpoints.memories.put(("a",), "k", {})
    millisecond = timedelta(milliseconds=1)
    assert seen == [made + number * millisecond for number in range(5)] + [clock() + number * millisecond for number in range(2)]
    assert at() == clock() + 4 * millisecond
    assert store.checkpoints.memories.get(("a",), "k").created_at == made


def test_a_prefix_is_of_whole_labels(store: Any) -> None:
    for namespace in ((), ("a",), ("a", "b"), ("ab",), ("a-",), ("a/",), ("A",)):
        put(store, namespace, "k", {})
    assert sorted(listed(store, ("a",))) == [(("a",), "k"), (("a", "b"), "k")]
    assert store.checkpoints.memories.namespaces() == sorted([(), ("a",), ("a", "b"), ("ab",), ("a-",), ("a/",), ("A",)])
    assert store.checkpoints.memories.namespaces(("a",)) == [("a",), ("a", "b")]


def test_what_changed_last_comes_first(store: Any, clock: FrozenClock) -> None:
    for key in ("1", "2", "3", "1"):
        put(store, ("a",), key, {})
        clock.advance(seconds=1)
    assert [key for _, key in listed(store)] == ["1", "3", "2"]
    assert [key for _, key in listed(store, limit=1, offset=1)] == ["3"]


def test_what_expired_is_not_there(store: Any, raw: Any, clock: FrozenClock) -> None:
    put(store, ("a",), "soon", {}, ttl_minutes=1, embeddings={"$": b"1234"})
    put(store, ("a",), "later", {}, ttl_minutes=3, embeddings={"$": b"5678"})
    clock.advance(seconds=60)
    assert listed(store) == [(("a",), "later")]
    with store.begin() as tx:
        memories = tx.checkpoints.memories
        assert memories.get(("a",), "soon") is None
        assert memories.embeddings(("a",)) == [(("a",), "later", b"5678")]
        memories.refresh(memories.list())
        clock.advance(seconds=170)
        assert memories.sweep() == 1
        assert [memory.key for memory in memories.list()] == ["later"]
    assert (raw.count("memories"), raw.count("memory_vectors")) == (1, 1)


def test_a_memory_that_is_put_again_has_the_vectors_of_now(store: Any) -> None:
    put(store, ("a",), "k", {}, embeddings={"x": b"1", "y": b"2"})
    put(store, ("a",), "k", {}, embeddings={"y": b"3"})
    assert store.checkpoints.memories.embeddings() == [(("a",), "k", b"3")]


@each(
    ("namespace", "key", "value", "more"),
    [
        (("a.b",), "k", {}, {}),
        (("",), "k", {}, {}),
        (("a\x00",), "k", {}, {}),
        (("a",), "k", {"n": (1, 2)}, {}),
        (("a",), "k", {}, {"ttl_minutes": 1e12}),
    ],
    ids=["dot", "empty", "nul", "tuple", "endless"],
)
def test_bad_input_writes_nothing(store: Any, raw: Any, namespace: Any, key: str, value: Any, more: dict[str, Any]) -> None:
    with store.begin() as tx, pytest.raises(InvalidValue):
        tx.checkpoints.memories.put(namespace, key, value, **more)
    assert raw.count("memories") == 0
