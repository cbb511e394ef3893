"""How often the services wait for an answer of Postgres."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from google.adk.sessions.session import Session
from google.genai import types

from persist import Store
from persist.integrations.google_adk import PersistArtifactService, PersistMemoryService, PersistSessionService
from tests.integrations.google_adk.conftest import Do
from tests.integrations.google_adk.scenes import NAMES, create, event, get
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, metered, require

ROWS = (
    Row("create_session", 2, goal=2),
    Row("append_event", 2, goal=2),
    Row("get_session", 1, goal=1),
    Row("list_sessions", 1, goal=1),
    Row("get_user_state", 1, goal=1),
    Row("delete_session", 1, goal=1),
    Row("save_artifact", 1, goal=1),
    Row("load_artifact", 1, goal=1),
    Row("save_large_artifact", 1, goal=1),
    Row("load_large_artifact", 2, goal=2),
    Row("list_artifact_keys", 1, goal=1),
    Row("list_artifact_versions", 1, goal=1),
    Row("delete_artifact", 1, goal=1),
    Row("add_session_to_memory", 2, goal=2),
    Row("search_memory", 2, goal=2),
)


@pytest.fixture
def meter(postgres_url: str) -> Iterator[Meter]:
    with metered(postgres_url) as meter:
        yield meter


def test_a_method_keeps_its_bound(meter: Meter, do: Do) -> None:
    with Store.open(meter.url) as store:
        sessions, files, memories = PersistSessionService(store), PersistArtifactService(store), PersistMemoryService(store)
        session: Session = do(create(sessions, {"app:a": 1, "user:b": 2, "c": 3}))
        ids = iter(f"new-{number}" for number in range(100))
        file: dict[str, Any] = {**NAMES, "session_id": "talk", "filename": "f"}
        part, large = (types.Part(inline_data=types.Blob(data=b"x" * size, mime_type="a/b")) for size in (1, 500_000))
        picture = {**file, "filename": "g"}
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "create_session": lambda: create(sessions, {"app:a": 1, "user:b": 2, "c": 3}, id=next(ids)),
            "append_event": lambda: sessions.append_event(session, event(delta={"app:a": 1, "user:b": 2, "c": 3})),
            "get_session": lambda: get(sessions),
            "list_sessions": lambda: sessions.list_sessions(app_name="app"),
            "get_user_state": lambda: sessions.get_user_state(**NAMES),
            "save_artifact": lambda: files.save_artifact(**file, artifact=part),
            "load_artifact": lambda: files.load_artifact(**file),
            "save_large_artifact": lambda: files.save_artifact(**picture, artifact=large),
            "load_large_artifact": lambda: files.load_artifact(**picture),
            "list_artifact_keys": lambda: files.list_artifact_keys(**NAMES, session_id="talk"),
            "list_artifact_versions": lambda: files.list_artifact_versions(**file),
            "add_session_to_memory": lambda: memories.add_session_to_memory(session),
            "search_memory": lambda: memories.search_memory(**NAMES, query="hi there"),
            "delete_artifact": lambda: files.delete_artifact(**file),
            "delete_session": lambda: sessions.delete_session(**NAMES, session_id="talk"),
        }
        bounds = {row.name: row.bound for row in ROWS}
        for name, call in calls.items():
            do(call())  # statements are prepared at their first use
            require(complaint(name, bounds[name], meter.flights(partial(do_call, do, call), bound=bounds[name])))


def do_call(do: Do, call: Callable[[], Awaitable[Any]]) -> None:
    do(call())
