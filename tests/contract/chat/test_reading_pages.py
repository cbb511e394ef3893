"""Pages of messages as JSON, and as rows with their instants."""

import json
import logging
from datetime import timedelta
from typing import Any

import orjson
import pytest

from persist.errors import InvalidValue, NotFound
from tests.cases import each
from tests.contract.chat.posts import waits
from tests.contract.chat.scenes import create, record, say, shown, text, turn, words
from tests.contract.conftest import Raw

PAGES: list[dict[str, Any]] = [
    {},
    {"limit": 2},
    {"limit": 0},
    {"limit": 100},
    {"before": "u2"},
    {"before": "a2", "limit": 2},
    {"before": "u1"},
    {"limit": 3, "include_hidden": True},
    {"before": "a3", "include_hidden": True},
]


@pytest.fixture
def talk(store: Any, clock: Any, session: str) -> str:
    """u1 a1 u2 a2 u3 a3, of which the last two are hidden, and one that waits."""
    for number in (1, 2, 3):
        say(store, session, f"question {number}", id=f"u{number}", metadata={"number": number})
        clock.advance(seconds=1)
        record(store, session, turn(*text(f"answer {number}"), id=f"a{number}"))
    with store.begin() as tx:
        tx.chat.messages.enqueue(session, parts=[])
        assert tx.chat.sessions.rewind(session, before="u3") == 2
    return session


@each("page", PAGES, ids=str)
def test_a_page_is_the_same_in_every_form(store: Any, talk: str, page: dict[str, Any]) -> None:
    expected = shown(store, talk, **page)
    assert orjson.loads(store.chat.messages.list_json(talk, **page)) == expected
    rows = store.chat.messages.list_rows(talk, **page)
    assert [(row.id, row.role, row.metadata) for row in rows] == [
        (message["id"], message["role"], message.get("metadata", {})) for message in expected
    ]


def test_a_row_says_when(store: Any, clock: Any, session: str) -> None:
    asked, at = say(store, session, "asked"), clock()
    changed = clock.advance(seconds=5)
    updated = store.chat.messages.update_metadata(asked, {"a": 1})
    (row,) = store.chat.messages.list_rows(session)
    assert (row.created_at, row.updated_at, row.session_id) == (at, changed, session)
    assert row == updated
    assert changed - at == timedelta(seconds=5)


def test_a_page_has_text_that_is_not_folded_yet(store: Any, session: str) -> None:
    say(store, session, "tell me")
    with store.record(session) as recorder:
        recorder.feed_many(waits(text("Once ", "upon ", "a time")[:-1], "a1"))
        page = store.chat.messages.list_json(session, limit=1)
        assert orjson.loads(page) == shown(store, session)[1:]


def test_a_page_has_large_files(store: Any, session: str) -> None:
    file = {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{'A' * 100_000}"}
    with store.begin() as tx:
        for parts in ([], [file], [file, file], [{"type": "text", "text": "no file"}]):
            tx.chat.messages.append(session, role="user", parts=parts)
    for page in ({"limit": 3}, {"limit": 2, "files": "reference"}):
        assert orjson.loads(store.chat.messages.list_json(session, **page)) == store.chat.messages.list(session, **page)


@pytest.mark.parametrize("verb", ["list", "list_json", "list_rows"])
def test_a_page_of_nothing_is_refused(store: Any, talk: str, verb: str) -> None:
    elsewhere = say(store, create(store), "elsewhere")
    refusals: list[tuple[str, dict[str, Any], type[Exception]]] = [
        ("nowhere", {"limit": 5}, NotFound),
        ("nowhere", {"before": "u1"}, NotFound),
        (talk, {"before": "nothing"}, NotFound),
        (talk, {"before": elsewhere}, NotFound),
        (talk, {"limit": -1}, InvalidValue),
        (talk, {"limit": "5"}, InvalidValue),
    ]
    with store.read() as tx:
        for session, page, error in refusals:
            with pytest.raises(error):
                getattr(tx.chat.messages, verb)(session, **page)


# What a message costs in statements, and transcripts whose rows are not what this store would have written.


WORDS = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


def run(statements: list[str]) -> list[str]:
    """The first words of what was run, transactions aside."""
    firsts = [statement.split(None, 1)[0].upper() for statement in statements]
    return [first for first in firsts if first in WORDS]


def test_the_value_of_an_appended_message_is_not_the_callers(store: Any) -> None:
    session, given = create(store), {"tags": ["a"]}
    made = store.chat.messages.append(session, role="user", parts=[], metadata=given)
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
    assert [message["parts"] for message in json.loads(store.chat.messages.list_json(session))] == [wanted, parts[:1]]


def test_an_empty_session_is_an_empty_array_and_an_unknown_one_is_not_found(store: Any, session: str) -> None:
    with store.read() as tx:
        assert tx.chat.messages.list_json(session) == b"[]"
        assert tx.chat.messages.list(session) == []
        for verb in (tx.chat.messages.list, tx.chat.messages.list_json):
            with pytest.raises(NotFound):
                verb("ses_nobody")


def test_metadata_that_only_mentions_hiding_hides_nothing(store: Any, session: str) -> None:
    metadata = {"note": 'hidden_at" queued_at"', "hidden_at": None, "nested": {"hidden_at": 1}}
    made = store.chat.messages.append(session, role="user", parts=[], metadata=metadata)
    assert [message["id"] for message in shown(store, session)] == [made.id]
    assert [message["id"] for message in json.loads(store.chat.messages.list_json(session))] == [made.id]


# Hydration: what a front end's reducer gets, also from rows that another program wrote or broke.


def test_an_empty_metadata_object_is_no_key(store: Any, session: str) -> None:
    say(store, session, "plain")
    say(store, session, "told", metadata={"k": None})
    plain, told = shown(store, session)
    assert set(plain) == {"id", "role", "parts"}
    assert told["metadata"] == {"k": None}


def test_a_growing_part_is_read_with_its_tail(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed({"type": "tool-input-start", "toolCallId": "c", "toolName": "bash"})
        for piece in ('{"command": "l', "s -", "la"):
            recorder.feed({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": piece})
            listed = store.chat.messages.list(session)
            assert listed[0]["parts"][0]["input"]["command"].endswith(piece[-1])
            assert listed == shown(other, session)
            assert json.loads(store.chat.messages.list_json(session)) == listed
            assert store.chat.messages.get(listed[0]["id"]) == listed[0]
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
        found = [(message["parts"], message.get("metadata")) for message in shown(sqlite_store, broken)]
        assert found == [([], None), ([{"type": "text", "text": "kept"}], None)]
    assert "part" in caplog.text
    assert words(sqlite_store.chat.messages.model_view(broken)) == ["", "kept"]


def test_list_json_is_json_whatever_is_stored(sqlite_store: Any, broken: str) -> None:
    assert json.loads(sqlite_store.chat.messages.list_json(broken)) == sqlite_store.chat.messages.list(broken)
