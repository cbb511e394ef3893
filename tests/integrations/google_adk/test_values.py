"""Values that databases and serializers change come back as they were."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.events.event import Event, NodeInfo
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from persist.cli import main
from persist.errors import InvalidValue, StoreCorrupt
from persist.integrations.google_adk import InvalidArgument, PersistArtifactService, PersistMemoryService, PersistSessionService
from tests.integrations.alike_keys import ALIKE, NONE, NULL
from tests.integrations.google_adk.scenes import APP, FILE, ID, NAMES, USER, create, event, get
from tests.integrations.kits import Do

HARD = "Naïve\x00 text \ud83d \ufdd0 stays 😀 what it was."
VALUES: dict[str, Any] = {
    "zulu": [1, {"z": None, "a": [True, False, {}]}],
    "big": [2**63, -(2**63) - 1, 2**200],
    "float": [0.1, -0.0, 1e308, 5e-324, float("inf")],
    "text": HARD,
    "alpha": {"b": 1, "a": {HARD: HARD}, "": 0},
    "none": None,
}


def everything() -> Event:
    """An event with something in nearly every field."""
    parts = [
        types.Part(text=HARD, thought=True, thought_signature=b"\x00\xfe"),
        types.Part(inline_data=types.Blob(data=bytes(range(256)), mime_type="image/png", display_name="x")),
        types.Part(function_call=types.FunctionCall(id="c", name="f", args=VALUES)),
        types.Part(function_response=types.FunctionResponse(id="c", name="f", response={"result": VALUES})),
        types.Part(file_data=types.FileData(file_uri="gs://bucket/x", mime_type="a/b")),
    ]
    return Event(
        author="agent",
        invocation_id="i-1",
        content=types.Content(role="model", parts=parts),
        actions=EventActions(
            state_delta=VALUES,
            artifact_delta={"f.txt": 3},
            skip_summarization=False,
            transfer_to_agent="other",
            requested_tool_confirmations={"c": ToolConfirmation(hint="?", payload=VALUES)},
            compaction=EventCompaction(start_timestamp=0.5, end_timestamp=1.5, compacted_content=types.Content(role="user")),
            agent_state=VALUES,
            route=["a", 1, True],
        ),
        output=VALUES,
        node_info=NodeInfo(path="wf/a@1", output_for=["wf"]),
        long_running_tool_ids={"c", "b"},
        branch="a.b",
        timestamp=1_700_000_000.123456,
        custom_metadata=VALUES,
        finish_reason=types.FinishReason.STOP,
        usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=5),
        grounding_metadata=types.GroundingMetadata(web_search_queries=["q"]),
        error_code="429",
        error_message=HARD,
        turn_complete=True,
        interrupted=False,
        avg_logprobs=-0.5,
    )


async def test_every_field_of_an_event_comes_back(sessions: PersistSessionService) -> None:
    session = await create(sessions, VALUES)
    assert list(session.state) == list(VALUES)
    given = everything()
    await sessions.append_event(session, given)
    given, found = given, await get(sessions)
    assert found.events == [given]
    assert found.state == VALUES
    assert json.dumps(found.state) == json.dumps(VALUES), "the order of keys, and the sign of zero"
    assert json.dumps(found.events[0].custom_metadata) == json.dumps(VALUES)
    assert found.events[0].model_dump() == given.model_dump()


async def test_not_a_number_stays_one(sessions: PersistSessionService) -> None:
    session = await create(sessions)
    given = event(delta={"user:n": [float("nan")]}, custom_metadata={"n": float("nan")}, output=float("-inf"))
    await sessions.append_event(session, given)
    found = await get(sessions)
    assert math.isnan(found.state["user:n"][0])
    metadata = found.events[0].custom_metadata
    assert metadata is not None
    assert math.isnan(metadata["n"])
    assert found.events[0].output == -math.inf


async def test_values_with_a_json_form_are_stored_in_it(sessions: PersistSessionService) -> None:
    """As in the framework's own database: it stores credentials in the state, for one."""
    session = await create(sessions, {"at": datetime(2026, 1, 2, tzinfo=UTC), "several": {3}})
    credential = AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="k")
    await sessions.append_event(session, event(delta={"credential": credential, "pair": (1, 2)}))
    found = await get(sessions)
    assert (found.state["at"], found.state["several"], found.state["pair"]) == ("2026-01-02T00:00:00Z", [3], [1, 2])
    assert AuthCredential.model_validate(found.state["credential"]).api_key == "k"


@dataclass
class Plan:
    steps: Any


@pytest.mark.parametrize("alike", [*ALIKE, NULL, Plan(ALIKE[0])], ids=repr)
async def test_two_keys_that_are_one_in_json_are_refused(store: Any, alike: Any) -> None:
    sessions, artifacts = PersistSessionService(store), PersistArtifactService(store)
    for value in (alike, Plan(NONE)):
        with pytest.raises(InvalidArgument, match="one key in JSON"):
            await create(sessions, {"app:plan": value}, id="refused")
    session = await create(sessions)
    for given in (event(delta={"plan": alike}), event(custom_metadata={"plan": alike}), event(output=alike)):
        with pytest.raises(InvalidArgument, match="one key in JSON"):
            await sessions.append_event(session, given)
    with pytest.raises(InvalidArgument, match="one key in JSON"):
        await artifacts.save_artifact(**NAMES, filename="f", artifact=types.Part(text="hi"), custom_metadata={"plan": alike})
    assert await artifacts.list_artifact_keys(**NAMES) == []
    found = await get(sessions)
    assert (found.state, found.events) == ({}, [])


# What other programs wrote into the tables is reported as such, and arguments of a wrong kind are refused by a sentence.


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
