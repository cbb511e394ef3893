"""Checks of a session service of Google ADK. `make()` returns a service; all of them are over one storage."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from persist.testing.conformance.running import NotConformant, beyond, cancel_after, expect, expect_error, new_id

Make = Callable[[], Any]
Check = Callable[[Make], Awaitable[None]]


def _names(id: str | None = None, app: str | None = None, user: str = "maria") -> dict[str, Any]:
    return {"app_name": app or new_id("app"), "user_id": user, **({} if id is None else {"session_id": id})}


def _event(text: str = "hi", at: float = 2e9, delta: dict[str, Any] | None = None) -> Any:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(id=new_id(), author="user", content=content, timestamp=at, actions=EventActions(state_delta=delta or {}))


def _said(session: Any) -> list[Any]:
    return [event.content.parts[0].text for event in session.events]


async def _talk(service: Any, *texts: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """A session in which this was said; its names."""
    given = names or _names(new_id())
    session = await service.create_session(**given)
    for number, text in enumerate(texts):
        await service.append_event(session, _event(text, 2e9 + number))
    return given


async def a_session_comes_back(make: Make) -> None:
    """A session exists with its state until it is deleted; an unknown session is None."""
    names = _names(new_id())
    expect(None, await make().get_session(**names), "There is no session that nobody created.")
    await make().delete_session(**names)
    state = {"k": 1, "z": {"z": [None, True, "é"], "a": 1.5}}
    made = await make().create_session(**names, state=state)
    found = await make().get_session(**names)
    for session in (made, found):
        expect((names["session_id"], state), (session.id, session.state), "A session comes back with its state.")
    other = await make().create_session(app_name=names["app_name"], user_id="maria")
    expect(True, bool(other.id) and other.id != made.id, "A session that is created without an id is given one.")
    await make().delete_session(**names)
    expect(None, await make().get_session(**names), "A deleted session is gone.")


async def an_id_is_taken_once(make: Make) -> None:
    """If many create a session at once, one succeeds and the others learn that it exists; other users may have the same id."""
    names = _names(new_id())

    async def create() -> bool:
        try:
            await make().create_session(**names)
        except AlreadyExistsError:
            return False
        return True

    created = await asyncio.gather(*(create() for _ in range(6)))
    expect(1, sum(created), "A session is created once.")
    await make().create_session(**{**names, "user_id": "otto"})


async def state_has_three_scopes(make: Make) -> None:
    """State is the application's, the user's or the session's by its prefix; what is temporary is not stored."""
    service, app = make(), new_id("app")
    one = await service.create_session(**_names(new_id(), app), state={"app:a": 1, "user:u": 2, "s": 3, "temp:t": 4})
    await service.append_event(one, _event(delta={"app:b": 5, "user:v": 6, "s": 7, "temp:w": 8}))
    shared = {"app:a": 1, "app:b": 5}
    of_user = {"user:u": 2, "user:v": 6}
    for where, expected in (
        (_names(one.id, app), {**shared, **of_user, "s": 7}),
        (await _talk(service, names=_names(new_id(), app)), {**shared, **of_user}),
        (await _talk(service, names=_names(new_id(), app, "otto")), shared),
    ):
        found = await make().get_session(**where)
        expect(sorted(expected.items()), sorted(found.state.items()), "State is read by its scopes.")
    raw = await service.get_user_state(app_name=app, user_id="maria")
    expect([("u", 2), ("v", 6)], sorted(raw.items()), "The state of a user has its keys without the prefix.")
    expect({}, await service.get_user_state(app_name=app, user_id="nobody"), "Nobody's state is empty.")


async def sessions_keep_each_others_state(make: Make) -> None:
    """Concurrent writers of a user's sessions, all with stale states, keep one another's keys."""
    app = new_id("app")
    sessions = [await make().create_session(**_names(new_id(), app)) for _ in range(8)]
    given = [_event(delta={f"user:{number}": number, f"app:{number}": number}) for number in range(8)]
    await asyncio.gather(*(make().append_event(*one) for one in zip(sessions, given, strict=True)))
    found = await make().get_session(**_names(sessions[0].id, app))
    expect(16, len(found.state), "State is merged key by key, into what is stored now.")


