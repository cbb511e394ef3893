"""A `start` that names a stored message continues it, wherever it was left."""

from typing import Any

import pytest

from persist import Settings
from persist.errors import Conflict, InvalidValue, PayloadTooLarge
from tests.cases import each
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
    record(store, session, [start("m"), *text("anew", id="another")])
    assert shown(store, session)[0]["parts"] == [
        {"type": "text", "text": "cut o", "state": "streaming"},
        {"type": "text", "text": "anew", "state": "done"},
    ]


@pytest.mark.parametrize("kind", ["text", "reasoning"])
def test_a_start_that_names_an_open_part_goes_on_with_it(store: Any, other: Any, session: str, kind: str) -> None:
    def chunks(*pieces: str, id: str) -> list[dict[str, Any]]:
        return [{**chunk, "type": chunk["type"].replace("text", kind)} for chunk in text(*pieces, id=id)]

    record(
        other, session, [start("m"), *step(*chunks("done", id="a"), *chunks("cut ", id="b")[:-1], *chunks("o", id="c")[:-1])][:-1]
    )
    with store.record(session) as recorder:
        recorder.feed(start("m"))
        recorder.feed(chunks(id="c")[0])
        recorder.feed_many(chunks("f", "f", id="c")[1:-1])
        recorder.feed({**chunks(id="b")[0], "providerMetadata": {"p": {"n": 1}}})
        recorder.feed(chunks("here", id="b")[1])
        for chunk in chunks("!", id="b")[1:]:
            recorder.feed(chunk)
        recorder.feed_many(chunks("new", id="a"))
    parts = [(part["text"], part["state"]) for part in shown(other, session)[0]["parts"][1:]]
    assert parts == [("done", "done"), ("cut here!", "done"), ("off", "streaming"), ("new", "done")]
    assert shown(other, session)[0]["parts"][2]["providerMetadata"] == {"p": {"n": 1}}


def test_an_open_part_is_named_once_and_in_its_own_step_only(store: Any, session: str) -> None:
    cut = text("cut o")[:-1]
    record(store, session, [start("m"), {"type": "start-step"}, *cut])
    record(store, session, [start("m"), *text("ff"), *text("anew")])
    record(store, session, [start("n"), {"type": "start-step"}, *cut])
    record(store, session, [start("n"), {"type": "start-step"}, *text("again")])
    record(store, session, [start("o"), *cut])
    record(store, session, [start("o"), {"type": "finish-step"}, *text("again")])
    told = [[part["text"] for part in message["parts"] if "text" in part] for message in shown(store, session)]
    assert told == [["cut off", "anew"], ["cut o", "again"], ["cut o", "again"]]


def test_a_long_open_part_goes_on_and_its_limit_stays(open_store: Any) -> None:
    store = open_store(settings=Settings(max_json_bytes=400_000))
    session = create(store)
    record(store, session, [start("m"), *text("x" * 300_000)[:-1]])
    with store.record(session) as recorder:
        recorder.feed_many([start("m"), text()[0]])
        with pytest.raises(PayloadTooLarge):
            recorder.feed(text("y" * 100_001)[1])
        for chunk in text("y" * 50_000, "y" * 40_000)[1:]:
            recorder.feed(chunk)
    assert words(shown(store, session)) == ["x" * 300_000 + "y" * 90_000]


def test_a_refused_start_leaves_the_open_part_to_be_named(store: Any, session: str) -> None:
    record(store, session, [start("m"), *text("cut o")[:-1]])
    with store.record(session) as recorder:
        recorder.feed(start("m"))
        with pytest.raises(InvalidValue):
            recorder.feed({**text()[0], "providerMetadata": {"p": {"n": float("nan")}}})
        recorder.feed_many(text("ff"))
    assert words(shown(store, session)) == ["cut off"]


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


@each("policy", ["chunk", "step", "turn"])
def test_a_stream_may_come_back_to_a_message_of_its_own(store: Any, policy: str) -> None:
    session = create(store)
    chunks = [start("one"), *text("a"), start("two"), *text("b"), start("one"), *text("c"), {"type": "finish"}]
    record(store, session, chunks, save_on=policy)
    assert [(message["id"], words([message])[0]) for message in shown(store, session)] == [("one", "ac"), ("two", "b")]
    store.chat.sessions.delete(session)


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
