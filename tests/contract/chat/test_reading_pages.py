"""Pages of messages as JSON, and as rows with their instants."""

from datetime import timedelta
from typing import Any

import orjson
import pytest

from persist.errors import InvalidValue, NotFound
from tests.cases import each
from tests.contract.chat.posts import waits
from tests.contract.chat.scenes import create, record, say, shown, text, turn

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
    with store.read() as tx:
        assert orjson.loads(tx.chat.messages.list_json(talk, **page)) == expected
        rows = tx.chat.messages.list_rows(talk, **page)
    assert [(row.id, row.role, row.metadata) for row in rows] == [
        (message["id"], message["role"], message.get("metadata", {})) for message in expected
    ]


def test_a_row_says_when(store: Any, clock: Any, session: str) -> None:
    asked, at = say(store, session, "asked"), clock()
    changed = clock.advance(seconds=5)
    with store.begin() as tx:
        updated = tx.chat.messages.update_metadata(asked, {"a": 1})
    with store.read() as tx:
        (row,) = tx.chat.messages.list_rows(session)
    assert (row.created_at, row.updated_at, row.session_id) == (at, changed, session)
    assert row == updated
    assert changed - at == timedelta(seconds=5)


def test_a_page_has_text_that_is_not_folded_yet(store: Any, session: str) -> None:
    say(store, session, "tell me")
    with store.record(session) as recorder:
        recorder.feed_many(waits(text("Once ", "upon ", "a time")[:-1], "a1"))
        with store.read() as tx:
            page = tx.chat.messages.list_json(session, limit=1)
        assert orjson.loads(page) == shown(store, session)[1:]


def test_a_page_has_large_files(store: Any, session: str) -> None:
    file = {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{'A' * 100_000}"}
    with store.begin() as tx:
        for parts in ([], [file], [file, file], [{"type": "text", "text": "no file"}]):
            tx.chat.messages.append(session, role="user", parts=parts)
    for page in ({"limit": 3}, {"limit": 2, "files": "reference"}):
        with store.read() as tx:
            assert orjson.loads(tx.chat.messages.list_json(session, **page)) == tx.chat.messages.list(session, **page)


@pytest.mark.parametrize("verb", ["list_json", "list_rows"])
def test_a_page_of_nothing_is_refused_as_a_list_is(store: Any, talk: str, verb: str) -> None:
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
