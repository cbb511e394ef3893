"""Events and sessions that the tests of Google ADK's services share."""

from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

from persist.integrations.google_adk import PersistArtifactService, PersistMemoryService, PersistSessionService

APP, USER, ID = "app", "maria", "talk"
NAMES: dict[str, Any] = {"app_name": APP, "user_id": USER}
FILE = {**NAMES, "session_id": ID, "filename": "f.txt"}


def event(text: str = "hi", delta: dict[str, Any] | None = None, **fields: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author=fields.pop("author", "user"), content=content, actions=EventActions(state_delta=delta or {}), **fields)


async def create(service: BaseSessionService, state: dict[str, Any] | None = None, id: str = ID, user: str = USER) -> Session:
    return await service.create_session(app_name=APP, user_id=user, session_id=id, state=state)


async def get(service: BaseSessionService, id: str = ID, user: str = USER, **window: Any) -> Session:
    config = GetSessionConfig(**window) if window else None
    found = await service.get_session(app_name=APP, user_id=user, session_id=id, config=config)
    assert found is not None
    return found


def said(session: Session) -> list[str]:
    return [part.text or "" for one in session.events if one.content for part in one.content.parts or ()]


def spoiled_reads(
    sessions: PersistSessionService,
    artifacts: PersistArtifactService,
    memories: PersistMemoryService,
    do: Callable[[Awaitable[Any]], Any],
    execute: Callable[[str], int],
    text: str,
) -> list[Any]:
    """The calls that read an event, a memory and a file, after the text was put in the place of what was stored of each."""
    session = do(create(sessions))
    do(sessions.append_event(session, event("hello")))
    do(memories.add_session_to_memory(session))
    do(artifacts.save_artifact(**FILE, artifact=types.Part(text="x")))
    for column in ("app_session_events SET data", "app_memories SET entry", "app_artifact_versions SET part"):
        assert execute(f"UPDATE {column} = '{text}'") == 1
    return [get(sessions), memories.search_memory(**NAMES, query="hello"), artifacts.load_artifact(**FILE)]
