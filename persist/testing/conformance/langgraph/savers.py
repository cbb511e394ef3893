"""Checks of a checkpointer of LangGraph beyond its published kit. `make()` returns a saver; all are over one storage."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT

from persist.testing.conformance.running import NotConformant, cancel_after, expect, new_id

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


CHECKS: tuple[Check, ...] = (
    values_come_back_equal,
    a_list_is_what_it_was_at_every_checkpoint,
    forks_do_not_mix,
    what_is_changed_in_place_is_not_stored,
    similar_threads_are_different,
    writes_come_in_the_order_of_tasks,
    an_ordinary_write_stays,
    writes_may_come_first,
    a_listing_holds_nothing,
    what_comes_at_once_is_kept,
    a_cancelled_put_is_whole_or_absent,
)
"""The checks of a checkpointer, in the order in which a failure tells the most."""
