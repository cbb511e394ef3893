"""Checks of what LangGraph compiles a graph with: `CHECKS` of a checkpointer, `STORE_CHECKS` of a store.

LangGraph publishes a kit for checkpointers, `langgraph-checkpoint-conformance`: these checks are what it does not ask for.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp

from persist.testing.conformance.running import NotConformant, beyond, cancel_after, checks_in, expect, expect_error, new_id

__all__ = ["CHECKS", "STORE_CHECKS"]

Make = Callable[[], Any]
Check = Callable[[Make], Awaitable[None]]

_LONG = "what somebody said, at some length " * 20


def _at(thread: str, id: str | None = None, namespace: str = "") -> Any:
    named = {"thread_id": thread, "checkpoint_ns": namespace} | ({} if id is None else {"checkpoint_id": id})
    return {"configurable": named}


async def _put(saver: Any, thread: str, id: str, values: dict[str, Any], parent: str | None = None, namespace: str = "") -> None:
    versions = dict.fromkeys(values, id)
    checkpoint = {
        "v": 4,
        "id": id,
        "ts": "2026-01-02T03:04:05+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {},
        "updated_channels": sorted(values),
    }
    metadata = {"source": "loop", "step": 1, "parents": {}}
    await saver.aput(_at(thread, parent, namespace), checkpoint, metadata, versions)


async def _values(saver: Any, thread: str, id: str | None = None, namespace: str = "") -> Any:
    found = await saver.aget_tuple(_at(thread, id, namespace))
    return found and found.checkpoint["channel_values"]


async def _listed(saver: Any, thread: str) -> dict[str, Any]:
    return {one.checkpoint["id"]: one.checkpoint["channel_values"] async for one in saver.alist(_at(thread))}


async def values_come_back_equal(make: Make) -> None:
    """Values come back equal: every character that UTF-8 has, bytes, sets, integers of 64 bits, a megabyte."""
    text = 'line\u2028separator, tab\t, quote", back\\slash, \u0085, \xe9, e\u0301, \U0001f600, \ufeff, \x00, %s'
    values: dict[str, Any] = {
        "text": text,
        "bytes": bytes(range(256)),
        "nested": {"z": [None, True, -0.5, 2**63 - 1], "a": {1, 2}},
    }
    values |= {"long": "é" * 500_000, "empty": [], "nothing": None}
    thread = new_id()
    await _put(make(), thread, "1", values)
    found = await _values(make(), thread)
    if found != values:
        raise NotConformant("Values come back as they were put.", values, found)


async def a_list_is_what_it_was_at_every_checkpoint(make: Make) -> None:
    """A list that grows, shrinks, or changes in the middle is at every checkpoint what it was when that was put."""
    said = [f"{number} {_LONG}" for number in range(8)]
    thread = new_id()
    lists = [said[:3], said[:5], said, said[2:], [said[0], *said[4:]], said[::-1], [*said, *said], said[:3], []]
    for number, value in enumerate(lists):
        await _put(make(), thread, f"{number}", {"said": value}, f"{number - 1}" if number else None)
    expected = {f"{number}": {"said": value} for number, value in enumerate(lists)}
    expect(sorted(expected.items()), sorted((await _listed(make(), thread)).items()), "A list is what it was when it was put.")


async def forks_do_not_mix(make: Make) -> None:
    """Checkpoints that fork from the same parent have separate values."""
    thread, trunk = new_id(), [f"{number} {_LONG}" for number in range(4)]
    await _put(make(), thread, "1", {"said": trunk})
    for id in "234":
        await _put(make(), thread, id, {"said": [*trunk, id * 400]}, "1")
    expected = {"1": {"said": trunk}} | {id: {"said": [*trunk, id * 400]} for id in "234"}
    expect(sorted(expected.items()), sorted((await _listed(make(), thread)).items()), "Forks have values of their own.")


async def what_is_changed_in_place_is_not_stored(make: Make) -> None:
    """Changing what was put, or what was returned, in place changes no checkpoint."""
    saver, thread, said = make(), new_id(), [{"content": _LONG} for _ in range(4)]
    await _put(saver, thread, "1", {"said": said})
    said[1]["content"] = "changed"
    said.append({"content": "added"})
    expected = {"said": [{"content": _LONG}] * 4}
    expect(expected, await _values(saver, thread), "A checkpoint does not change with what was put.")
    (await _values(saver, thread))["said"][0]["content"] = "changed"
    expect(expected, await _values(saver, thread), "A checkpoint does not change with what was returned.")
    await _put(saver, thread, "2", {"said": said}, "1")
    expect({"said": said}, await _values(saver, thread), "What was changed in place is in the next checkpoint.")
    expect(expected, await _values(saver, thread, "1"), "What was changed in place is not in the checkpoint before.")


async def similar_threads_are_different(make: Make) -> None:
    """Threads and namespaces whose names differ in case, spaces or accents, or are patterns of SQL, are apart."""
    base = new_id("Name a")
    names = [base, base.upper(), base + " ", base + "%", base[:-1] + "_", base + "'", base.replace("a", "á")]
    places = [(name, "") for name in names] + [(base, name) for name in names] + [(base, "a|b"), (base, "a")]
    for number, (thread, namespace) in enumerate(places):
        await _put(make(), thread, "1", {"n": number}, namespace=namespace)
    for number, (thread, namespace) in enumerate(places):
        expect({"n": number}, await _values(make(), thread, namespace=namespace), f"{(thread, namespace)} has values of its own.")


async def writes_come_in_the_order_of_tasks(make: Make) -> None:
    """Pending writes come by task path, then by index, in whatever order they were put."""
    thread = new_id()
    await _put(make(), thread, "1", {})
    for task, path, values in (("z", "~1", ["z1", "z2"]), ("a", "~2", ["a1"]), ("b", "", ["b1"])):
        await make().aput_writes(_at(thread, "1"), [("c", value) for value in values], task, path)
    found = await make().aget_tuple(_at(thread))
    expect(["b1", "z1", "z2", "a1"], [value for _, _, value in found.pending_writes], "Writes come in the order of their tasks.")


async def an_ordinary_write_stays(make: Make) -> None:
    """A write that is repeated stays as it was; an error or an interrupt takes the place of the one before."""
    thread = new_id()
    await _put(make(), thread, "1", {})
    for value in ("first", "second"):
        await make().aput_writes(_at(thread, "1"), [("c", value), (ERROR, value), (INTERRUPT, value)], "task")
    found = {channel: value for _, channel, value in (await make().aget_tuple(_at(thread))).pending_writes}
    expected = {"c": "first", ERROR: "second", INTERRUPT: "second"}
    expect(sorted(expected.items()), sorted(found.items()), "An ordinary write stays, a special one is replaced.")


async def writes_may_come_first(make: Make) -> None:
    """Writes that are stored before their checkpoint are there when it comes, and are no checkpoint themselves."""
    thread = new_id()
    await make().aput_writes(_at(thread, "1"), [("c", 1)], "task")
    expect(None, await make().aget_tuple(_at(thread)), "Writes are no checkpoint.")
    await _put(make(), thread, "1", {})
    found = await make().aget_tuple(_at(thread))
    expect([("task", "c", 1)], list(found.pending_writes), "Writes that came first are there when their checkpoint comes.")


async def a_listing_holds_nothing(make: Make) -> None:
    """While a listing is paused others may write, and the listing goes on."""
    thread = new_id()
    for number in range(4):
        await _put(make(), thread, f"{number}", {"n": number})
    listing = make().alist(_at(thread))
    first = await anext(listing)
    await asyncio.wait_for(_put(make(), thread, "9", {"n": 9}), 30)
    await asyncio.wait_for(make().aput_writes(_at(thread, "0"), [("c", 1)], "task"), 30)
    rest = [one.checkpoint["id"] async for one in listing]
    expect(["3", "2", "1", "0"], [first.checkpoint["id"], *rest], "A listing goes on after a write.")


async def what_comes_at_once_is_kept(make: Make) -> None:
    """Checkpoints and writes that many tasks put at once into one thread are all kept."""
    thread = new_id()
    await _put(make(), thread, "00", {"said": [_LONG]})
    puts = [_put(make(), thread, f"{number:02}", {"said": [_LONG, f"{number}"]}, "00") for number in range(1, 9)]
    writes = [make().aput_writes(_at(thread, "00"), [("c", number)], f"task-{number}") for number in range(8)]
    await asyncio.gather(*puts, *writes)
    expected = {f"{number:02}": {"said": [_LONG, f"{number}"] if number else [_LONG]} for number in range(9)}
    expect(sorted(expected.items()), sorted((await _listed(make(), thread)).items()), "Every checkpoint is kept.")
    found = await make().aget_tuple(_at(thread, "00"))
    expect(list(range(8)), sorted(value for _, _, value in found.pending_writes), "Every write is kept.")


async def a_cancelled_put_is_whole_or_absent(make: Make) -> None:
    """After a cancelled put the checkpoint is there wholly or not at all, and the thread goes on."""
    for turns in range(12):
        thread, values = new_id(), {"said": [_LONG, "a"], "n": turns}
        await cancel_after(turns, _put(make(), thread, "1", values))
        found = await _values(make(), thread)
        if found is not None:
            expect(values, found, "A cancelled put is done wholly or not at all.")
        await _put(make(), thread, "1", values)
        expect(values, await _values(make(), thread), "A cancelled put can be repeated.")


CHECKS: tuple[Check, ...] = checks_in(globals())
"""The checks of a checkpointer, in the order in which a failure tells the most."""


# Checks of a store (`BaseStore`). `make()` returns a store; all of them are over one storage.


async def _value(store: Any, namespace: Any, key: str) -> Any:
    found = await store.aget(namespace, key)
    return found and found.value


async def _keys(store: Any, namespace: Any, **options: Any) -> list[str]:
    return sorted(found.key for found in await store.asearch(namespace, **options))


async def an_item_is_there_until_it_is_deleted(make: Make) -> None:
    """An item is there until it is deleted; what nobody put is None, and deleting it does nothing."""
    here = (new_id(),)
    expect(None, await _value(make(), here, "k"), "There is no item that nobody put.")
    await make().adelete(here, "k")
    await make().aput(here, "k", {"n": 1})
    found = await make().aget(here, "k")
    expect((here, "k", {"n": 1}), (found.namespace, found.key, found.value), "An item comes back with its place.")
    await make().adelete(here, "k")
    expect((None, []), (await _value(make(), here, "k"), await _keys(make(), here)), "A deleted item is gone.")


async def a_put_takes_the_place_of_the_last(make: Make) -> None:
    """A put takes the place of the value whole."""
    here = (new_id(),)
    await make().aput(here, "k", {"a": 1, "b": 2})
    await make().aput(here, "k", {"a": 3})
    expect({"a": 3}, await _value(make(), here, "k"), "A put takes the place of the whole value.")


@beyond
async def an_item_keeps_when_it_was_made(make: Make) -> None:
    """When an item was made stays when it changes, and when it changed last does not go back."""
    here = (new_id(),)
    await make().aput(here, "k", {"n": 1})
    first = await make().aget(here, "k")
    await make().aput(here, "k", {"n": 2})
    found = await make().aget(here, "k")
    expect(first.created_at, found.created_at, "When an item was made stays.")
    expect(True, found.updated_at >= first.updated_at >= first.created_at, "When an item changed does not go back.")


async def values_come_back_exactly(make: Make) -> None:
    """JSON comes back equal: every character that UTF-8 has, nesting, numbers, the order of keys, a megabyte."""
    text = 'line\u2028separator, tab\t, quote", back\\slash, \u0085, \xe9, e\u0301, \U0001f600, \ufeff, \x7f, %s'
    value = {"z": {"z": None, "a": [1, True, -0.5, 2**53 + 1, {}]}, "a": text, "": [], "long": "é" * 500_000}
    here = (new_id(),)
    await make().aput(here, "k", value)
    expect(value, await _value(make(), here, "k"), "A value comes back as it was put.")


async def similar_places_are_different(make: Make) -> None:
    """Namespaces and keys that differ in case, in spaces or in accents, or that are patterns of SQL, are apart."""
    base = new_id("Name a")
    names = [base, base.upper(), base + " ", base + "%", base[:-1] + "_", base + "'", base.replace("a", "á")]
    places = [((name,), "k") for name in names] + [((base,), name) for name in names] + [((base, name), "k") for name in names]
    for number, (namespace, key) in enumerate(places):
        await make().aput(namespace, key, {"n": number})
    for number, (namespace, key) in enumerate(places):
        expect({"n": number}, await _value(make(), namespace, key), f"{namespace, key} has an item of its own.")


async def a_prefix_is_made_of_whole_labels(make: Make) -> None:
    """A search finds what is below a namespace, and not what is in one whose name begins alike."""
    base = new_id()
    for namespace in ((base,), (base, "a"), (base, "a", "b"), (base, "ab"), (base + "a",), ("x", base)):
        await make().aput(namespace, "/".join(namespace[1:]) or namespace[0], {})
    expect(sorted([base, "a", "a/b", "ab"]), await _keys(make(), (base,)), "What is below a namespace is found.")
    expect(["a", "a/b"], await _keys(make(), (base, "a")), "A label is whole.")


async def items_are_filtered(make: Make) -> None:
    """A filter compares fields of the value: by equality, by order, all of them together."""
    here = (new_id(),)
    for key, number, word in (("1", 1, "a"), ("2", 2, "b"), ("3", 3, "a"), ("4", 0, "c")):
        await make().aput(here, key, {"n": number, "s": word})
    for filter, expected in (
        ({"s": "a"}, ["1", "3"]),
        ({"s": "a", "n": 3}, ["3"]),
        ({"n": {"$gt": 1}}, ["2", "3"]),
        ({"n": {"$gte": 1, "$lt": 3}}, ["1", "2"]),
        ({"n": {"$lte": 2}, "s": {"$eq": "a"}}, ["1"]),
        ({"s": {"$ne": "a"}}, ["2", "4"]),
        ({"s": "nobody"}, []),
    ):
        expect(expected, await _keys(make(), here, filter=filter), f"Items are filtered by {filter}.")


async def pages_have_each_item_once(make: Make) -> None:
    """The pages of a search, by limit and offset, have each item once."""
    here = (new_id(),)
    for number in range(7):
        await make().aput(here, f"{number}", {"n": number})
    found = [found.key for offset in (0, 3, 6, 9) for found in await make().asearch(here, limit=3, offset=offset)]
    expect((list("0123456"), 7), (sorted(found), len(found)), "Pages have each item once.")
    expect(4, len(await make().asearch(here, limit=4)), "A limit is kept.")


async def namespaces_are_listed(make: Make) -> None:
    """Namespaces that hold items are listed once, by prefix, suffix, depth and page."""
    base = new_id()
    for namespace in ((base, "a", "x"), (base, "a", "y"), (base, "b", "x"), (base, "c"), (base + "a", "x")):
        for key in "12":
            await make().aput(namespace, key, {})
    listed = make().alist_namespaces
    expected = [(base, "a", "x"), (base, "a", "y"), (base, "b", "x"), (base, "c")]
    expect(expected, sorted(await listed(prefix=(base,))), "The namespaces below a prefix are listed once.")
    expect([expected[0], expected[2]], sorted(await listed(prefix=(base,), suffix=("x",))), "Namespaces are listed by their end.")
    expect([(base, "a"), (base, "b"), (base, "c")], sorted(await listed(prefix=(base,), max_depth=2)), "Namespaces are cut.")
    expect([expected[0], expected[1]], sorted(await listed(prefix=(base, "*", "*"), suffix=("a", "*"))), "A star is any label.")
    pages = [found for offset in (0, 2, 4) for found in await listed(prefix=(base,), limit=2, offset=offset)]
    expect(expected, sorted(pages), "Pages have each namespace once.")


async def a_batch_answers_in_its_order(make: Make) -> None:
    """The results of a batch stand in the order of its operations, and the last put of a key counts."""
    here = (new_id(),)
    await make().aput(here, "a", {"n": 1})
    ops = [
        PutOp(here, "b", {"n": 2}),
        GetOp(here, "a"),
        PutOp(here, "b", {"n": 3}),
        SearchOp(here, {"n": 1}),
        GetOp(here, "none"),
    ]
    put, got, again, found, none = await make().abatch(ops)
    results = (put, got.value, again, [one.key for one in found], none)
    expect((None, {"n": 1}, None, ["a"], None), results, "Results stand in the order of the operations.")
    expect({"n": 3}, await _value(make(), here, "b"), "The last put of a key counts.")


async def a_namespace_that_is_none_is_refused(make: Make) -> None:
    """An empty namespace, an empty label and one with a period are refused with an InvalidNamespaceError."""
    for namespace in ((), ("",), ("a.b",), (new_id(), "")):
        await expect_error(InvalidNamespaceError, make().aput(namespace, "k", {"n": 1}), f"{namespace} is no namespace.")


@beyond
async def what_is_returned_is_a_copy(make: Make) -> None:
    """Changing a value that was given or returned changes no item."""
    store, here, given = make(), (new_id(),), {"said": ["a"]}
    await store.aput(here, "k", given)
    given["said"].append("changed")
    expect({"said": ["a"]}, await _value(store, here, "k"), "An item does not change with the value that was given.")
    (await _value(store, here, "k"))["said"].append("changed")
    (await store.asearch(here))[0].value["said"].append("changed")
    expect({"said": ["a"]}, await _value(store, here, "k"), "An item does not change with a value that was returned.")


async def items_put_at_once_are_kept(make: Make) -> None:
    """Items that many tasks put at once are all kept, and of one key one value is, whole."""
    here = (new_id(),)
    puts = [make().aput(here, f"{number}", {"n": number}) for number in range(16)]
    await asyncio.gather(*puts, *(make().aput(here, "same", {"a": number, "b": number}) for number in range(8)))
    expect(17, len(await make().asearch(here, limit=50)), "Every item is kept.")
    same = await _value(make(), here, "same")
    expect(same["a"], same["b"], "An item is one of those that were put.")


async def a_cancelled_put_of_an_item_is_whole_or_absent(make: Make) -> None:
    """After a cancelled put the item is there or not, and the store goes on."""
    for turns in range(12):
        here = (new_id(),)
        await cancel_after(turns, make().aput(here, "k", {"a": 1, "b": 2}))
        found = await _value(make(), here, "k")
        if found not in (None, {"a": 1, "b": 2}):
            raise NotConformant("A cancelled put is done wholly or not at all.", {"a": 1, "b": 2}, found)
        await make().aput(here, "k", {"a": 3})
        expect({"a": 3}, await _value(make(), here, "k"), "A store goes on after a cancelled call.")


STORE_CHECKS: tuple[Check, ...] = checks_in(globals(), *CHECKS)
"""The checks of a store, in the order in which a failure tells the most."""
