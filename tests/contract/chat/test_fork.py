"""Forking: a child with a copy of what was visible through the fork point, and a parent that does not change."""

from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound
from tests.contract.chat.scenes import MODEL, call, create, output, record, rollup, say, session_of, shown, text, turn, words
from tests.contract.conftest import Raw


def fork(store: Any, session: str, point: str, **options: Any) -> Any:
    with store.begin() as tx:
        return tx.chat.sessions.fork(session, point, **options)


def snapshot(raw: Raw, session: str) -> list[Any]:
    return [
        raw.rows("SELECT * FROM chat_sessions WHERE id = ?", session),
        raw.rows("SELECT * FROM chat_messages WHERE session_id = ? ORDER BY id", session),
        raw.rows("SELECT * FROM chat_parts WHERE session_id = ? ORDER BY id", session),
    ]


@pytest.fixture
def talk(store: Any, clock: Any) -> tuple[str, list[str]]:
    """A session of two turns with tools and usage -> its id, the ids of its four messages."""
    session = create(store, workspace_root="/repo", metadata={"title": "Fix", "ephemeral": True, "k": 1, "o": {"a": 1}})
    with store.begin() as tx:
        tx.chat.sessions.add_permission(session, {"permission": "bash", "pattern": "*", "action": "allow"})
    for number in (1, 2):
        clock.advance(seconds=1)
        say(store, session, f"question {number}", metadata={"custom": number})
        message = record(store, session, turn(*text("answer"), call("bash", "call_0", {}), output("call_0", number)))
        with store.begin() as tx:
            tx.chat.messages.record_step_usage(message, 0, input_tokens=10 * number, output_tokens=1, cost_usd=0.5)
    clock.advance(seconds=1)
    return session, [message["id"] for message in shown(store, session)]


def test_a_child_has_new_ids_and_the_same_content(store: Any, raw: Raw, clock: Any, talk: tuple[str, list[str]]) -> None:
    session, ids = talk
    before = snapshot(raw, session)
    child = fork(store, session, ids[2])
    parent_view, child_view = shown(store, session)[:3], shown(store, child.id)
    assert [{**message, "id": None} for message in child_view] == [{**message, "id": None} for message in parent_view]
    assert not {message["id"] for message in child_view} & set(ids)
    stamps = "SELECT created_at FROM chat_messages WHERE session_id = ? ORDER BY created_at"
    assert raw.rows(stamps, child.id) == raw.rows(stamps, session)[:3]
    indexes = 'SELECT p."index" FROM chat_parts p WHERE p.session_id = ? ORDER BY p.message_id, p."index"'
    assert len(raw.rows(indexes, child.id)) == sum(len(message["parts"]) for message in child_view)
    assert snapshot(raw, session) == before
    assert (child.created_at, child.updated_at) == (clock(), clock())


def test_a_child_copies_agent_model_and_workspace_but_no_permissions(store: Any, talk: tuple[str, list[str]]) -> None:
    session, ids = talk
    child = fork(store, session, ids[1], metadata={"k": 2, "new": True})
    assert (child.agent, child.model, child.workspace_root) == ("build", MODEL, "/repo")
    assert (child.parent_id, child.parent_message_id, child.permissions) == (session, ids[1], [])
    assert child.metadata == {"title": "Fix (copy)", "k": 2, "new": True, "o": {"a": 1}}
    assert session_of(store, child.id) == child


def test_a_given_title_stands_and_an_untitled_parent_gives_none(store: Any, session: str, talk: tuple[str, list[str]]) -> None:
    assert fork(store, talk[0], talk[1][0], metadata={"title": "Mine"}).metadata["title"] == "Mine"
    assert "title" not in fork(store, session, say(store, session, "hi")).metadata


