"""Checks of an `EventStore` of MCP that is bound to a session: `make(session_id)` returns the store of that session's transport.

A store that is given to the transports of all sessions, as the SDK's own session manager does, sends one client the messages of
another, because every client numbers its requests alike: it does not pass.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from persist.testing.conformance.running import cancel_after, checks_in, expect, expect_error, new_id

Make = Callable[[str], Any]
Check = Callable[[Make], Awaitable[None]]


def _note(number: Any) -> Any:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"n": number})


async def _replayed(store: Any, id: str) -> tuple[str | None, list[Any]]:
    """The stream of an event, and what followed it."""
    found: list[Any] = []

    async def keep(event: Any) -> None:
        found.append(event)

    return await store.replay_events_after(id, keep), found


async def _numbers(store: Any, id: str) -> list[Any]:
    return [event.message.params["n"] for event in (await _replayed(store, id))[1]]


async def what_followed_is_sent_again(make: Make) -> None:
    """What followed an event in its stream is sent in order, each with its id, and the stream's id is returned."""
    session = new_id()
    first, *ids = [await make(session).store_event("1", _note(number)) for number in range(5)]
    stream, found = await _replayed(make(session), first)
    expect("1", stream, "The id of the stream is returned.")
    expect([1, 2, 3, 4], [event.message.params["n"] for event in found], "What followed an event is sent in order.")
    expect(ids, [event.event_id for event in found], "What is sent again has the id that it was stored under.")
    expect(("1", []), await _replayed(make(session), ids[-1]), "Nothing followed the last event of a stream.")


async def an_unknown_id_is_nothing(make: Make) -> None:
    """For an id that was never given nothing is sent, and None is returned."""
    session = new_id()
    await make(session).store_event("1", _note(1))
    for id in (new_id(), "", "0", "1"):
        expect((None, []), await _replayed(make(session), id), f"Nothing followed {id!r}, which is no id of an event.")


async def markers_are_never_sent(make: Make) -> None:
    """A priming event, which has no message, is a place to go on from, and is never sent again."""
    store = make(new_id())
    marker = await store.store_event("1", None)
    await store.store_event("1", _note(1))
    await store.store_event("1", None)
    await store.store_event("1", _note(2))
    expect([1, 2], await _numbers(store, marker), "What followed a priming event is sent, and no other priming event.")


async def streams_are_apart(make: Make) -> None:
    """What is sent again is of the event's own stream alone."""
    store, ids = make(new_id()), dict[str, str]()
    for number, stream in enumerate(["1", "2", "_GET_stream", "1", "2", "_GET_stream", "01", "1 "]):
        id = await store.store_event(stream, _note(number))
        ids.setdefault(stream, id)
    found = {stream: await _numbers(store, id) for stream, id in ids.items()}
    expected: dict[str, list[int]] = {"1": [3], "2": [4], "_GET_stream": [5], "01": [], "1 ": []}
    expect(expected, found, "Streams are apart, also where their names are alike.")


async def sessions_are_apart(make: Make) -> None:
    """An event of another session is unknown, also where both have a stream of the same name."""
    one, other = new_id(), new_id()
    mine, theirs = await make(one).store_event("1", None), await make(other).store_event("1", None)
    await make(one).store_event("1", _note("mine"))
    await make(other).store_event("1", _note("theirs"))
    expect(["mine"], await _numbers(make(one), mine), "A client is sent the messages of its own session.")
    expect((None, []), await _replayed(make(one), theirs), "A client is not sent what another session's event is followed by.")


async def ids_are_never_given_twice(make: Make) -> None:
    """Ids are given once, over all streams and sessions, and grow within a session."""
    sessions = [new_id(), new_id()]
    ids = [[await make(session).store_event(stream, None) for stream in ("1", "2", "1")] for session in sessions]
    expect(6, len({id for one in ids for id in one}), "No id is given twice.")


async def messages_come_back_exactly(make: Make) -> None:
    """Every kind of message comes back equal: text, numbers, the order of keys, fields that are not set."""
    text = 'line\u2028separator, tab\t, quote", back\\slash, \u0085, \xe9, e\u0301, \U0001f600, \ufeff, \x7f, %s\r\n\ndata: x'
    values = {"z": {"z": None, "a": [1, True, -0.5, 2**53 + 1, {}]}, "a": text, "": "é" * 300_000}
    given: list[Any] = [
        JSONRPCNotification(jsonrpc="2.0", method="n"),
        JSONRPCNotification(jsonrpc="2.0", method="n", params=values),
        JSONRPCRequest(jsonrpc="2.0", id="seven", method="r", params={}),
        JSONRPCResponse(jsonrpc="2.0", id=7, result=values),
        JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=-1, message="no", data=[values])),
    ]
    store = make(new_id())
    marker = await store.store_event("1", None)
    for message in given:
        await store.store_event("1", message)
    _, found = await _replayed(store, marker)
    expect(given, [event.message for event in found], "Messages come back as they were stored.")
    fields = [message.model_fields_set for message in given]
    expect(fields, [event.message.model_fields_set for event in found], "A field that is not set stays so.")
    expect(list(values), list(found[1].message.params), "The order of keys stays.")


async def a_long_stream_is_sent_whole(make: Make) -> None:
    """All that a client missed is sent, however much it is."""
    store = make(new_id())
    marker = await store.store_event("1", None)
    for number in range(250):
        await store.store_event("1", _note(number))
    expect(list(range(250)), await _numbers(store, marker), "Everything that a client missed is sent.")


async def sending_may_use_the_store(make: Make) -> None:
    """While events are sent the store is not locked, and what goes wrong in sending is the caller's to know."""
    session = new_id()
    store = make(session)
    marker = await store.store_event("1", None)
    await store.store_event("1", _note(1))

    async def send(event: Any) -> None:
        await make(session).store_event("2", _note(2))

    expect("1", await asyncio.wait_for(store.replay_events_after(marker, send), 30), "An event may be stored while one is sent.")

    async def fail(event: Any) -> None:
        raise ConnectionResetError

    await expect_error(ConnectionResetError, store.replay_events_after(marker, fail), "An error of sending comes through.")
    expect([1], await _numbers(store, marker), "What could not be sent can be sent again.")


async def events_that_come_at_once_are_kept(make: Make) -> None:
    """Events that many tasks store at once are all kept, in the order of their ids."""
    session = new_id()
    marker = await make(session).store_event("1", None)
    ids = await asyncio.gather(*(make(session).store_event("1", _note(number)) for number in range(16)))
    _, found = await _replayed(make(session), marker)
    by_id = {event.event_id: event.message.params["n"] for event in found}
    expect(dict(sorted(zip(ids, range(16), strict=True))), dict(sorted(by_id.items())), "Each event is kept under its own id.")
    middle = found[7].event_id
    rest = [event.event_id for event in (await _replayed(make(session), middle))[1]]
    expect([event.event_id for event in found[8:]], rest, "The order is the same from wherever a client goes on.")


async def a_cancelled_event_is_whole_or_absent(make: Make) -> None:
    """After a cancelled call its event is stored or not, and the stream goes on."""
    for turns in range(12):
        session = new_id()
        marker = await make(session).store_event("1", None)
        await cancel_after(turns, make(session).store_event("1", _note(1)))
        await make(session).store_event("1", _note(2))
        found = await _numbers(make(session), marker)
        expect([1, 2] if 1 in found else [2], found, "A stream goes on after a cancelled call.")


CHECKS: tuple[Check, ...] = checks_in(globals())
"""All checks, in the order in which a failure tells the most."""
