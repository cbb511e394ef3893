"""Hydration: what a front end's reducer gets, also from rows that another program wrote or broke."""

import json
import logging
from typing import Any

import pytest

from tests.contract.chat.scenes import create, record, say, shown, text, turn, words
from tests.contract.conftest import Raw


def test_an_empty_metadata_object_is_no_key(store: Any, session: str) -> None:
    say(store, session, "plain")
    say(store, session, "told", metadata={"k": None})
    plain, told = shown(store, session)
    assert set(plain) == {"id", "role", "parts"}
    assert told["metadata"] == {"k": None}


def test_parts_come_by_index_and_verbatim(store: Any, raw: Raw, session: str) -> None:
    message = say(store, session, "0")
    for index in (7, 3, 5):
        data = json.dumps({"type": "data-n", "data": index, "unknown": [None]})
        raw.rows(
            'INSERT INTO chat_parts (id, message_id, session_id, "index", type, data_json, created_at, updated_at)'
            " VALUES (?, ?, ?, ?, 'data-n', ?, 0, 0)",
            f"prt_{index}",
            message,
            session,
            index,
            data,
        )
    (found,) = shown(store, session)
    assert [part.get("data") for part in found["parts"]] == [None, 3, 5, 7]
    assert found["parts"][1] == {"type": "data-n", "data": 3, "unknown": [None]}


def test_reading_costs_two_queries_however_many_messages(counted_store: Any, statements: list[str]) -> None:
    store, session = counted_store, create(counted_store)
    for number in range(5):
        record(store, session, turn(*text(str(number))))
    shown(store, session)  # its connection is there from now on
    statements.clear()
    assert len(shown(store, session)) == 5
    few = len(statements)
    for number in range(20):
        record(store, session, turn(*text(str(number))))
    statements.clear()
    assert len(shown(store, session)) == 25
    assert len(statements) == few
    assert sum("chat_messages" in statement or "chat_parts" in statement for statement in statements) == 2


def test_a_growing_part_is_read_with_its_tail(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed({"type": "tool-input-start", "toolCallId": "c", "toolName": "bash"})
        for piece in ('{"command": "l', "s -", "la"):
            recorder.feed({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": piece})
            with store.read() as tx:
                listed = tx.chat.messages.list(session)
                assert listed[0]["parts"][0]["input"]["command"].endswith(piece[-1])
                assert listed == shown(other, session)
                assert json.loads(tx.chat.messages.list_json(session)) == listed
                assert tx.chat.messages.get(listed[0]["id"]) == listed[0]
        assert listed[0]["parts"][0]["rawInput"] == '{"command": "ls -la'


@pytest.fixture(params=["not json", "[1]", '"text"', "", "{"])
def broken(request: pytest.FixtureRequest, sqlite_store: Any, sqlite_url: str, open_raw: Any) -> str:
    """A session whose first message nobody can read. Only SQLite can hold it: Postgres refuses text that is not JSON."""
    session = create(sqlite_store)
    first = say(sqlite_store, session, "lost", metadata={"k": 1})
    say(sqlite_store, session, "kept")
    raw = open_raw(sqlite_url)
    raw.rows("UPDATE chat_messages SET metadata_json = ? WHERE id = ?", request.param, first)
    raw.rows("UPDATE chat_parts SET data_json = ? WHERE message_id = ?", request.param, first)
    return session


def test_unreadable_json_is_left_out_and_reported(sqlite_store: Any, broken: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "persist"):
        assert [(message["parts"], message.get("metadata")) for message in shown(sqlite_store, broken)] == [
            ([], None),
            ([{"type": "text", "text": "kept"}], None),
        ]
    assert "part" in caplog.text
    with sqlite_store.read() as tx:
        assert words(tx.chat.messages.model_view(broken)) == ["", "kept"]


def test_list_json_is_json_whatever_is_stored(sqlite_store: Any, broken: str) -> None:
    with sqlite_store.read() as tx:
        assert json.loads(tx.chat.messages.list_json(broken)) == tx.chat.messages.list(broken)
