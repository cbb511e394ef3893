"""Checks of the services of Google ADK: `CHECKS` of a session service, `ARTIFACT_CHECKS` and `MEMORY_CHECKS` of the others.

`make()` returns a service; all of them are over one storage.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

from persist.testing.conformance.running import NotConformant, beyond, cancel_after, checks_in, expect, expect_error, new_id

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


CHECKS: tuple[Check, ...] = checks_in(globals())
"""The checks of a session service, in the order in which a failure tells the most."""


def _file(filename: str = "f.txt", **more: Any) -> dict[str, Any]:
    return {"app_name": new_id("app"), "user_id": "maria", "session_id": "s", "filename": filename, **more}


def _text(text: str) -> Any:
    return types.Part(text=text)


def _scope(names: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in names.items() if name != "filename"}


async def an_unknown_artifact_is_nothing(make: Make) -> None:
    """What nobody saved is None or empty, and deleting it does nothing."""
    names = _file()
    expect(None, await make().load_artifact(**names), "There is no artifact that nobody saved.")
    expect([], await make().list_versions(**names), "An artifact that nobody saved has no versions.")
    expect(None, await make().get_artifact_version(**names), "Nothing is known of an artifact that nobody saved.")
    expect([], await make().list_artifact_keys(**_scope(names)), "Nobody saved an artifact there.")
    await make().delete_artifact(**names)


async def versions_count_from_zero(make: Make) -> None:
    """Versions are numbered from 0 on, the latest is loaded without a number, and each by its own."""
    names = _file()
    saved = [await make().save_artifact(**names, artifact=_text(text)) for text in "abc"]
    expect([0, 1, 2], saved, "Versions are numbered from 0 on.")
    expect([0, 1, 2], await make().list_versions(**names), "All versions are listed.")
    expect(_text("c"), await make().load_artifact(**names), "The latest version is loaded without a number.")
    for number, text in enumerate("abc"):
        expect(_text(text), await make().load_artifact(**names, version=number), "A version is loaded by its number.")
    expect(None, await make().load_artifact(**names, version=3), "There is no version that nobody saved.")


async def parts_come_back_exactly(make: Make) -> None:
    """Text, bytes and references to files come back as they were saved."""
    parts = [
        _text('line\u2028separator, quote", back\\slash, \xe9, e\u0301, \U0001f600, \ufeff, %s'),
        types.Part(inline_data=types.Blob(mime_type="image/png", data=bytes(range(256)) * 2000)),
        types.Part(file_data=types.FileData(file_uri="gs://bucket/file", mime_type="text/csv")),
    ]
    names = _file()
    for part in parts:
        await make().save_artifact(**names, artifact=part)
    found = [await make().load_artifact(**names, version=number) for number in range(len(parts))]
    expect(parts, found, "Parts come back as they were saved.")


async def versions_have_a_type_and_metadata(make: Make) -> None:
    """A version has the type of its content and the metadata that it was saved with."""
    names = _file()
    blob = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"x"))
    await make().save_artifact(**names, artifact=blob, custom_metadata={"z": 1, "a": ["é"]})
    await make().save_artifact(**names, artifact=_text("b"))
    first, last = await make().list_artifact_versions(**names)
    expect((0, "image/png", {"z": 1, "a": ["é"]}), (first.version, first.mime_type, first.custom_metadata), "A version has both.")
    expect((1, "text/plain", {}), (last.version, last.mime_type, last.custom_metadata), "Text has its type.")
    named = [await make().get_artifact_version(**names, version=number) for number in (0, None, 7)]
    expect([first, last, None], named, "A version is described by its number, the latest one without it.")


async def artifacts_belong_to_a_session_or_a_user(make: Make) -> None:
    """An artifact whose name begins with `user:` is there in all sessions of the user; any other in its session alone."""
    names, app = _file("own.txt"), new_id("app")
    own, users = {**names, "app_name": app}, {**names, "app_name": app, "filename": "user:all.txt"}
    await make().save_artifact(**own, artifact=_text("own"))
    await make().save_artifact(**users, artifact=_text("all"))
    for session in ("s", "other"):
        expect(_text("all"), await make().load_artifact(**{**users, "session_id": session}), "It is there in all sessions.")
    expect(None, await make().load_artifact(**{**own, "session_id": "other"}), "It is there in its session alone.")
    for other in ({"user_id": "otto"}, {"app_name": new_id("app")}):
        for mine in (own, users):
            expect(None, await make().load_artifact(**{**mine, **other}), "Users and applications are apart.")


async def names_are_listed(make: Make) -> None:
    """The names of a session's artifacts and of the user's are listed, sorted, each once."""
    names = _file()
    for filename in ("b.txt", "user:c.txt", "a.txt", "b.txt", "A.txt"):
        await make().save_artifact(**{**names, "filename": filename}, artifact=_text(filename))
    await make().save_artifact(**{**names, "session_id": "other"}, artifact=_text("x"))
    expected = ["A.txt", "a.txt", "b.txt", "user:c.txt"]
    expect(expected, await make().list_artifact_keys(**_scope(names)), "The session's names and the user's are listed.")


async def a_deleted_artifact_is_gone(make: Make) -> None:
    """Deleting an artifact deletes all of its versions, and no other artifact."""
    names, other = _file(), _file()
    for one in (names, names, other):
        await make().save_artifact(**one, artifact=_text("a"))
    await make().delete_artifact(**names)
    expect(None, await make().load_artifact(**names), "A deleted artifact is gone.")
    expect([], await make().list_versions(**names), "A deleted artifact has no versions.")
    expect(_text("a"), await make().load_artifact(**other), "Others stay.")


async def what_holds_nothing_is_refused(make: Make) -> None:
    """A part that has neither text nor bytes nor a reference is refused, and no version is saved."""
    names = _file()
    saving = make().save_artifact(**names, artifact=types.Part(function_call=types.FunctionCall(name="f")))
    await expect_error(InputValidationError, saving, "A part that holds nothing is no artifact.")
    expect([], await make().list_versions(**names), "What is refused is not saved.")


async def versions_that_are_saved_at_once_differ(make: Make) -> None:
    """If many tasks save versions at once, every version gets its own number and keeps its content."""
    names = _file()
    saved = await asyncio.gather(*(make().save_artifact(**names, artifact=_text(f"{number}")) for number in range(8)))
    expect(list(range(8)), sorted(saved), "No number is given twice.")
    for number, version in enumerate(saved):
        expect(_text(f"{number}"), await make().load_artifact(**names, version=version), "A version is what was saved.")


async def a_cancelled_save_is_whole_or_absent(make: Make) -> None:
    """After a cancelled save the version is there wholly or not at all, and the next one has the next number."""
    for turns in range(12):
        names = _file()
        await cancel_after(turns, make().save_artifact(**names, artifact=_text("a")))
        versions = await make().list_versions(**names)
        found = await make().load_artifact(**names)
        if (versions, found) not in (([], None), ([0], _text("a"))):
            raise NotConformant("A cancelled save is done wholly or not at all.", ([0], _text("a")), (versions, found))
        expect(len(versions), await make().save_artifact(**names, artifact=_text("b")), "The next version has the next number.")


ARTIFACT_CHECKS: tuple[Check, ...] = checks_in(globals(), *CHECKS)
"""The checks of an artifact service, in the order in which a failure tells the most."""


def _remark(text: str | None, number: int = 0) -> Any:
    part = types.Part(function_call=types.FunctionCall(name="f")) if text is None else types.Part(text=text)
    content = types.Content(role="user", parts=[part])
    return Event(id=new_id(), author="user", content=content, timestamp=2e9 + number)


def _session(*texts: str | None, **more: Any) -> Any:
    events = [_remark(text, number) for number, text in enumerate(texts)]
    return Session(**{"id": new_id(), "app_name": new_id("app"), "user_id": "maria", "events": events, **more})


async def _found(service: Any, session: Any, query: str, **more: Any) -> list[str]:
    names = {"app_name": session.app_name, "user_id": session.user_id, **more}
    response = await service.search_memory(**names, query=query)
    return [memory.content.parts[0].text for memory in response.memories]


async def nothing_is_remembered_at_first(make: Make) -> None:
    """A search finds nothing where nothing was added, and nothing for an empty query."""
    session = _session("a word")
    expect([], await _found(make(), session, "word"), "Nothing is remembered that was not added.")
    await make().add_session_to_memory(session)
    expect([], await _found(make(), session, ""), "An empty query finds nothing.")


async def a_memory_is_found_by_a_word(make: Make) -> None:
    """A memory is found by any of its words, in capitals or not, and not by a part of a word."""
    session = _session("The parcel is in Lisbon", "nothing of this")
    await make().add_session_to_memory(session)
    for query in ("parcel", "PARCEL", "where is lisbon?", "parcel porto"):
        expect("The parcel is in Lisbon", (await _found(make(), session, query))[0], f"{query!r} finds the memory.")
    expect([], await _found(make(), session, "parc isbon"), "A part of a word finds nothing.")


async def a_memory_comes_back_whole(make: Make) -> None:
    """A memory has the content and the author of its event."""
    text = 'word, line\u2028separator, quote", back\\slash, \xe9, \U0001f600, %s'
    session = _session(text)
    await make().add_session_to_memory(session)
    found = await make().search_memory(app_name=session.app_name, user_id="maria", query="word")
    event = session.events[0]
    expect([(event.content, "user")], [(one.content, one.author) for one in found.memories], "A memory comes back whole.")


async def users_have_memories_of_their_own(make: Make) -> None:
    """A search finds only memories of its user and application, from all sessions of the user."""
    one = _session("a word")
    two = _session("another word", app_name=one.app_name)
    for session in (one, two, _session("a foreign word", app_name=one.app_name, user_id="otto"), _session("a strange word")):
        await make().add_session_to_memory(session)
    expect(["a word", "another word"], sorted(await _found(make(), one, "word")), "A user's own memories are found.")
    expect(["a foreign word"], await _found(make(), one, "word", user_id="otto"), "Another user has others.")


async def a_session_that_is_added_again_is_replaced(make: Make) -> None:
    """Adding a session again replaces its events: each present event once, and no former ones."""
    session = _session("a word", "a second word")
    await make().add_session_to_memory(session)
    session.events = [session.events[1], _remark("a third word", 3)]
    await make().add_session_to_memory(session)
    found = sorted(await _found(make(), session, "word"))
    expect(["a second word", "a third word"], found, "A session that is added again takes the place of what it was.")


async def what_has_the_most_words_comes_first(make: Make) -> None:
    """The memories that have the most words of the query come first."""
    session = _session("red", "red green", "red green blue", "none")
    await make().add_session_to_memory(session)
    found = await _found(make(), session, "blue green red")
    expect(["red green blue", "red green", "red"], found, "What has the most words of the query comes first.")


async def what_has_no_text_is_no_memory(make: Make) -> None:
    """Events without text are left out, and do not hinder the others."""
    session = _session(None, "a word")
    session.events.append(Event(id=new_id(), author="user", timestamp=2e9))
    await make().add_session_to_memory(session)
    expect(["a word"], await _found(make(), session, "word"), "What has no text is no memory.")


async def sessions_that_are_added_at_once_are_kept(make: Make) -> None:
    """Sessions of one user that many tasks add at once are all kept."""
    app = new_id("app")
    sessions = [_session(f"word number{number}", app_name=app) for number in range(8)]
    await asyncio.gather(*(make().add_session_to_memory(session) for session in sessions))
    for number, session in enumerate(sessions):
        expect([f"word number{number}"], await _found(make(), session, f"number{number}"), "Each session that was added is kept.")


MEMORY_CHECKS: tuple[Check, ...] = checks_in(globals(), *CHECKS, *ARTIFACT_CHECKS)
"""The checks of a memory service, in the order in which a failure tells the most."""
