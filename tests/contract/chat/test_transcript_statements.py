"""What a message costs in statements, and transcripts whose rows are not what this store would have written."""

import json
from typing import Any

import pytest

from persist.errors import NotFound
from tests.contract.chat.scenes import create, say, session_of, shown
from tests.contract.conftest import Raw

WORDS = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


def run(statements: list[str]) -> list[str]:
    """The first words of what was run, transactions aside."""
    firsts = [statement.split(None, 1)[0].upper() for statement in statements]
    return [first for first in firsts if first in WORDS]


def test_appending_a_message_writes_three_rows_and_asks_nothing(
    counted_store: Any, statements: list[str], clock: Any, database_url: str
) -> None:
    session = create(counted_store)
    locked = [] if database_url.startswith("sqlite") else ["SELECT"]  # travels with the others
    made = []
    for milliseconds in (1, 0, 1):
        clock.advance(seconds=milliseconds / 1000)
        statements.clear()
        with counted_store.begin() as tx:
            message = tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "hi"}], metadata={"a": [1]})
        made.append(message.id)
        assert run(statements) == [*locked, "UPDATE", "INSERT", "INSERT"]
        assert session_of(counted_store, session).updated_at == message.created_at == clock()
    assert [message["id"] for message in shown(counted_store, session)] == made


def test_a_transcript_is_two_queries(counted_store: Any, statements: list[str]) -> None:
    session = create(counted_store)
    say(counted_store, session, "one")
    say(counted_store, session, "two")
    statements.clear()
    found = shown(counted_store, session)
    assert (len(found), run(statements)) == (2, ["SELECT", "SELECT"])
    statements.clear()
    with counted_store.read() as tx:
        assert json.loads(tx.chat.messages.list_json(session)) == found
    assert run(statements) == ["SELECT", "SELECT"]  # all of it; and whether any part of the database is growing


def test_a_refused_append_leaves_its_transaction_usable(store: Any) -> None:
    session = create(store)
    with store.begin() as tx:
        with pytest.raises(NotFound):
            tx.chat.messages.append("ses_nobody", role="user", parts=[])
        kept = tx.chat.messages.append(session, role="user", parts=[])
    assert [message["id"] for message in shown(store, session)] == [kept.id]


def test_the_value_of_an_appended_message_is_not_the_callers(store: Any) -> None:
    session, given = create(store), {"tags": ["a"]}
    with store.begin() as tx:
        made = tx.chat.messages.append(session, role="user", parts=[], metadata=given)
    given["tags"].append("b")
    assert made.metadata == {"tags": ["a"]}


@pytest.mark.parametrize("state", ["done", "streaming"])
def test_parts_come_in_the_order_of_their_indexes_whatever_their_rows_say(store: Any, raw: Raw, session: str, state: str) -> None:
    """Other programs leave gaps, and write in any order."""
    parts = [{"type": "text", "text": f'"streaming" {number}', "state": state} for number in range(4)]
    with store.begin() as tx:
        tx.chat.messages.append(session, role="assistant", parts=parts)
        tx.chat.messages.append(session, role="assistant", parts=parts[:1])
    for old, new in ((0, 40), (1, 10), (2, 30), (3, 20)):
        raw.rows(
            f'UPDATE chat_parts SET "index" = {new} WHERE "index" = {old} AND message_id = (SELECT min(id) FROM chat_messages)'
        )
    wanted = [parts[place] for place in (1, 3, 2, 0)]
    assert [message["parts"] for message in shown(store, session)] == [wanted, parts[:1]]
    with store.read() as tx:
        assert [message["parts"] for message in json.loads(tx.chat.messages.list_json(session))] == [wanted, parts[:1]]


def test_an_empty_session_is_an_empty_array_and_an_unknown_one_is_not_found(store: Any, session: str) -> None:
    with store.read() as tx:
        assert tx.chat.messages.list_json(session) == b"[]"
        assert tx.chat.messages.list(session) == []
        for verb in (tx.chat.messages.list, tx.chat.messages.list_json):
            with pytest.raises(NotFound):
                verb("ses_nobody")


def test_metadata_that_only_mentions_hiding_hides_nothing(store: Any, session: str) -> None:
    metadata = {"note": 'hidden_at" queued_at"', "hidden_at": None, "nested": {"hidden_at": 1}}
    with store.begin() as tx:
        made = tx.chat.messages.append(session, role="user", parts=[], metadata=metadata)
    assert [message["id"] for message in shown(store, session)] == [made.id]
    with store.read() as tx:
        assert [message["id"] for message in json.loads(tx.chat.messages.list_json(session))] == [made.id]
