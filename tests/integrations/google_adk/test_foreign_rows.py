"""What other programs wrote into the tables is reported as such, and arguments of a wrong kind are refused by a sentence."""

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.memory.memory_entry import MemoryEntry
from google.genai import types

from persist.cli import main
from persist.errors import InvalidValue, StoreCorrupt
from persist.integrations.google_adk import PersistArtifactService, PersistMemoryService, PersistSessionService
from tests.integrations.google_adk.conftest import Do
from tests.integrations.google_adk.scenes import APP, FILE, ID, NAMES, USER, create, event, get

Execute = Callable[[str], int]

NO_JSON = {"cut": "{", "empty": "", "deep": "[" * 5000}


@pytest.mark.parametrize("bad", NO_JSON)
@pytest.mark.parametrize("table", ["app_session_state", "app_state", "app_user_state"])
def test_a_state_that_is_no_json(sessions: PersistSessionService, do: Do, execute: Execute, table: str, bad: str) -> None:
    do(create(sessions, {"a": 1, "app:a": 1, "user:a": 1}))
    assert execute(f"UPDATE {table} SET value = '{NO_JSON[bad]}'") == 1
    calls: list[Any] = [get(sessions), sessions.list_sessions(app_name=APP)]
    if table == "app_user_state":
        calls.append(sessions.get_user_state(**NAMES))
    for call in calls:
        with pytest.raises(StoreCorrupt, match="the state 'a': it is no JSON"):
            do(call)


@pytest.mark.parametrize("bad", ["{", "5", "null", "[" * 5000])
def test_metadata_that_are_no_object(artifacts: PersistArtifactService, do: Do, execute: Execute, bad: str) -> None:
    do(artifacts.save_artifact(**FILE, artifact=types.Part(text="x")))
    assert execute(f"UPDATE app_artifact_versions SET metadata_text = '{bad}'") == 1
    with pytest.raises(StoreCorrupt, match=r"artifact f\.txt"):
        do(artifacts.get_artifact_version(**FILE))
    assert do(artifacts.load_artifact(**FILE)) == types.Part(text="x")


@pytest.mark.parametrize("bad", ["{", "[" * 5000, "5", '{"content":{"parts":5}}', '{"content":{"parts":[5,{"text":6}]}}'])
def test_a_foreign_event_is_shown_as_it_is(
    sessions: PersistSessionService, do: Do, execute: Execute, database_url: str, bad: str
) -> None:
    do(sessions.append_event(do(create(sessions)), event("hello")))
    assert execute(f"UPDATE app_session_events SET data = '{bad}'") == 1
    shown = CliRunner().invoke(main, ["show", f"{APP}/{USER}/{ID}", "--url", database_url])
    assert shown.exit_code == 0, shown.exception
    assert bad[:50] in shown.output


def refused(do: Do, call: Any, path: str) -> None:
    with pytest.raises(InputValidationError, match=path) as caught:
        do(call)
    assert isinstance(caught.value, InvalidValue)


@pytest.mark.parametrize("timestamp", [1e18, 1e300, float("nan")])
def test_an_instant_that_no_calendar_has_is_not_remembered(memories: PersistMemoryService, do: Do, timestamp: float) -> None:
    call = memories.add_events_to_memory(**NAMES, events=[event("hello", timestamp=timestamp)])
    refused(do, call, "no instant of a calendar")


def test_words_behind_a_nul_are_found(memories: PersistMemoryService, do: Do) -> None:
    entry = MemoryEntry(id="1", content=types.Content(parts=[types.Part(text="before \0 zebra 中文字")]))
    do(memories.add_memory(**NAMES, memories=[entry]))
    for word in ("before", "zebra", "中", "文字"):
        assert do(memories.search_memory(**NAMES, query=word)).memories == [entry]
