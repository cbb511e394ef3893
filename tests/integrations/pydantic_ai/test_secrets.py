"""What is stored stands in no error of the conversations, nor in those that one comes from, nor in the log."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import InvalidValue, StoreCorrupt
from persist.integrations.pydantic_ai import PersistConversationStore
from tests.integrations.pydantic_ai.conftest import Do
from tests.integrations.pydantic_ai.scenes import AT, conversation
from tests.integrations.telling import SECRET, require_silence

PROMPT = {"part_kind": "user-prompt", "content": {"a": SECRET}, "timestamp": SECRET}
NO_MESSAGES: dict[str, Any] = {
    "a value": {"kind": "request", "parts": [PROMPT]},
    "a kind": {"kind": SECRET, "parts": []},
    "a text": SECRET,
}


@pytest.mark.parametrize("bad", NO_MESSAGES)
def test_a_message_that_cannot_be_read_is_not_told(
    conversations: PersistConversationStore, do: Do, execute: Callable[[str], int], bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    do(conversations.save(conversation("c", "one", "two")))
    entries = do(conversations.load_entries("c"))
    assert execute(f"UPDATE history_entries SET message_json = '{json.dumps(NO_MESSAGES[bad])}' WHERE id = '{entries[1].id}'")
    with caplog.at_level(logging.DEBUG):
        do(conversations.load("c"))
        assert entries[1].id in caplog.text
        with pytest.raises(StoreCorrupt, match="none of Pydantic AI") as caught:
            do(conversations.read_entry(entries[1].id))
    require_silence(caught, caplog)


def test_what_json_does_not_say_is_not_told_either(
    conversations: PersistConversationStore, do: Do, execute: Callable[[str], int]
) -> None:
    do(conversations.save(conversation("c", "one")))
    entry = do(conversations.load_entries("c"))[0]
    for extra in ([[[SECRET, "x"], "float", "1"]], [[["x"], "float", SECRET]], [[[0, "x"], "bytes", SECRET]]):
        assert execute(f"UPDATE history_entries SET extra_json = '{json.dumps(extra)}' WHERE id = '{entry.id}'") == 1
        with pytest.raises(StoreCorrupt, match="none of Pydantic AI") as caught:
            do(conversations.read_entry(entry.id))
        require_silence(caught)


def test_a_record_that_is_none_is_not_told(
    conversations: PersistConversationStore, do: Do, execute: Callable[[str], int]
) -> None:
    do(conversations.save(conversation("c", "one")))
    for column, bad in (
        ("usage_json", {"input_tokens": SECRET}),
        ("usage_json", {"details": {SECRET: "x"}}),
        ("deferred_json", {"calls": [{"tool_name": [SECRET]}]}),
    ):
        assert execute(f"UPDATE history_records SET {column} = '{json.dumps(bad)}'") == 1
        with pytest.raises(StoreCorrupt, match="no conversation of Pydantic AI") as caught:
            do(conversations.load("c"))
        require_silence(caught)


def test_a_message_that_is_refused_is_not_told(conversations: PersistConversationStore, do: Do) -> None:
    given = conversation("c", "one")
    wrong: Any = given.messages[0]
    wrong.parts[0].content = {"a": SECRET}
    assert wrong.parts[0].timestamp == AT
    with pytest.raises(InvalidValue) as caught:
        do(conversations.save(given))
    require_silence(caught)
