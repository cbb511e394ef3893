"""Thousands of calls of a PersistStore at once: those of one turn of the event loop share transactions, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from persist import AsyncStore, Store
from persist.errors import InvalidValue, TransactionOpen
from persist.integrations.langgraph import PersistSaver, PersistStore, StrictSerializer
from persist.testing import FrozenClock
from tests.integrations.langgraph.scenes import Reversed, checkpoint, config, messages, metadata

Run = Callable[[Callable[[Any], Awaitable[None]]], None]


@pytest.fixture
def run(database_url: str, face: str, clock: FrozenClock) -> Run:
    """Awaits a function of a store, which each face opens on the function's own loop."""

    async def on_loop(body: Callable[[Any], Awaitable[None]]) -> None:
        if face == "sync":
            with Store.open(database_url, clock=clock) as store:
                await body(store)
        else:
            async with AsyncStore.open(database_url, clock=clock) as other:
                await body(other)

    return lambda body: asyncio.run(on_loop(body))


def counted(items: PersistStore) -> list[bool]:
    """Whether they write, of the transactions that a store will run."""
    begun, bridge = [], items._bridge
    inner = bridge.run_async

    async def run_async(function: Any, *, writes: bool) -> Any:
        begun.append(writes)
        return await inner(function, writes=writes)

    bridge.run_async = run_async  # type: ignore[method-assign]  # counts
    return begun


def test_a_thousand_at_once_are_a_few_transactions(run: Run) -> None:
    async def body(store: Any) -> None:
        items = PersistStore(store)
        begun = counted(items)
        await asyncio.gather(*(items.aput(("docs",), f"{n}", {"n": n}) for n in range(1000)))
        found = await asyncio.gather(*(items.aget(("docs",), f"{n}") for n in range(1000)))
        assert [item is not None and item.value["n"] for item in found] == list(range(1000))
        assert begun == [True] * 5 + [False] * 5

    run(body)


def test_a_call_alone_waits_for_nobody(run: Run) -> None:
    async def body(store: Any) -> None:
        items = PersistStore(store)
        begun = counted(items)
        await items.aput(("docs",), "k", {"n": 1})
        assert (await items.aget(("docs",), "k")).value == {"n": 1}  # type: ignore[union-attr]  # it is there
        assert begun == [True, False]

    run(body)


def test_puts_of_one_key_happen_in_the_order_of_the_calls_each_later_than_the_last(run: Run, clock: FrozenClock) -> None:
    async def body(store: Any) -> None:
        items = PersistStore(store)
        await asyncio.gather(*(items.aput(("docs",), "k", {"n": n}) for n in range(450)))
        found = await items.aget(("docs",), "k")
        assert found is not None
        assert found.value == {"n": 449}
        assert found.created_at == clock()
        assert (found.updated_at - found.created_at).total_seconds() == pytest.approx(0.449)

    run(body)


def test_what_one_call_does_wrong_is_nobody_else_s_error(run: Run) -> None:
    async def body(store: Any) -> None:
        items = PersistStore(store)
        values = [{"n": float("nan")} if n % 10 == 3 else {"n": n} for n in range(50)]
        done = await asyncio.gather(
            *(items.aput(("docs",), f"{n:02}", value) for n, value in enumerate(values)), return_exceptions=True
        )
        assert [isinstance(result, InvalidValue) for result in done] == [n % 10 == 3 for n in range(50)]
        found = await items.asearch(("docs",), limit=100)
        assert sorted(item.value["n"] for item in found) == [n for n in range(50) if n % 10 != 3]

    run(body)


def test_a_cancelled_call_leaves_the_others_alone(run: Run) -> None:
    async def body(store: Any) -> None:
        items = PersistStore(store)
        for round in range(12):
            calls = [asyncio.ensure_future(items.aput((f"r{round}",), f"{n}", {"n": n})) for n in range(300)]
            for _ in range(round % 4):
                await asyncio.sleep(0)
            await asyncio.sleep(0.001 * (round % 5))
            for call in calls[::3]:
                call.cancel()
                call.cancel()
            results = await asyncio.gather(*calls, return_exceptions=True)
            found = {item.key for item in await items.asearch((f"r{round}",), limit=1000)}
            for number, result in enumerate(results):
                assert (number % 3 == 0) if isinstance(result, asyncio.CancelledError) else (f"{number}" in found)
            await asyncio.sleep(0)
            assert {item.key for item in await items.asearch((f"r{round}",), limit=1000)} == found

    run(body)


