"""A `start` that names a stored message continues it, wherever it was left."""

from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue
from tests.contract.chat.scenes import create, output, record, say, shown, step, text, turn, words
from tests.contract.conftest import Raw


def start(id: str) -> dict[str, Any]:
    return {"type": "start", "messageId": id}


def test_indexes_continue_after_the_last_stored_part(store: Any, raw: Raw, session: str) -> None:
    record(store, session, turn(*text("one"), id="m"))
    record(store, session, turn(*text("two"), id="m"))
    (message,) = shown(store, session)
    assert words([message]) == ["onetwo"]
    assert raw.rows('SELECT p."index" FROM chat_parts p ORDER BY p."index"') == [(index,) for index in range(4)]


def test_a_gap_in_the_indexes_is_stepped_over(store: Any, raw: Raw, session: str) -> None:
    record(store, session, turn(*text("one"), id="m"))
    raw.rows('UPDATE chat_parts SET "index" = 7 WHERE type = ?', "text")
    record(store, session, [start("m"), *text("two")])
    assert raw.rows('SELECT p."index" FROM chat_parts p ORDER BY p."index"') == [(0,), (7,), (8,)]
    assert words(shown(store, session)) == ["onetwo"]


def test_a_streaming_input_goes_on_from_what_was_received(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([start("m"), {"type": "tool-input-start", "toolCallId": "c", "toolName": "bash"}])
        recorder.feed({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"command":"l'})
    with store.record(session) as recorder:
        recorder.feed(start("m"))
        recorder.feed({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": 's"}'})
    (part,) = shown(store, session)[0]["parts"]
    assert (part["rawInput"], part["input"], part["state"]) == ('{"command":"ls"}', {"command": "ls"}, "input-streaming")


def test_open_text_of_a_dead_turn_stays_as_it_is(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([start("m"), *text("cut o")[:-1]])
    record(store, session, [start("m"), *text("anew")])
    assert shown(store, session)[0]["parts"] == [
        {"type": "text", "text": "cut o", "state": "streaming"},
        {"type": "text", "text": "anew", "state": "done"},
    ]


def test_metadata_goes_on_from_what_is_stored(store: Any, session: str) -> None:
    record(store, session, [{**start("m"), "messageMetadata": {"a": 1, "o": {"x": 1}}}, *text("x"), {"type": "finish"}])
    record(store, session, [{**start("m"), "messageMetadata": {"b": 2, "o": {"y": 2}}}, *text("x"), {"type": "finish"}])
    assert shown(store, session)[0]["metadata"] == {"a": 1, "b": 2, "o": {"x": 1, "y": 2}}


def test_a_resumed_message_keeps_its_place(store: Any, clock: Any, session: str) -> None:
    record(store, session, turn(*text("first"), id="m"))
    clock.advance(seconds=1)
    say(store, session, "second")
    record(store, session, turn(*text("!"), id="m"))
    assert words(shown(store, session)) == ["first!", "second"]


@pytest.mark.parametrize("policy", ["chunk", "step", "turn"])
def test_a_stream_may_come_back_to_a_message_of_its_own(store: Any, session: str, policy: str) -> None:
    chunks = [start("one"), *text("a"), start("two"), *text("b"), start("one"), *text("c"), {"type": "finish"}]
    record(store, session, chunks, save_on=policy)
    assert [(message["id"], words([message])[0]) for message in shown(store, session)] == [("one", "ac"), ("two", "b")]


def test_a_backlog_may_come_back_to_a_message_of_its_own(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([start("one"), *text("a"), start("two"), *text("b"), start("one"), *text("c"), {"type": "finish"}])
    assert words(shown(store, session)) == ["ac", "b"]


def test_the_same_start_again_is_the_same_message(store: Any, session: str) -> None:
    record(store, session, [start("m"), *text("a"), start("m"), *text("b"), {"type": "start"}, *text("c"), {"type": "finish"}])
    assert [(message["id"], words([message])[0]) for message in shown(store, session)] == [("m", "abc")]


def test_a_start_without_an_id_gets_one(store: Any, session: str) -> None:
    id = record(store, session, [{"type": "start"}, *text("a"), {"type": "finish"}])
    assert id is not None
    assert id.startswith("msg_")
    assert shown(store, session)[0]["id"] == id


def test_a_message_of_another_session_is_a_conflict(store: Any, session: str) -> None:
    other = create(store)
    record(store, other, turn(*text("theirs"), id="m"))
    with store.record(session) as recorder:
        with pytest.raises(Conflict):
            recorder.feed(start("m"))
        recorder.feed_many([start("mine"), *text("fine")])
    assert words(shown(store, other)) == ["theirs"]
    assert [message["id"] for message in shown(store, session)] == ["mine"]


def test_an_empty_id_is_refused(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        with pytest.raises(InvalidValue):
            recorder.feed(start(""))
        recorder.feed_many(text("fine"))
    assert len(shown(store, session)) == 1


def test_a_resumed_part_can_be_finished(store: Any, raw: Raw, session: str) -> None:
    record(
        store, session, [start("m"), *step({"type": "tool-input-available", "toolCallId": "c", "toolName": "bash", "input": 1})]
    )
    before = raw.rows("SELECT id FROM chat_parts ORDER BY id")
    record(store, session, [start("m"), output("c", 2), {"type": "finish"}])
    assert raw.rows("SELECT id FROM chat_parts ORDER BY id") == before
    assert shown(store, session)[0]["parts"][1]["output"] == 2