def test_a_childs_rollups_are_those_of_its_copies(store: Any, talk: tuple[str, list[str]]) -> None:
    session, ids = talk
    assert rollup(store, fork(store, session, ids[0]).id) == (0, 0, 0, 0, 0, 0)
    assert rollup(store, fork(store, session, ids[1]).id) == (10, 1, 0, 0, 0, 11)
    assert rollup(store, fork(store, session, ids[3]).id) == rollup(store, session) == (30, 2, 0, 0, 0, 32)


def test_only_visible_messages_are_copied(store: Any, talk: tuple[str, list[str]]) -> None:
    session, ids = talk
    with store.begin() as tx:
        tx.chat.sessions.rewind(session, ids[2])
        tx.chat.messages.enqueue(session, parts=[{"type": "text", "text": "waits"}])
    after = say(store, session, "after the rewind")
    child = fork(store, session, after)
    assert words(shown(store, child.id, include_hidden=True)) == ["question 1", "answer", "question 2", "after the rewind"]
    with store.read() as tx:
        assert tx.chat.messages.queued(child.id) == []


def test_no_child_is_made_at_a_point_that_is_none(store: Any, raw: Raw, talk: tuple[str, list[str]]) -> None:
    """(c) 15"""
    session, ids = talk
    stranger = say(store, create(store), "elsewhere")
    with store.begin() as tx:
        tx.chat.sessions.rewind(session, ids[2])
        queued = tx.chat.messages.enqueue(session, parts=[]).id
    count = raw.count("chat_sessions")
    for point, error in ((ids[3], InvalidValue), (queued, InvalidValue), (stranger, NotFound), ("msg_nowhere", NotFound)):
        with store.begin() as tx, pytest.raises(error):
            tx.chat.sessions.fork(session, point)
    with store.begin() as tx, pytest.raises(NotFound):
        tx.chat.sessions.fork("ses_nowhere", ids[0])
    assert raw.count("chat_sessions") == count


def test_a_running_parent_cannot_be_forked(store: Any, raw: Raw, talk: tuple[str, list[str]]) -> None:
    session, ids = talk
    with store.record(session) as recorder:
        recorder.feed({"type": "start-step"})
        with store.begin() as tx, pytest.raises(Conflict):
            tx.chat.sessions.fork(session, ids[0])
    assert raw.count("chat_sessions") == 1
    fork(store, session, ids[0])


def test_a_compaction_of_the_child_names_the_childs_copy(store: Any, raw: Raw, talk: tuple[str, list[str]]) -> None:
    """(c) 14"""
    session, ids = talk
    with store.begin() as tx:
        marker = tx.chat.messages.compact(session, summary="so far", tail_start_id=ids[2], auto=True, summary_tokens=5)
    before = snapshot(raw, session)
    child = fork(store, session, marker.id)
    copies = shown(store, child.id)
    assert copies[4]["parts"][0]["data"]["tail_start_id"] == copies[2]["id"]
    with store.read() as tx:
        assert words(tx.chat.messages.model_view(child.id)) == ["so far", "question 2", "answer"]
    assert rollup(store, child.id) == rollup(store, session)
    assert child.permissions == []
    assert snapshot(raw, session) == before


def test_a_child_goes_on_by_itself(store: Any, talk: tuple[str, list[str]]) -> None:
    session, ids = talk
    child = fork(store, session, ids[3])
    say(store, child.id, "only here")
    record(store, child.id, turn(*text("and here")))
    assert words(shown(store, child.id))[4:] == ["only here", "and here"]
    assert len(shown(store, session)) == 4


def test_unfolded_text_is_copied_whole(store: Any, open_store: Any, session: str) -> None:
    """A turn that ended in an error is not running, and its text may still be a tail."""
    say(store, session, "hi")
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "m"}, *text("a")[:-1]])
        recorder.feed({"type": "text-delta", "id": "t", "delta": "b"})
        recorder.feed({"type": "error", "errorText": "e"})
        recorder.feed({"type": "text-delta", "id": "t", "delta": "c"})
        child = fork(store, session, "m")
    assert words(shown(store, child.id)) == ["hi", "abc"]