def test_who_is_cancelled_while_others_run_is_never_run(run: Run) -> None:
    async def body(store: Any) -> None:
        items, gate = PersistStore(store), asyncio.Event()
        inner = items._bridge.run_async

        async def run_async(function: Any, *, writes: bool) -> Any:
            await gate.wait()
            return await inner(function, writes=writes)

        items._bridge.run_async = run_async  # type: ignore[method-assign]  # it waits for the gate
        calls = [asyncio.ensure_future(items.aput(("docs",), f"{n}", {"n": n})) for n in range(300)]
        for _ in range(5):
            await asyncio.sleep(0)
        for call in calls[200::2]:
            call.cancel()
        await asyncio.sleep(0)
        assert all(call.cancelled() for call in calls[200::2])
        gate.set()
        await asyncio.gather(*calls, return_exceptions=True)
        found = {item.value["n"] for item in await items.asearch(("docs",), limit=1000)}
        assert found == set(range(300)) - set(range(200, 300, 2))

    run(body)


def test_a_loop_that_ends_in_the_middle_ends(database_url: str, face: str) -> None:
    async def leave(store: Any) -> None:
        items = PersistStore(store)
        waiting = [asyncio.ensure_future(items.aput(("docs",), f"{n}", {"n": n})) for n in range(1000)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not all(one.done() for one in waiting)

    with Store.open(database_url) as store:
        asyncio.run(leave(store))
        assert PersistStore(store).batch([]) == []


def test_inside_of_one_s_own_transaction_a_put_is_refused_at_once(run: Run) -> None:
    async def body(store: Any) -> None:
        items = PersistStore(store)
        if isinstance(store, Store):
            with store.begin(), pytest.raises(TransactionOpen):
                await items.aput(("docs",), "k", {})
        else:
            async with store.begin():
                with pytest.raises(TransactionOpen):
                    await items.aput(("docs",), "k", {})
        await items.aput(("docs",), "k", {"n": 1})
        assert await items.aget(("docs",), "k") is not None

    run(body)


# The options of LangGraph's own stores: PersistStore does what one asks for, or refuses it with a sentence.


Call = Callable[..., Any]


def embed(texts: list[str]) -> list[list[float]]:
    """The vector that each text spells."""
    return [[float(number) for number in text.split()] for text in texts]


async def aembed(texts: list[str]) -> list[list[float]]:
    return embed(texts)


def index(face: str, **options: Any) -> Any:
    return {"dims": 2, "embed": embed if face == "sync" else aembed, "fields": ["at"], **options}


@pytest.mark.parametrize(
    ("distance_type", "expected"),
    [
        (None, [("far", 1.0), ("near", pytest.approx(0.9701425)), ("behind", -1.0)]),
        ("cosine", [("far", 1.0), ("near", pytest.approx(0.9701425)), ("behind", -1.0)]),
        ("inner_product", [("far", 10.0), ("near", 4.0), ("behind", -1.0)]),
        ("l2", [("near", -1.0), ("behind", -5.0), ("far", -6.0)]),
    ],
)
def test_the_nearest_by_the_named_distance_come_first(
    call: Call, store: Any, face: str, distance_type: str | None, expected: Any
) -> None:
    options = {} if distance_type is None else {"distance_type": distance_type}
    items = PersistStore(store, index=index(face, **options))
    for key, at in (("far", "10 0"), ("near", "4 1"), ("behind", "-1 0")):
        call(items.put, ("docs",), key, {"at": at})
    scale = {"inner_product": "1 0", "l2": "4 0"}.get(distance_type or "", "1 0")
    assert [(one.key, one.score) for one in call(items.search, ("docs",), query=scale)] == expected


@pytest.mark.parametrize(
    "named",
    [{"fields": "at"}, {"fields": None, "text_fields": ["at"]}, {"fields": [], "text_fields": "at"}, {"text_fields": ["at"]}],
    ids=str,
)
def test_fields_have_the_names_of_every_store_of_the_framework(call: Call, store: Any, face: str, named: Any) -> None:
    items = PersistStore(store, index=index(face, ann_index_config={"kind": "flat", "vector_type": "vector"}, **named))
    call(items.put, ("docs",), "k", {"at": "1 0", "text": "not numbers"})
    assert [one.score for one in call(items.search, ("docs",), query="1 0")] == [1.0]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"distance_type": "hamming"}, "distance_type"),
    ({"distance_type": []}, "distance_type"),
    ({"ann_index_config": {"kind": "hnsw", "vector_type": "vector"}}, "hnsw"),
    ({"ann_index_config": {"kind": "ivfflat"}}, "ivfflat"),
    ({"ann_index_config": {"vector_type": "halfvec"}}, "halfvec"),
    ({"ann_index_config": {"kind": "flat", "m": 16}}, "m"),
    ({"ann_index_config": "hnsw"}, "dict"),
    ({"fields": ["at"], "text_fields": ["text"]}, "text_fields"),
    ({"fields": [1]}, "fields"),
    ({"fields": 5}, "fields"),
    ({"dims": 0}, "dims"),
    ({"dims": "2"}, "dims"),
    ({"feilds": ["at"]}, "feilds"),
]


