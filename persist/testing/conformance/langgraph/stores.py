"""Checks of a store of LangGraph (`BaseStore`). `make()` returns a store; all of them are over one storage."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp

from persist.testing.conformance.running import NotConformant, beyond, cancel_after, expect, expect_error, new_id

Make = Callable[[], Any]
Check = Callable[[Make], Awaitable[None]]


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


async def what_comes_at_once_is_kept(make: Make) -> None:
    """Items that many tasks put at once are all kept, and of one key one value is, whole."""
    here = (new_id(),)
    puts = [make().aput(here, f"{number}", {"n": number}) for number in range(16)]
    await asyncio.gather(*puts, *(make().aput(here, "same", {"a": number, "b": number}) for number in range(8)))
    expect(17, len(await make().asearch(here, limit=50)), "Every item is kept.")
    same = await _value(make(), here, "same")
    expect(same["a"], same["b"], "An item is one of those that were put.")


async def a_cancelled_put_is_whole_or_absent(make: Make) -> None:
    """After a cancelled put the item is there or not, and the store goes on."""
    for turns in range(12):
        here = (new_id(),)
        await cancel_after(turns, make().aput(here, "k", {"a": 1, "b": 2}))
        found = await _value(make(), here, "k")
        if found not in (None, {"a": 1, "b": 2}):
            raise NotConformant("A cancelled put is done wholly or not at all.", {"a": 1, "b": 2}, found)
        await make().aput(here, "k", {"a": 3})
        expect({"a": 3}, await _value(make(), here, "k"), "A store goes on after a cancelled call.")


STORE_CHECKS: tuple[Check, ...] = (
    an_item_is_there_until_it_is_deleted,
    a_put_takes_the_place_of_the_last,
    an_item_keeps_when_it_was_made,
    values_come_back_exactly,
    similar_places_are_different,
    a_prefix_is_made_of_whole_labels,
    items_are_filtered,
    pages_have_each_item_once,
    namespaces_are_listed,
    a_batch_answers_in_its_order,
    a_namespace_that_is_none_is_refused,
    what_is_returned_is_a_copy,
    what_comes_at_once_is_kept,
    a_cancelled_put_is_whole_or_absent,
)
"""The checks of a store, in the order in which a failure tells the most."""
