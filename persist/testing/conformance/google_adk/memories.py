"""Checks of a memory service of Google ADK that finds memories by words. `make()` returns a service, all over one storage."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions.session import Session
from google.genai import types

from persist.testing.conformance.running import expect, new_id

Make = Callable[[], Any]
Check = Callable[[Make], Awaitable[None]]


def _event(text: str | None, number: int = 0) -> Any:
    part = types.Part(function_call=types.FunctionCall(name="f")) if text is None else types.Part(text=text)
    content = types.Content(role="user", parts=[part])
    return Event(id=new_id(), author="user", content=content, timestamp=2e9 + number)


def _session(*texts: str | None, **more: Any) -> Any:
    events = [_event(text, number) for number, text in enumerate(texts)]
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
    session.events = [session.events[1], _event("a third word", 3)]
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


MEMORY_CHECKS: tuple[Check, ...] = (
    nothing_is_remembered_at_first,
    a_memory_is_found_by_a_word,
    a_memory_comes_back_whole,
    users_have_memories_of_their_own,
    a_session_that_is_added_again_is_replaced,
    what_has_the_most_words_comes_first,
    what_has_no_text_is_no_memory,
    sessions_that_are_added_at_once_are_kept,
)
"""The checks of a memory service, in the order in which a failure tells the most."""
