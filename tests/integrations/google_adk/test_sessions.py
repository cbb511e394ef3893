"""The session service: what is stored, what is merged, and who is told that another writer came between."""

import asyncio
import pickle
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.events.event import Event
from google.adk.sessions.session import Session

from persist.errors import Conflict, InvalidValue
from persist.integrations.google_adk import PersistSessionService, SessionStale
from tests.integrations.google_adk.scenes import ID, NAMES, USER, create, event, get, said


async def test_ids_are_unique_for_a_user_of_an_application(sessions: PersistSessionService) -> None:
    await create(sessions)
    with pytest.raises(AlreadyExistsError) as refused:
        await create(sessions, {"app:a": 1}, id=f" {ID} ")
    assert isinstance(refused.value, Conflict)
    await create(sessions, user="joe")
    assert (await get(sessions)).state == {}
    new = await sessions.create_session(**NAMES, session_id="  ")
    assert (await sessions.create_session(**NAMES)).id not in ("", new.id)


async def test_only_the_events_that_are_asked_for(sessions: PersistSessionService) -> None:
    session = await create(sessions)
    for text, timestamp in (("c", 2.0), ("b", 2.0), ("a", 1.0), ("d", 2.0)):
        await sessions.append_event(session, event(text, timestamp=timestamp))
    assert said(await get(sessions, after_timestamp=2.0)) == ["c", "b", "d"]
    short = await get(sessions, num_recent_events=1)
    await sessions.append_event(short, event("e", timestamp=3.0))
    assert said(await get(sessions)) == ["c", "b", "a", "d", "e"]


async def test_two_runners_on_one_session(sessions: PersistSessionService) -> None:
    """The second writer is refused once, changes nothing, and goes on after it has read again."""
    await create(sessions, {"n": 0})
    mine, yours = await get(sessions), await get(sessions)
    for number in range(3):
        await sessions.append_event(mine, event(f"mine {number}", {"n": number, "temp:x": 1}))
    late = event("late", {"n": 9, "user:lost": 1, "temp:y": 2}, timestamp=2.0**33)
    for _ in range(2):
        with pytest.raises(StaleSessionError) as refused:
            await sessions.append_event(yours, late)
    assert isinstance(refused.value, SessionStale | Conflict)
    assert (yours.events, yours.state) == ([], {"n": 0})
    assert late.actions.state_delta == {"n": 9, "user:lost": 1, "temp:y": 2}
    assert (await get(sessions)).state == {"n": 2}
    await sessions.append_event(mine, event("mine 3"))
    again = await get(sessions)
    await sessions.append_event(again, late)
    assert said(await get(sessions)) == ["mine 0", "mine 1", "mine 2", "mine 3", "late"]


async def test_equal_and_older_timestamps_hide_no_other_writer(sessions: PersistSessionService) -> None:
    session = await create(sessions)
    await sessions.append_event(session, event("1", timestamp=10.0))
    for timestamp in (10.0, 9.0, 11.0):
        mine, yours = await get(sessions), await get(sessions)
        await sessions.append_event(yours, event("yours", timestamp=timestamp))
        with pytest.raises(StaleSessionError):
            await sessions.append_event(mine, event("mine", timestamp=timestamp))
        await sessions.append_event(yours, event("yours", timestamp=timestamp))


async def test_copies_and_sessions_without_a_marker(sessions: PersistSessionService) -> None:
    session = await create(sessions)
    await sessions.append_event(session, event("1"))
    await sessions.append_event(session.model_copy(deep=True), event("2"))
    with pytest.raises(StaleSessionError):
        await sessions.append_event(session, event("lost"))
    sent = Session.model_validate_json((await get(sessions)).model_dump_json())
    await sessions.append_event(sent, event("3"))
    await sessions.append_event(sent, event("4"))
    outdated = Session.model_validate_json(session.model_dump_json())
    with pytest.raises(StaleSessionError):
        await sessions.append_event(outdated, event("lost"))
    assert said(await get(sessions)) == ["1", "2", "3", "4"]


async def test_parallel_branches_share_one_session_object(sessions: PersistSessionService) -> None:
    session = await create(sessions)
    given = [event(f"{number}", {f"k{number}": number}, timestamp=float(number)) for number in range(40)]
    await asyncio.gather(*(sessions.append_event(session, one) for one in given))
    assert session.events == given == (await get(sessions)).events
    assert session.state == (await get(sessions)).state == {f"k{number}": number for number in range(40)}


async def test_an_append_that_failed_leaves_a_session_that_goes_on(
    sessions: PersistSessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is a lost answer stored twice, nor is the session outdated for ever."""
    session = await create(sessions)
    given = event("once", {"n": 1, "temp:t": 2})
    stored = sessions._bridge.call

    def lose_the_answer(*args: Any, **options: Any) -> Any:
        stored(*args, **options)
        raise ConnectionResetError("the answer was lost")

    monkeypatch.setattr(sessions._bridge, "call", lose_the_answer)
    with pytest.raises(ConnectionResetError):
        await sessions.append_event(session, given)
    monkeypatch.undo()
    assert (session.events, session.state) == ([], {})
    await sessions.append_event(session, given)
    assert (session.events, session.state) == ([given], {"n": 1, "temp:t": 2})
    await sessions.append_event(session, event("next"))
    assert said(await get(sessions)) == ["once", "next"]
    assert await sessions.append_event(session, given) is given
    assert said(session) == said(await get(sessions)) == ["once", "next"]


@pytest.mark.parametrize(
    "delta",
    [{"a": b"bytes"}, {"a": {"b": [b"bytes"]}}, {"a": print}, {"a\x00": 1}, {"a\ud800": 1}, {"k" * 601: 1}, {"a": {(1, 2): 3}}],
)
async def test_what_would_not_come_back_is_refused(sessions: PersistSessionService, delta: dict[str, Any]) -> None:
    session = await create(sessions)
    with pytest.raises(InputValidationError) as refused:
        await sessions.append_event(session, event(delta={**delta, "temp:t": 1}))
    assert isinstance(refused.value, InvalidValue)
    assert isinstance(pickle.loads(pickle.dumps(refused.value)), InputValidationError)
    with pytest.raises(InputValidationError):
        await create(sessions, delta, id="other")
    assert (session.events, session.state, (await get(sessions)).events) == ([], {}, [])
    await sessions.append_event(session, event())


@pytest.mark.parametrize("timestamp", [float("nan"), float("inf")])
async def test_a_time_that_is_none_is_refused(sessions: PersistSessionService, timestamp: float) -> None:
    session = await create(sessions)
    with pytest.raises(InputValidationError):
        await sessions.append_event(session, event(timestamp=timestamp))
    with pytest.raises(InputValidationError):
        await sessions.append_event(session, Event(author="x", output={"deep": b"bytes"}))
    with pytest.raises(InputValidationError):
        await sessions.append_event(session, Event(author="x", output=b"bytes"))
    for names in ({"user_id": "a\x00"}, {"app_name": 5}):
        with pytest.raises(InputValidationError):
            await sessions.get_session(**{**NAMES, "session_id": ID, **names})


async def test_a_user_is_found_by_exactly_that_name(sessions: PersistSessionService) -> None:
    for user in ("", USER, USER.upper(), "ü" * 300):
        await create(sessions, {"user:of": user}, user=user)
    assert (await get(sessions, user="")).state == {"user:of": ""}
    assert (await get(sessions, user="ü" * 300)).state == {"user:of": "ü" * 300}
    with pytest.raises(InputValidationError):
        await create(sessions, user="ü" * 301)
