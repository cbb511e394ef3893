"""What is stored stands in no error of the services, nor in those that one comes from."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from google.genai import types

from persist.errors import InvalidValue, StoreCorrupt
from persist.integrations.google_adk import PersistArtifactService, PersistMemoryService, PersistSessionService
from tests.integrations.google_adk.conftest import Do
from tests.integrations.google_adk.scenes import APP, FILE, create, event, get, spoiled_reads
from tests.integrations.telling import SECRET, require_silence

UNREADABLE = {
    "a value": json.dumps({"author": [SECRET], "content": [SECRET], "text": [SECRET], "inline_data": SECRET}),
    "cut": f'["{SECRET}",',
}


@pytest.mark.parametrize("bad", UNREADABLE)
def test_what_cannot_be_read_is_not_told(
    sessions: PersistSessionService,
    artifacts: PersistArtifactService,
    memories: PersistMemoryService,
    do: Do,
    execute: Callable[[str], int],
    bad: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for call in spoiled_reads(sessions, artifacts, memories, do, execute, UNREADABLE[bad]):
        with pytest.raises(StoreCorrupt, match="cannot be read as") as caught:
            do(call)
        require_silence(caught, caplog)


def test_states_metadata_and_references_that_are_none_are_not_told(
    sessions: PersistSessionService, artifacts: PersistArtifactService, do: Do, execute: Callable[[str], int]
) -> None:
    do(create(sessions, {"a": 1}))
    do(artifacts.save_artifact(**FILE, artifact=types.Part(text="x")))
    assert execute(f"UPDATE app_session_state SET value = '[\"{SECRET}\",'")
    assert execute(f"UPDATE app_artifact_versions SET metadata_text = '[\"{SECRET}\",'")
    keyed = {"author": "x", "actions": {"artifact_delta": {SECRET: "no number"}}}
    do(create(sessions, id="other"))
    do(sessions.append_event(do(get(sessions, "other")), event("hello")))
    assert execute(f"UPDATE app_session_events SET data = '{json.dumps(keyed)}'")
    listed, version = sessions.list_sessions(app_name=APP), artifacts.get_artifact_version(**FILE)
    calls: list[Any] = [get(sessions), get(sessions, "other"), listed, version]
    for call in calls:
        with pytest.raises(StoreCorrupt) as caught:
            do(call)
        require_silence(caught)
    reference = json.dumps({"file_data": {"file_uri": f"artifact://{SECRET}"}})
    assert execute(f"UPDATE app_artifact_versions SET part = '{reference}'")
    with pytest.raises(InvalidValue, match="Invalid artifact reference") as refused:
        do(artifacts.load_artifact(**FILE))
    require_silence(refused)


def test_what_is_refused_is_not_told(sessions: PersistSessionService, artifacts: PersistArtifactService, do: Do) -> None:
    session = do(create(sessions))
    spoilt = event("hello")
    object.__setattr__(spoilt, "author", [SECRET])
    wrong: Any = {"text": [SECRET]}
    calls: list[Any] = [sessions.append_event(session, spoilt), artifacts.save_artifact(**FILE, artifact=wrong)]
    for call in calls:
        with pytest.raises(InvalidValue) as caught:
            do(call)
        require_silence(caught)