async def events_come_back_exactly(make: Make) -> None:
    """Events come back in order and equal: text, calls of functions, bytes, actions."""
    service, names = make(), _names(new_id())
    session = await service.create_session(**names)
    text = 'line\u2028separator, tab\t, quote", back\\slash, \u0085, \xe9, e\u0301, \U0001f600, \ufeff, \x7f, %s'
    call = types.FunctionCall(id="c", name="f", args={"z": 1, "a": [None, True, 1.5, {"": ""}]})
    parts = [types.Part(text=text), types.Part(function_call=call), types.Part(text="é" * 300_000)]
    parts.append(types.Part(inline_data=types.Blob(mime_type="image/png", data=bytes(range(256)))))
    actions = EventActions(state_delta={"k": {"z": 1, "a": 2}}, artifact_delta={"f": 1}, transfer_to_agent="other")
    content = types.Content(role="model", parts=parts)
    whole = Event(
        id=new_id(), author="agent", content=content, timestamp=2e9 + 1, actions=actions, invocation_id="i", branch="a.b"
    )
    given = [_event("first", 2e9), whole, _event("last", 2e9 + 2)]
    for event in given:
        returned = await service.append_event(session, event)
        expect(event, returned, "Appending returns the event.")
    found = await make().get_session(**names)
    expect(given, found.events, "Events come back as they were appended.")
    expect(given, session.events, "The session in hand has the events that were appended to it.")


async def a_window_gives_the_newest(make: Make) -> None:
    """A window gives the newest events, oldest first, by their number or from an instant on."""
    names = await _talk(make(), *"abcd")
    for window, expected in (
        ({"num_recent_events": 2}, ["c", "d"]),
        ({"num_recent_events": 0}, []),
        ({"num_recent_events": 99}, list("abcd")),
        ({"after_timestamp": 2e9 + 1}, ["b", "c", "d"]),
        ({"after_timestamp": 2e9 + 1, "num_recent_events": 1}, ["d"]),
    ):
        found = await make().get_session(**names, config=GetSessionConfig(**window))
        expect(expected, _said(found), f"A window of {window} gives the newest events.")


async def events_keep_the_order_of_appending(make: Make) -> None:
    """Events come in the order of appending, whatever the clocks of their hosts say."""
    names = _names(new_id())
    session = await make().create_session(**names)
    for text, at in (("call", 2e9 + 0.5), ("response", 2e9), ("answer", 2e9 + 1)):
        await make().append_event(session, _event(text, at))
    found = await make().get_session(**names)
    expect(["call", "response", "answer"], _said(found), "Events come in the order in which they were appended.")
    found = await make().get_session(**names, config=GetSessionConfig(num_recent_events=2))
    expect(["response", "answer"], _said(found), "The newest events are those that were appended last.")


async def a_partial_event_is_not_stored(make: Make) -> None:
    """An event that is only a part of one is returned, and neither stored nor applied."""
    names = await _talk(make(), "a")
    session, part = await make().get_session(**names), _event("b", delta={"user:k": 1})
    part.partial = True
    expect(part, await make().append_event(session, part), "A partial event is returned.")
    found = await make().get_session(**names)
    expect((["a"], {}), (_said(found), found.state), "A partial event is not stored.")


async def a_repeated_event_is_stored_once(make: Make) -> None:
    """An event that is appended again, since its answer was lost, is stored once."""
    names = await _talk(make())
    session, event = await make().get_session(**names), _event("a")
    await make().append_event(session, event)
    await make().append_event(session, event)
    expect(["a"], _said(await make().get_session(**names)), "A repeated event is stored once.")


