"""PersistStore beside the framework's in-memory store: operations, filters, namespaces, search, expiry, refusals."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import BaseStore, GetOp, IndexConfig, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from persist import AsyncStore, Store
from persist.errors import InvalidValue
from persist.integrations.langgraph import PersistStore
from persist.testing import FrozenClock

Call = Callable[..., Any]
HARD = "Naïve\x00 text \ud83d stays what it was."

LABELS = st.sampled_from(["a", "b", "ab", "A", "a-b", "é", "%", "_"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["1", "2", "", "k.k"])
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=4), st.lists(st.integers(0, 2), max_size=2))
VALUES = st.dictionaries(st.sampled_from(["n", "text", "deep"]), st.one_of(PLAIN, st.dictionaries(st.just("x"), PLAIN)))
FILTERS = st.one_of(
    st.none(),
    st.dictionaries(st.sampled_from(["n", "text", "deep"]), st.one_of(PLAIN, st.just({"x": 1})), max_size=2),
    st.dictionaries(st.just("n"), st.dictionaries(st.sampled_from(["$eq", "$ne"]), PLAIN, min_size=1, max_size=2)),
)
MATCHES = st.builds(
    MatchCondition,
    match_type=st.sampled_from(["prefix", "suffix"]),
    path=st.lists(st.one_of(LABELS, st.just("*")), max_size=2).map(tuple),
)
OPS = st.one_of(
    st.tuples(NAMESPACES, KEYS, st.one_of(st.none(), VALUES, VALUES, VALUES)).map(lambda given: PutOp(*given)),
    st.tuples(NAMESPACES, KEYS).map(lambda given: GetOp(*given)),
    st.tuples(st.one_of(st.just(()), NAMESPACES), FILTERS).map(lambda given: SearchOp(*given, limit=100)),
    st.tuples(st.lists(MATCHES, max_size=2).map(tuple), st.one_of(st.none(), st.integers(1, 3))).map(
        lambda given: ListNamespacesOp(*given)
    ),
)
BATCHES = st.lists(st.lists(OPS, min_size=1, max_size=5), min_size=1, max_size=5)


def plain(result: Any) -> Any:
    """A result without its instants; what a search found in an order that both give."""
    if isinstance(result, list):
        found = [plain(one) for one in result]
        return sorted(found, key=repr) if found and isinstance(found[0], dict) else found
    if hasattr(result, "dict"):
        return {name: value for name, value in result.dict().items() if name not in ("created_at", "updated_at")}
    return result


def alike(ours: BaseStore, batches: list[list[Any]]) -> None:
    reference = InMemoryStore()
    for ops in batches:
        assert plain(ours.batch(ops)) == plain(without_empty(reference, reference.batch(ops), ops))


def without_empty(reference: InMemoryStore, results: list[Any], ops: list[Any]) -> list[Any]:
    """The in-memory store goes on naming namespaces whose items are gone, or were only asked for."""
    for namespace in [namespace for namespace, items in reference._data.items() if not items]:
        del reference._data[namespace]
    return results


@settings(max_examples=80)
@given(batches=BATCHES)
def test_batches_give_what_the_in_memory_store_gives_on_sqlite(batches: list[list[Any]]) -> None:
    with Store.open("sqlite:///:memory:") as store:
        alike(PersistStore(store), separated(batches))


def test_batches_give_what_the_in_memory_store_gives_on_postgres(new_postgres_database: Callable[..., str]) -> None:
    with Store.open(new_postgres_database()) as store:
        ours = PersistStore(store)

        @settings(max_examples=40)
        @given(batches=BATCHES)
        def compared(batches: list[list[Any]]) -> None:
            for item in ours.search((), limit=1000):
                ours.delete(item.namespace, item.key)
            alike(ours, separated(batches))

        compared()


def separated(batches: list[list[Any]]) -> list[list[Any]]:
    """Namespaces are listed alone: the in-memory store makes one by looking into it."""
    return [
        part
        for ops in batches
        for part in (
            [op for op in ops if not isinstance(op, ListNamespacesOp)],
            *([op] for op in ops if isinstance(op, ListNamespacesOp)),
        )
    ]


def test_hard_text_is_kept(call: Call, items: PersistStore) -> None:
    call(items.put, ("docs",), "k", {HARD: [HARD, {"deep": HARD}]})
    assert call(items.get, ("docs",), "k").value == {HARD: [HARD, {"deep": HARD}]}
    assert [found.key for found in call(items.search, ("docs",), filter={HARD: [HARD, {"deep": HARD}]})] == ["k"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), (1, 2), {1}, b"x", 2**64, {1: 2}], ids=repr)
def test_what_json_cannot_give_back_is_refused_before_anything_is_written(call: Call, items: PersistStore, value: Any) -> None:
    ops = [PutOp(("docs",), "1", {"n": 1}), PutOp(("docs",), "2", {"n": value})]
    with pytest.raises(ValueError, match="value"):
        call(items.batch, ops)
    assert call(items.search, ()) == []


@pytest.mark.parametrize("key", ["a\x00", "\ud83d"], ids=["nul", "half"])
def test_a_key_that_databases_refuse_is_refused(call: Call, items: PersistStore, key: str) -> None:
    with pytest.raises(InvalidValue):
        call(items.put, ("docs",), key, {"n": 1})


def test_what_changed_last_is_found_first_page_by_page(call: Call, items: PersistStore, clock: FrozenClock) -> None:
    for number in range(6):
        call(items.put, ("docs",), f"{number}", {"n": number})
        clock.advance(seconds=1)
    call(items.put, ("docs",), "0", {"n": 0})
    pages = [[found.key for found in call(items.search, ("docs",), limit=4, offset=offset)] for offset in (0, 4, 8)]
    assert pages == [["0", "5", "4", "3"], ["2", "1"], []]
    assert [found.key for found in call(items.search, (), filter={"n": {"$gt": 1, "$lte": 4}}, limit=2)] == ["4", "3"]
    with pytest.raises(ValueError, match="\\$near"):
        call(items.search, (), filter={"n": {"$near": 1}})


def test_an_item_expires_unless_it_is_read(call: Call, store: Any, clock: FrozenClock) -> None:
    items = PersistStore(store, ttl={"default_ttl": 10, "refresh_on_read": True})
    call(items.put, ("docs",), "read", {"n": 1})
    call(items.put, ("docs",), "searched", {"n": 2})
    call(items.put, ("docs",), "looked at", {"n": 3})
    call(items.put, ("docs",), "for ever", {"n": 4}, ttl=None)
    clock.advance(seconds=9 * 60)
    call(items.get, ("docs",), "read")
    call(items.search, ("docs",), filter={"n": 2})
    call(items.get, ("docs",), "looked at", refresh_ttl=False)
    clock.advance(seconds=2 * 60)
    assert {found.key for found in call(items.search, (), refresh_ttl=False)} == {"read", "searched", "for ever"}
    assert call(items.get, ("docs",), "looked at") is None
    clock.advance(seconds=60 * 60)
    assert call(items.sweep_ttl) == 3
    assert call(items.sweep_ttl) == 0


def test_what_expired_is_made_anew(call: Call, items: PersistStore, clock: FrozenClock) -> None:
    call(items.put, ("docs",), "k", {"n": 1}, ttl=1)
    clock.advance(seconds=120)
    call(items.put, ("docs",), "k", {"n": 2})
    found = call(items.get, ("docs",), "k")
    assert found.created_at == found.updated_at
    clock.advance(seconds=120)
    assert call(items.get, ("docs",), "k").value == {"n": 2}
    assert call(items.list_namespaces) == [("docs",)]


def embed(texts: list[str]) -> list[list[float]]:
    return [[float(text.count(letter)) + 0.1 for letter in "abcd"] for text in texts]


async def aembed(texts: list[str]) -> list[list[float]]:
    return embed(texts)


@pytest.mark.parametrize("fields", [None, ["text"], ["text", "more[*]"]], ids=["whole", "one", "many"])
def test_a_search_by_meaning_ranks_as_the_in_memory_store(call: Call, store: Any, face: str, fields: Any) -> None:
    index: Any = {"dims": 4, "embed": embed if face == "sync" else aembed, "fields": fields}
    ours, reference = PersistStore(store, index=index), InMemoryStore(index=cast(IndexConfig, {**index, "embed": embed}))
    for number, text in enumerate(["aaa", "abab", "bbb", "ccc", "dddd", "abcd"]):
        value = {"text": text, "more": [f"{text[0]}.", "d" * number + "-"], "n": number}
        call(ours.put, ("docs",), f"{number}", value)
        reference.put(("docs",), f"{number}", value)
    call(ours.put, ("docs",), "unindexed", {"text": "aaa", "n": 2}, index=False)
    reference.put(("docs",), "unindexed", {"text": "aaa", "n": 2}, index=False)
    call(ours.put, ("docs",), "1", {"text": "dab", "n": 1}, index=["text"])
    for filter, limit, offset in ((None, 3, 0), (None, 3, 2), ({"n": {"$gte": 2}}, 10, 0)):
        found = call(ours.search, ("docs",), query="aab", filter=filter, limit=limit, offset=offset)
        if fields == ["text"] or offset == 0:
            reference._vectors[("docs",)].pop("1", None)
            reference.put(("docs",), "1", {"text": "dab", "n": 1}, index=["text"])
            expected = reference.search(("docs",), query="aab", filter=filter, limit=limit, offset=offset)
            assert [one.key for one in found] == [one.key for one in expected]
            assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-6)


def test_a_vector_of_another_size_is_refused_and_nothing_written(call: Call, store: Any) -> None:
    async def one(texts: list[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]

    index: Any = {"dims": 2, "embed": one if isinstance(store, AsyncStore) else lambda texts: [[1.0] for _ in texts]}
    items = PersistStore(store, index=index)
    with pytest.raises(InvalidValue):
        call(items.put, ("docs",), "k", {"n": 1})
    assert call(items.list_namespaces) == []
