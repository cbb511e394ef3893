"""What everybody else sees of a session: the chat, the command line, forks, retention, copies, the log of events."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from persist import AsyncStore, Store
from persist.cli import main
from persist.integrations.openai_agents import PersistSession
from persist.maintenance import copy, export, import_, prune, rebuild
from tests.integrations.kits import Do
from tests.integrations.openai_agents.conftest import Session

CALL: Any = {"type": "function_call", "call_id": "call_0", "name": "weather", "arguments": '{"city":"Faro"}', "id": "fc_1"}
OUTPUT: Any = {"type": "function_call_output", "call_id": "call_0", "output": "sunny"}
TALK: list[Any] = [
    {"role": "user", "content": "What is the weather?"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I have to ask."}]},
    CALL,
    OUTPUT,
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}],
    },
]


def parts(look: Store, name: str = "user-1") -> list[tuple[str, list[Any]]]:
    with look.read() as tx:
        return [(message["role"], message["parts"]) for message in tx.chat.messages.list(name)]


def test_a_chat_shows_messages_reasoning_and_calls_with_their_results(session: Session, do: Do, look: Store) -> None:
    do(session().add_items(TALK))
    tool = {
        "type": "tool-weather",
        "toolCallId": "call_0",
        "state": "output-available",
        "input": {"city": "Faro"},
        "output": "sunny",
    }
    assert parts(look) == [
        ("user", [{"type": "text", "text": "What is the weather?"}]),
        ("assistant", [{"type": "reasoning", "text": "I have to ask.", "state": "done"}]),
        ("assistant", [tool]),
        ("assistant", [{"type": "data-openai-agents", "data": {"type": "function_call_output", "toolCallId": "call_0"}}]),
        ("assistant", [{"type": "text", "text": "Sunny."}]),
    ]
    with look.read() as tx:
        assert json.loads(tx.chat.messages.list_json("user-1")) == tx.chat.messages.list("user-1")


SHOWN: dict[str, tuple[Any, str, Any]] = {
    "developer": ({"role": "developer", "content": "Be brief."}, "system", {"type": "text", "text": "Be brief."}),
    "refusal": (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        "assistant",
        {"type": "text", "text": "No."},
    ),
    "image": (
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
        "user",
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"},
    ),
    "file": (
        {"role": "user", "content": [{"type": "input_file", "file_url": "https://example.org/a.pdf"}]},
        "user",
        {"type": "file", "mediaType": "application/octet-stream", "url": "https://example.org/a.pdf"},
    ),
    "audio": (
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
        "user",
        {"type": "data-openai-agents", "data": {"type": "input_audio"}},
    ),
    "waiting call": (
        {"type": "custom_tool_call", "call_id": "c", "name": "grep", "input": "no JSON {"},
        "assistant",
        {"type": "tool-grep", "toolCallId": "c", "state": "input-available", "input": "no JSON {"},
    ),
    "odd name": (
        {"type": "function_call", "call_id": "c\x00", "name": "two words", "arguments": "[NaN]"},
        "assistant",
        {"type": "dynamic-tool", "toolName": "two words", "toolCallId": "c\x00", "state": "input-available", "input": "[NaN]"},
    ),
    "hosted call": (
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}},
        "assistant",
        {
            "type": "tool-web_search",
            "toolCallId": "ws_1",
            "state": "output-available",
            "input": {"action": {"query": "x"}},
            "output": None,
            "providerExecuted": True,
        },
    ),
    "unknown": ({"type": "compaction", "x": 1}, "assistant", {"type": "data-openai-agents", "data": {"type": "compaction"}}),
}


@pytest.mark.parametrize(("item", "role", "part"), SHOWN.values(), ids=list(SHOWN))
def test_every_item_has_a_way_to_be_shown(session: Session, do: Do, look: Store, item: Any, role: str, part: Any) -> None:
    do(session().add_items([item]))
    assert parts(look) == [(role, [part])]


def test_a_call_shows_the_output_that_is_stored_for_it_now(session: Session, do: Do, look: Store) -> None:
    ours = session()

    def states() -> list[tuple[str, Any]]:
        return [(part[0]["state"], part[0].get("output")) for _, part in parts(look) if part[0]["type"] == "tool-weather"]

    do(ours.add_items([CALL]))
    assert states() == [("input-available", None)]
    do(ours.add_items([OUTPUT]))
    do(ours.add_items([CALL]))  # providers use ids again
    assert states() == [("output-available", "sunny"), ("input-available", None)]
    do(ours.add_items([{**OUTPUT, "output": [{"type": "input_text", "text": "rain"}]}]))
    assert states() == [("output-available", "sunny"), ("output-available", [{"type": "input_text", "text": "rain"}])]
    do(ours.pop_item())
    assert states() == [("output-available", "sunny"), ("input-available", None)]
    do(ours.add_items([{**OUTPUT, "call_id": "another"}, OUTPUT]))
    assert [state for state, _ in states()] == ["output-available", "output-available"]
    do(session("user-2").add_items([OUTPUT]))
    assert [kind["type"] for _, (kind,) in parts(look, "user-2")] == ["data-openai-agents"]


def test_a_call_without_an_output_is_found_and_repairing_changes_no_item(
    session: Session, do: Do, look: Store, clock: Any
) -> None:
    do(session().add_items([*TALK[:3]]))
    clock.advance(seconds=3600)
    with look.begin() as tx:
        assert tx.chat.messages.repair_interrupted("user-1") == 1
    assert do(session().get_items()) == TALK[:3]
    do(session().add_items([OUTPUT]))
    assert do(session().get_items()) == TALK[:4]


def test_the_command_line_shows_a_session(session: Session, do: Do, database_url: str) -> None:
    do(session().add_items(TALK))
    runner = CliRunner()
    listed = runner.invoke(main, ["ls", "--url", database_url])
    shown = runner.invoke(main, ["show", "user-1", "--url", database_url])
    assert (listed.exit_code, shown.exit_code) == (0, 0)
    assert "user-1" in listed.stdout
    for words in ("What is the weather?", "I have to ask.", "tool weather", "output-available", "sunny", "Sunny."):
        assert words in shown.stdout


def test_a_fork_is_a_session_of_its_own(session: Session, do: Do, look: Store) -> None:
    do(session().add_items(TALK))
    with look.begin() as tx:
        listed = tx.chat.messages.list("user-1")
        child = tx.chat.sessions.fork("user-1", listed[1]["id"]).id
    do(session(child).add_items([{"role": "user", "content": "Another way."}]))
    assert do(session(child).get_items()) == [*TALK[:2], {"role": "user", "content": "Another way."}]
    assert do(session().get_items()) == TALK


def test_what_a_rewind_hides_is_no_item_until_it_is_shown_again(session: Session, do: Do, look: Store) -> None:
    ours = session()
    do(ours.add_items(TALK))
    with look.begin() as tx:
        first = tx.chat.messages.list("user-1")[0]["id"]
        assert tx.chat.sessions.rewind("user-1", first) == 4
    assert do(ours.get_items()) == do(ours.get_items(3)) == TALK[:1]
    with look.begin() as tx:
        tx.chat.sessions.unrewind("user-1", first)
    assert do(ours.get_items()) == TALK
    with look.begin() as tx:
        tx.chat.sessions.rewind("user-1", first)
    assert do(ours.pop_item()) == TALK[0]
    do(ours.clear_session())
    with look.read() as tx:
        assert tx.chat.messages.list("user-1", include_hidden=True) == []


def test_usage_recorded_for_an_item_goes_with_it(session: Session, do: Do, look: Store) -> None:
    ours = session()

    def spent() -> int:
        with look.begin() as tx:
            newest = tx.chat.messages.list("user-1")[-1]["id"]
            tx.chat.messages.record_step_usage(newest, 0, input_tokens=10, output_tokens=1)
            return tx.chat.sessions.get("user-1").total_tokens

    do(ours.add_items(TALK[:2]))
    assert spent() == 11
    do(ours.pop_item())
    with look.read() as tx:
        assert tx.chat.sessions.get("user-1").total_tokens == 0
    do(ours.add_items(TALK[1:2]))
    assert spent() == 11
    do(ours.clear_session())
    with look.read() as tx:
        assert tx.chat.sessions.get("user-1").total_tokens == 0


def test_sessions_nobody_used_are_pruned_and_start_anew(session: Session, do: Do, look: Store, clock: Any) -> None:
    do(session("old").add_items(TALK))
    clock.advance(seconds=3600)
    do(session("new").add_items(TALK))
    prune(look, "chat", older_than=timedelta(minutes=30))
    assert (do(session("old").get_items()), do(session("new").get_items())) == ([], TALK)
    do(session("old").add_items(TALK[:1]))
    assert do(session("old").get_items()) == TALK[:1]


def test_items_survive_export_and_copying_between_databases(
    session: Session, do: Do, look: Store, new_database: Callable[[], str], tmp_path: Path, clock: Any
) -> None:
    odd: list[Any] = [*TALK, {"z": "nul \x00 half \ud800", "a": 10**30}]
    do(session().add_items(odd))
    with Store.open(new_database(), clock=clock) as copied, Store.open(new_database(), clock=clock) as imported:
        copy(look, copied)
        export(look, tmp_path / "all.jsonl", session_id="user-1")
        import_(imported, tmp_path / "all.jsonl")
        for other in (copied, imported):
            assert json.dumps(do(PersistSession("user-1", other).get_items())) == json.dumps(odd)


def test_the_log_of_events_rebuilds_a_session(
    session: Session, do: Do, look: Store, store: Store | AsyncStore, new_database: Callable[[], str], clock: Any
) -> None:
    look.switch_events(True)
    ours = session()
    do(ours.add_items(TALK))
    do(ours.pop_item())
    do(ours.clear_session())
    do(ours.add_items(TALK[:4]))
    with look.read() as tx:
        kinds = [event.type for event in tx.events.read("user-1")]
    assert kinds == ["message.appended", "message.deleted", "session.cleared", "message.appended"]
    with Store.open(new_database(), clock=clock) as rebuilt:
        rebuild(look, rebuilt, "user-1")
        assert do(PersistSession("user-1", rebuilt).get_items()) == TALK[:4]
        assert parts(rebuilt) == parts(look)