async def a_session_that_is_gone_takes_no_event(make: Make) -> None:
    """An event for a session that was deleted is refused, and the session does not come back."""
    names = await _talk(make(), "a")
    session = await make().get_session(**names)
    await make().delete_session(**names)
    appending = make().append_event(session, _event("b"))
    await expect_error(SessionNotFoundError, appending, "A session that is gone takes no event.")
    expect(None, await make().get_session(**names), "A session that is gone stays gone.")


@beyond
async def an_outdated_writer_is_refused(make: Make) -> None:
    """A writer is refused if another one came between, nothing is stored, and reading the session again helps."""
    names = await _talk(make(), "a")
    one, other = await make().get_session(**names), await make().get_session(**names)
    await make().append_event(one, _event("b", 2e9 + 1))
    appending = make().append_event(other, _event("c", 2e9 + 2, {"k": 1}))
    await expect_error(StaleSessionError, appending, "A writer is told that another one came between.")
    again = await make().get_session(**names)
    expect((["a", "b"], {}), (_said(again), again.state), "What a refused writer gave is not stored.")
    await make().append_event(again, _event("c", 2e9 + 2))
    await make().append_event(again, _event("d", 2e9 + 3))
    expect(list("abcd"), _said(await make().get_session(**names)), "A writer that has read again goes on.")


async def sessions_are_listed_without_events(make: Make) -> None:
    """The sessions of a user, or of all users, are listed with their state and without their events."""
    app = new_id("app")
    expect([], (await make().list_sessions(app_name=app)).sessions, "An application that nobody uses has no sessions.")
    for user, id in (("maria", "1"), ("maria", "2"), ("otto", "1")):
        names = await _talk(make(), "a", names=_names(id, app, user))
        await make().append_event(await make().get_session(**names), _event("b", 2e9 + 1, {"k": user}))
    for whose, expected in (("maria", ["1", "2"]), ("otto", ["1"]), (None, ["1", "1", "2"])):
        found = (await make().list_sessions(app_name=app, user_id=whose)).sessions
        expect(expected, sorted(one.id for one in found), f"The sessions of {whose or 'all users'} are listed.")
        for session in found:
            expect(([], session.user_id), (session.events, session.state["k"]), "Sessions are listed with state, without events.")


async def what_is_returned_is_a_copy(make: Make) -> None:
    """Changing a session that was returned changes nothing that is stored."""
    names = _names(new_id())
    made = await make().create_session(**names, state={"k": ["a"]})
    made.state["k"].append("changed")
    found = await make().get_session(**names)
    expect({"k": ["a"]}, found.state, "State does not change with a session that was returned.")
    found.state["k"].append("changed")
    found.events.append(_event("changed"))
    again = await make().get_session(**names)
    expect(({"k": ["a"]}, []), (again.state, again.events), "A session does not change with one that was returned.")


async def a_cancelled_append_is_whole_or_absent(make: Make) -> None:
    """After a cancelled append the event and its state are stored or neither is, and the session goes on."""
    for turns in range(12):
        names = await _talk(make())
        await cancel_after(turns, make().append_event(await make().get_session(**names), _event("a", delta={"k": 1})))
        found = await make().get_session(**names)
        if (_said(found), found.state) not in (([], {}), (["a"], {"k": 1})):
            raise NotConformant(
                "A cancelled append is done wholly or not at all.", (["a"], {"k": 1}), (_said(found), found.state)
            )
        await make().append_event(found, _event("b", 2e9 + 1))
        expect("b", _said(await make().get_session(**names))[-1], "A session goes on after a cancelled call.")


CHECKS: tuple[Check, ...] = (
    a_session_comes_back,
    an_id_is_taken_once,
    state_has_three_scopes,
    sessions_keep_each_others_state,
    events_come_back_exactly,
    a_window_gives_the_newest,
    events_keep_the_order_of_appending,
    a_partial_event_is_not_stored,
    a_repeated_event_is_stored_once,
    a_session_that_is_gone_takes_no_event,
    an_outdated_writer_is_refused,
    sessions_are_listed_without_events,
    what_is_returned_is_a_copy,
    a_cancelled_append_is_whole_or_absent,
)
"""The checks of a session service, in the order in which a failure tells the most."""