@pytest.mark.parametrize(("options", "word"), REFUSED, ids=[str(options) for options, _ in REFUSED])
def test_an_index_that_asks_for_more_is_refused(store: Any, face: str, options: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidValue, match=word):
        PersistStore(store, index=index(face, **options))


TTLS: list[tuple[Any, str]] = [
    ({"default_tll": 5}, "default_tll"),
    ({"default_ttl": "5"}, "default_ttl"),
    ({"default_ttl": 0}, "default_ttl"),
    ({"default_ttl": True}, "default_ttl"),
    ({"default_ttl": float("nan")}, "default_ttl"),
    ({"omit_expired": False}, "omit_expired"),
    ({"sweep_interval_minutes": 5}, "sweep_ttl"),
    ([("default_ttl", 5)], "dict"),
]


@pytest.mark.parametrize(("ttl", "word"), TTLS, ids=[str(ttl) for ttl, _ in TTLS])
def test_an_expiry_that_asks_for_more_is_refused(store: Any, ttl: Any, word: str) -> None:
    with pytest.raises(InvalidValue, match=word):
        PersistStore(store, ttl=ttl)


def test_the_options_that_are_done_are_taken(store: Any) -> None:
    ttl: Any = {"refresh_on_read": False, "omit_expired": True, "default_ttl": 0.5, "sweep_interval_minutes": None}
    assert PersistStore(store, ttl=ttl).ttl_config == ttl


# What a checkpoint carries is read back, whatever `new_versions` names.


EVERYTHING = {"my_key": "meow", "node": {"a": [1]}, "none": None, "said": [HumanMessage("hi", id="1"), *messages(6)]}


def put(call: Call, saver: PersistSaver, id: str, values: Any, versions: Any, new: Any, parent: str | None = None) -> Any:
    return call(saver.put, config(id=parent), checkpoint(id, values, versions), metadata(), new)


def values_of(call: Call, saver: PersistSaver) -> dict[str, Any]:
    found = call(saver.list, config())
    for one in found:
        assert call(saver.get_tuple, config(id=one.checkpoint["id"])).checkpoint == one.checkpoint
    return {one.checkpoint["id"]: one.checkpoint["channel_values"] for one in found}


@pytest.mark.parametrize("versions", [dict.fromkeys(EVERYTHING, 3), {"my_key": 3, "other": 2}, {}], ids=["all", "some", "none"])
@pytest.mark.parametrize("new", [{}, {"my_key": 3}, {"my_key": 9}, {"absent": 1}], ids=repr)
def test_what_it_carries_comes_back_with_its_own_versions(call: Call, saver: PersistSaver, versions: Any, new: Any) -> None:
    put(call, saver, "1", EVERYTHING, versions, new)
    found = call(saver.get_tuple, config())
    assert found.checkpoint["channel_values"] == EVERYTHING
    assert found.checkpoint["channel_versions"] == versions


@pytest.mark.parametrize("another", [False, True], ids=["same saver", "another saver"])
@pytest.mark.parametrize("versions", [{"x": 1, "said": 1}, {}], ids=["versions", "no versions"])
def test_a_version_that_holds_another_value_keeps_it(
    call: Call, store: Any, saver: PersistSaver, versions: Any, another: bool
) -> None:
    given: dict[str, Any] = {"1": {"x": "first", "said": messages(5)}, "2": {"x": "second", "said": messages(6)}}
    given |= {"3": {"x": [1], "said": "no list"}, "4": given["1"], "5": {"x": "fifth"}}
    for id, values in given.items():
        put(call, PersistSaver(store) if another else saver, id, values, versions, {}, parent=f"{int(id) - 1}")
    # a channel that a checkpoint does not carry has the value of its version, as always
    assert values_of(call, saver) == given | {"5": given["5"] | ({"said": given["1"]["said"]} if versions else {})}
    put(call, saver, "6", {"x": 6}, {**versions, "x": 2}, {"x": 2}, parent="4")
    call(saver.copy_thread, "t", "u")
    call(saver.prune, ["t"])
    assert values_of(call, saver)["6"]["x"] == 6
    assert len(call(saver.list, config("u"))) == 6


