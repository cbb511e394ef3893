"""Arguments of a wrong kind are refused by the framework's error."""

from typing import Any

import pytest
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from persist import AsyncStore, Store
from persist.integrations.google_adk import InvalidArgument, PersistArtifactService, PersistMemoryService, PersistSessionService
from tests.integrations.google_adk.conftest import Do
from tests.integrations.google_adk.scenes import NAMES, create, event
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors

SESSION: dict[str, Any] = {**NAMES, "session_id": "talk"}


def test_arguments_of_a_session_service(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    service = PersistSessionService(store)
    session = do(create(service))
    valid: dict[str, dict[str, Any]] = {
        "create_session": {**NAMES, "state": {"a": 1}, "session_id": None},
        "get_session": {**SESSION, "config": GetSessionConfig(num_recent_events=1)},
        "list_sessions": NAMES,
        "get_user_state": NAMES,
        "append_event": {"session": session, "event": event("hi", {"a": 1})},
        "delete_session": {**SESSION, "session_id": "other"},
    }
    require_typed_errors(lambda: service, valid, do=do, database_url=database_url, error=InputValidationError)


def test_arguments_of_an_artifact_service(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    service, file = PersistArtifactService(store), {**SESSION, "filename": "f"}
    part = types.Part(text="hi")
    do(service.save_artifact(**file, artifact=part))
    valid: dict[str, dict[str, Any]] = {
        "save_artifact": {**file, "artifact": part, "custom_metadata": {"a": 1}},
        "load_artifact": {**file, "version": 0},
        "list_artifact_keys": SESSION,
        "list_versions": file,
        "list_artifact_versions": file,
        "get_artifact_version": {**file, "version": 0},
        "delete_artifact": {**file, "filename": "other"},
    }
    require_typed_errors(lambda: service, valid, do=do, database_url=database_url, error=InputValidationError)


def test_arguments_of_a_memory_service(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    service, sessions = PersistMemoryService(store), PersistSessionService(store)
    session = do(create(sessions))
    do(sessions.append_event(session, event()))
    entry = MemoryEntry(content=types.Content(role="user", parts=[types.Part(text="hi")]))
    valid: dict[str, dict[str, Any]] = {
        "add_session_to_memory": {"session": session},
        "add_events_to_memory": {**SESSION, "events": [event()], "custom_metadata": {"a": 1}},
        "add_memory": {**NAMES, "memories": [entry], "custom_metadata": {"a": 1}},
        "search_memory": {**NAMES, "query": "hi"},
        "delete_memory": {**NAMES, "memory_id": "other"},
    }
    require_typed_errors(lambda: service, valid, do=do, database_url=database_url, error=InputValidationError)


@pytest.mark.parametrize("kind", [PersistSessionService, PersistArtifactService, PersistMemoryService])
@pytest.mark.parametrize("wrong", WRONG, ids=KINDS)
def test_what_is_no_store(kind: Any, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="expected a Store or an AsyncStore"):
        kind(wrong)
