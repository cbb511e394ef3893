"""Messages and records that other programs, or other releases of Pydantic AI, wrote."""

import logging
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from persist.cli import main
from persist.errors import StoreCorrupt
from persist.integrations.pydantic_ai import PersistConversationStore
from tests.integrations.pydantic_ai.conftest import Do
from tests.integrations.pydantic_ai.scenes import conversation, said, turns

Execute = Callable[[str], int]

NO_MESSAGES = {
    "number": "5",
    "null": "null",
    "list": "[]",
    "nothing": "{}",
    "no parts": '{"kind": "request"}',
    "a later part": '{"kind": "request", "parts": [{"part_kind": "later"}]}',
}


@pytest.mark.parametrize("bad", NO_MESSAGES)
def test_json_that_is_no_message_is_left_out_of_a_conversation(
    conversations: PersistConversationStore, do: Do, execute: Execute, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    do(conversations.save(conversation("c", "one", "two")))
    entries = do(conversations.load_entries("c"))
    assert execute(f"UPDATE history_entries SET message_json = '{NO_MESSAGES[bad]}' WHERE id = '{entries[1].id}'") == 1
    with caplog.at_level(logging.WARNING, "persist"):
        loaded = do(conversations.load("c"))
    assert [entries[1].id in record.getMessage() for record in caplog.records] == [True]
    assert said(loaded.messages) == ["one", "two", "two!"]
    assert said(do(conversations.load("c", limit=2)).messages) == ["two", "two!"]
    with pytest.raises(StoreCorrupt, match="none of Pydantic AI"):
        do(conversations.read_entry(entries[1].id))
    loaded.messages.extend(turns("three"))
    do(conversations.save(loaded))
    assert said(do(conversations.load("c")).messages) == ["one", "two", "two!", "three", "three!"]
    assert execute(f"UPDATE history_entries SET message_json = '{{}}' WHERE id <> '{entries[0].id}'") == 5
    assert said(do(conversations.load("c")).messages) == ["one"]


@pytest.mark.parametrize("bad", ["5", "[]", "null", '"x"', '{"input_tokens": "x"}'])
def test_a_record_that_is_none_is_listed_and_shown(
    conversations: PersistConversationStore, do: Do, execute: Execute, database_url: str, bad: str
) -> None:
    do(conversations.save(conversation("c", "one")))
    assert execute(f"UPDATE history_records SET usage_json = '{bad}'") == 1
    with pytest.raises(StoreCorrupt, match="no conversation of Pydantic AI"):
        do(conversations.load("c"))
    for command in (["ls", "histories"], ["show", "c"]):
        result = CliRunner().invoke(main, [*command, "--url", database_url])
        assert result.exit_code == 0, result.exception
        assert "c" in result.output