def test_what_a_copy_and_pruning_leave_is_read_back(call: Call, saver: PersistSaver) -> None:
    put(call, saver, "1", EVERYTHING, dict.fromkeys(EVERYTHING, 1), {})
    changed = EVERYTHING | {"my_key": "purr", "said": messages(7)}
    put(call, saver, "2", changed, dict.fromkeys(EVERYTHING, 1), {}, parent="1")
    call(saver.copy_thread, "t", "u")
    call(saver.prune, ["t"])
    assert values_of(call, saver) == {"2": changed}
    assert call(saver.get_tuple, config("u")).checkpoint["channel_values"] == changed
    assert call(saver.get_tuple, config("u", id="1")).checkpoint["channel_values"] == EVERYTHING


def test_a_value_that_is_not_new_is_put_again_where_its_thread_was_deleted(call: Call, saver: PersistSaver) -> None:
    for _ in range(2):
        put(call, saver, "1", {"x": "old", "y": 1}, {"x": 1, "y": 1}, {"x": 1, "y": 1})
        put(call, saver, "2", {"x": "old", "y": 2}, {"x": 1, "y": 2}, {"y": 2}, parent="1")
        assert values_of(call, saver)["2"] == {"x": "old", "y": 2}
        call(saver.delete_thread, "t")
        put(call, saver, "3", {"x": "old", "y": 3}, {"x": 1, "y": 3}, {"y": 3}, parent="2")
        assert values_of(call, saver) == {"3": {"x": "old", "y": 3}}
        call(saver.delete_thread, "t")


def test_the_history_of_a_channel_starts_from_what_was_carried(call: Call, saver: PersistSaver) -> None:
    put(call, saver, "1", {"said": ["a"]}, {}, {})
    call(saver.put_writes, config(id="1"), [("said", "b")], "task")
    put(call, saver, "2", {}, {"said": 2}, {}, parent="1")
    found = call(saver.get_delta_channel_history, config=config(id="2"), channels=["said"])["said"]
    assert found == {"seed": ["a"], "writes": [("task", "said", "b")]}


def test_what_is_encrypted_is_read_back_too(call: Call, store: Any) -> None:
    saver = PersistSaver(store, serde=EncryptedSerializer(Reversed(), StrictSerializer()))
    put(call, saver, "1", EVERYTHING, {"my_key": 1}, {})
    put(call, saver, "2", EVERYTHING | {"my_key": 2}, {"my_key": 1}, {}, parent="1")
    assert values_of(call, saver) == {"1": EVERYTHING, "2": EVERYTHING | {"my_key": 2}}


CHANNELS = st.sampled_from(["x", "y", "z"])
VALUES: st.SearchStrategy[Any] = st.one_of(st.integers(0, 2), st.just(messages(4)), st.just(messages(5)), st.just([]), st.none())
VERSIONS = st.dictionaries(CHANNELS, st.integers(1, 2), max_size=3)
PUTS = st.lists(st.tuples(st.dictionaries(CHANNELS, VALUES, max_size=3), VERSIONS, st.booleans()), min_size=1, max_size=6)


@settings(max_examples=100)
@given(puts=PUTS)
def test_random_checkpoints_are_read_back(puts: list[tuple[dict[str, Any], dict[str, int], bool]]) -> None:
    """By a saver that names nothing, one by one by new savers or all by one."""
    with Store.open("sqlite:///:memory:") as store:
        saver = PersistSaver(store)
        for number, (values, versions, another) in enumerate(puts):
            one = PersistSaver(store) if another else saver
            one.put(config(), checkpoint(f"{number}", values, versions), metadata(), {})
        for number, (values, versions, _) in enumerate(puts):
            found = saver.get_tuple(config(id=f"{number}"))
            assert found is not None
            assert found.checkpoint["channel_versions"] == versions
            assert found.checkpoint["channel_values"] | values == found.checkpoint["channel_values"]
            assert found.checkpoint["channel_values"].keys() - values.keys() <= versions.keys()
