"""Checks of a session of the OpenAI Agents SDK (its `Session` protocol), after what the SDK's own SQL sessions do.

`make(session_id)` returns a session over one storage: two of the same id are the same conversation.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from persist.testing.conformance.running import NotConformant, cancel_after, checks_in, expect, new_id

Make = Callable[[str], Any]
Check = Callable[[Make], Awaitable[None]]


def _said(*texts: str) -> list[Any]:
    return [{"role": "user", "content": text} for text in texts]


async def an_unused_session_is_empty(make: Make) -> None:
    """A session that nobody used gives no items, pops None, and can be cleared."""
    session = make(new_id())
    expect([], await session.get_items(), "A session that nobody used has no items.")
    expect(None, await session.pop_item(), "There is nothing to pop from a session that nobody used.")
    await session.clear_session()
    await session.add_items([])
    expect([], await session.get_items(), "Adding no items adds nothing.")


async def items_come_back_in_order(make: Make) -> None:
    """Items of several calls come back in the order in which they were added."""
    session = make(new_id())
    for texts in ("a", "bc", "d"):
        await session.add_items(_said(*texts))
    expect(_said(*"abcd"), await session.get_items(), "Items come back in the order in which they were added.")


async def a_limit_gives_the_latest(make: Make) -> None:
    """A limit gives the latest items, oldest first."""
    session = make(new_id())
    await session.add_items(_said(*"abcde"))
    for limit, texts in ((1, "e"), (3, "cde"), (5, "abcde"), (99, "abcde")):
        expect(_said(*texts), await session.get_items(limit), f"A limit of {limit} gives the latest items, oldest first.")
    expect(_said(*"de"), await session.get_items(limit=2), "The limit can be given by its name.")


async def popping_takes_the_latest(make: Make) -> None:
    """Popping removes and returns the latest item until nothing is left, and items can be added again."""
    session = make(new_id())
    await session.add_items(_said("a", "b"))
    popped = [await session.pop_item() for _ in range(3)]
    expect([*_said("b", "a"), None], popped, "Popping returns the latest item, and None once nothing is left.")
    await session.add_items(_said("c"))
    expect(_said("c"), await session.get_items(), "What was popped is gone, and what is added afterwards is there.")


async def a_cleared_session_goes_on(make: Make) -> None:
    """Clearing removes the items of this session only, and items can be added again."""
    session, other = make(new_id()), make(new_id())
    await session.add_items(_said("a", "b"))
    await other.add_items(_said("c"))
    await session.clear_session()
    expect([], await session.get_items(), "A cleared session has no items.")
    await session.add_items(_said("d"))
    expect(_said("d"), await session.get_items(), "A cleared session holds what is added afterwards.")
    expect(_said("c"), await other.get_items(), "Clearing a session leaves others alone.")


async def two_objects_are_one_conversation(make: Make) -> None:
    """Two session objects with the same id see each other's items at once."""
    name = new_id()
    one, two = make(name), make(name)
    await one.add_items(_said("a"))
    expect(_said("a"), await two.get_items(), "A session sees what another object of its id added.")
    await two.add_items(_said("b"))
    expect(_said("b"), [await one.pop_item()], "A session pops what another object of its id added.")
    expect(_said("a"), await two.get_items(), "A session sees what another object of its id popped.")


async def similar_ids_are_different_sessions(make: Make) -> None:
    """Ids that differ in case, in spaces at their end or in accents, or that are patterns of SQL, are sessions of their own."""
    base = new_id("Name a")
    names = [base, base.upper(), base + " ", base + "%", base[:-1] + "_", base + "'", base.replace("a", "á")]
    for number, name in enumerate(names):
        await make(name).add_items(_said(str(number)))
    for number, name in enumerate(names):
        expect(_said(str(number)), await make(name).get_items(), f"The session {name!r} has its own items only.")


async def items_come_back_exactly(make: Make) -> None:
    """JSON comes back as it was given: nesting, the order of keys, long integers, every character that UTF-8 has, types."""
    session = make(new_id())
    items: list[Any] = [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "", "annotations": []}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"b": 1, "a": [null, true, 1.5]}'},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "data:,x"}]},
        {"z": 1, "a": {"z": None, "a": [1, 1.0, True, False, -0.0, 1e300, 2**53 + 1, -(2**63)]}, "": ""},
        {
            "role": "user",
            "content": 'line\u2028separator, tab\t, quote", back\\slash, \u0085, \xe9, e\u0301, \U0001f600, \ufeff, \x7f, %s',
        },
    ]
    await session.add_items(items)
    expect(items, await session.get_items(), "Items come back exactly as they were added.")


async def a_large_item_comes_back(make: Make) -> None:
    """An item of a megabyte comes back."""
    session, item = make(new_id()), {"role": "user", "content": "é" * 500_000}
    await session.add_items([item])
    expect([item], await session.get_items(), "An item of a megabyte comes back.")


async def what_is_given_stays_the_callers(make: Make) -> None:
    """The session neither changes the items it is given nor shares its own: changing them afterwards changes no item."""
    session, given = make(new_id()), _said("a")
    await session.add_items(given)
    expect(_said("a"), given, "Adding does not change what is given.")
    given[0]["content"] = "changed"
    found = await session.get_items()
    expect(_said("a"), found, "An item does not change with the object that was given.")
    found[0]["content"] = "changed"
    expect(_said("a"), await session.get_items(), "An item does not change with the object that was returned.")


async def concurrent_additions_are_kept_whole(make: Make) -> None:
    """Items that many tasks add at once, through objects of their own, are all kept, each call's items side by side."""
    name, calls = new_id(), [[f"{call}.{number}" for number in range(4)] for call in range(12)]
    await asyncio.gather(*(make(name).add_items(_said(*texts)) for texts in calls))
    found = [item["content"] for item in await make(name).get_items()]
    expect(sorted(text for texts in calls for text in texts), sorted(found), "Every item that was added is there once.")
    for texts in calls:
        first = found.index(texts[0])
        expect(texts, found[first : first + 4], "The items of one call stand side by side, in their order.")


async def concurrent_pops_take_each_item_once(make: Make) -> None:
    """Many tasks that pop at once never get the same item."""
    name = new_id()
    await make(name).add_items(_said(*(str(number) for number in range(12))))
    popped = await asyncio.gather(*(make(name).pop_item() for _ in range(12)))
    found = sorted((item or {}).get("content", "nothing") for item in popped)
    expect(sorted(str(number) for number in range(12)), found, "Every item is popped once.")
    expect([], await make(name).get_items(), "What was popped is gone.")


async def a_cancelled_addition_is_whole_or_absent(make: Make) -> None:
    """After a cancelled `add_items` either all of its items are there or none, and the session goes on."""
    for turns in range(12):
        name = new_id()
        await cancel_after(turns, make(name).add_items(_said(*"abc")))
        session = make(name)
        before = await session.get_items()
        if before not in ([], _said(*"abc")):
            raise NotConformant("A cancelled call has added all of its items or none.", _said(*"abc"), before)
        await session.add_items(_said("d"))
        expect([*before, *_said("d")], await session.get_items(), "A session goes on after a cancelled call.")


CHECKS: tuple[Check, ...] = checks_in(globals())
"""All checks, in the order in which a failure tells the most."""
