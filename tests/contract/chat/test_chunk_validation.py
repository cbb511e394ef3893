"""Bad chunks are refused one by one; unknown ones are counted; the recorder goes on."""

from typing import Any

import pytest

from persist.errors import Closed, InvalidValue, StreamProtocolError
from tests.cases import each
from tests.contract.chat.scenes import create, shown, text, words
from tests.contract.conftest import Raw
from tests.streams.vectors import cases


def refused(recorder: Any, chunk: Any) -> bool:
    try:
        recorder.feed(chunk)
    except StreamProtocolError:
        return False  # a good chunk at the wrong time
    except InvalidValue:
        return True
    return False


def test_the_same_chunks_are_refused_as_by_the_sdk(store: Any, session: str) -> None:
    """(c) 7: but message metadata is an object here, because its column holds one."""
    wrong, seen = [], []
    for ai_sdk, case in cases("chunk_validation"):
        chunk = case["chunk"]
        if case in seen:
            continue  # both majors judge nearly all chunks alike
        seen.append(case)
        accepted = case["accepted"] and isinstance(chunk.get("messageMetadata"), dict | None)
        with store.record(session, ai_sdk=ai_sdk) as recorder:
            bad = refused(recorder, chunk)
            unknown = recorder.ignored == 1
        if not (unknown or bad != accepted):
            wrong.append(case)
    assert wrong == []


def test_a_bad_chunk_writes_nothing_and_the_recorder_goes_on(store: Any, raw: Raw, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        for bad in (
            {"type": "text-delta", "id": "t"},
            {"type": "text-delta", "id": "t", "delta": 5},
            {"type": "text-delta", "id": None, "delta": "x"},
            {"type": "start", "messageId": None},
            {"type": "tool-input-available", "toolCallId": "c", "toolName": "bash", "input": float("nan")},
            {"type": "data-x", "data": {1: "a"}},
            {"id": "t"},
            "text-delta",
            None,
        ):
            before = raw.rows("SELECT data_json, updated_at FROM chat_parts")
            with pytest.raises(InvalidValue) as refusal:
                recorder.feed(bad)
            assert not isinstance(refusal.value, StreamProtocolError)
            assert raw.rows("SELECT data_json, updated_at FROM chat_parts") == before
        recorder.feed({"type": "text-delta", "id": "t", "delta": "fine"})
    assert words(shown(store, session)) == ["fine"]


def test_extra_keys_are_fine(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t", "extra": [1]})
        recorder.feed({"type": "source-url", "sourceId": "s", "url": "https://example.org", "extra": 1})
    assert shown(store, session)[0]["parts"] == [
        {"type": "text", "text": "", "state": "streaming"},
        {"type": "source-url", "sourceId": "s", "url": "https://example.org"},
    ]


def test_chunks_of_unknown_type_are_counted_and_change_nothing(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        assert recorder.ignored == 0
        for kind in ("tool-input-progress", "media-video", ""):
            recorder.feed({"type": kind, "anything": object})
        assert recorder.ignored == 3
        assert recorder.message_id is None
        recorder.feed_many([{"type": "later"}, *text("x"), {"type": "later still"}])
        assert recorder.ignored == 5
    assert words(shown(store, session)) == ["x"]


def test_many_chunks_are_kept_up_to_the_bad_one(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        with pytest.raises(InvalidValue):
            recorder.feed_many([*text("a", "b")[:2], {"type": "text-delta", "id": "t", "delta": None}, *text("c")[1:]])
        assert words(shown(other, session)) == ["a"]
        recorder.feed_many(text("c")[1:])
    assert words(shown(store, session)) == ["ac"]


def test_many_chunks_are_kept_up_to_the_one_out_of_sequence(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        with pytest.raises(StreamProtocolError) as refusal:
            recorder.feed_many([*text("a"), {"type": "text-end", "id": "t"}, *text("lost")])
        assert refusal.value.index == 3
        assert words(shown(other, session)) == ["a"]
        with pytest.raises(Closed):
            recorder.feed_many(text("b"))


def test_no_chunks_are_no_work(store: Any, raw: Raw, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([])
        recorder.flush()
    assert (raw.count("chat_messages"), raw.count("chat_turns")) == (0, 0)


def test_a_backlog_is_one_transaction_and_one_write_for_each_part(counted_store: Any, statements: list[str]) -> None:
    store, session = counted_store, create(counted_store)
    pieces = ["x"] * 500
    with store.record(session) as recorder:
        recorder.feed({"type": "start-step"})
        statements.clear()
        recorder.feed_many([*text(*pieces, id="a"), *text(*pieces, id="b")])
        writes = [one for one in statements if one.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE"))]
    assert sum("chat_parts" in one for one in writes) == 2
    assert len(writes) <= 6
    assert words(shown(store, session)) == ["x" * 1000]


def test_server_sent_events_are_parsed_line_by_line(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        for line in (
            ": a comment",
            "event: message",
            'data: {"type":"text-start","id":"t"}\n',
            b'data: {"type":"text-delta","id":"t","delta":"\xc3\xbc"}\r\n',
            'data:{"type":"text-end","id":"t"}',
            "",
            "data: [DONE]\n\n",
        ):
            recorder.feed_sse(line)
    assert shown(store, session)[0]["parts"] == [{"type": "text", "text": "ü", "state": "done"}]


@each("line", ["data: nonsense", "data: [1]", 'data: "text"', b"data: \xff", "not a field"])
def test_a_frame_that_is_no_json_object_is_reported(store: Any, line: str | bytes) -> None:
    session = create(store)
    with store.record(session) as recorder:
        with pytest.raises(InvalidValue):
            recorder.feed_sse(line)
        recorder.feed_many(text("goes on"))
    assert words(shown(store, session)) == ["goes on"]


def test_a_recorder_needs_its_session_and_its_end_is_final(store: Any, session: str) -> None:
    with pytest.raises(LookupError), store.record("ses_nowhere"):
        raise AssertionError("entered")
    recorder = store.record(session)
    with recorder:
        recorder.feed_many(text("x"))
    recorder.close()
    for use in (lambda: recorder.feed({"type": "finish"}), recorder.flush, lambda: recorder.feed_many([])):
        with pytest.raises(Closed):
            use()
