"""`feed_sse` takes the bytes or the text of a stream as they come, and records every frame once."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from persist import Settings, Store
from persist.chat.reducer import reduce
from persist.errors import Closed, InvalidValue, PayloadTooLarge, StoreBusy, StreamProtocolError, TransactionOpen
from tests.cases import each
from tests.contract.chat.scenes import Chunk, create, shown, text, turn, words
from tests.contract.conftest import Raw
from tests.markdown import ROOT

ANSWER = (ROOT / "examples" / "answer.sse").read_bytes()


def sse(*chunks: Chunk) -> str:
    return "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks)


def blocks(stream: bytes, size: int) -> Iterator[bytes]:
    return (stream[at : at + size] for at in range(0, len(stream), size))


@each("size", [97, 1500, 100_000])
def test_blocks_of_any_size_make_the_message(store: Any, size: int) -> None:
    session = create(store)
    with store.record(session) as recorder:
        for block in blocks(ANSWER, size):
            recorder.feed_sse(block)
    chunks = [json.loads(frame[6:]) for frame in ANSWER.decode().split("\n\n") if frame.startswith("data: {")]
    assert shown(store, session) == [reduce(chunks)]
    store.chat.sessions.delete(session)


def test_separators_that_json_leaves_raw_come_through(store: Any, session: str) -> None:
    stream = "\ufeff" + sse(*turn(*text("one\u2028two", "\u2029\x85", "three")))
    with store.record(session) as recorder:
        for block in blocks(stream.encode(), 7):
            recorder.feed_sse(block)
        recorder.feed_sse(sse(*turn(*text("four\u2028five"))).replace('"id"', '\ndata: "id"'))
    assert words(shown(store, session)) == ["one\u2028two\u2029\x85threefour\u2028five"]


def test_a_line_that_was_cut_there_is_refused_and_the_others_are_recorded(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        refused = []
        for line in sse(*text("one", "a\u2028b", "two")).splitlines():
            try:
                recorder.feed_sse(line)
            except InvalidValue as error:
                refused.append(error.reason)
    assert len(refused) == 1
    assert "U+2028" in refused[0]
    assert words(shown(store, session)) == ["onetwo"]


def test_a_call_is_durable_when_it_returns(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_sse(sse(*text("a", "b")[:3]))
        assert words(shown(other, session)) == ["ab"]
        recorder.feed_sse('data: {"type":"text-delta","id":"t","delta":"c"}')  # its end is still to come
        assert words(shown(other, session)) == ["abc"]
        recorder.feed_sse('\n\ndata: {"type":"text-delta","id":"t","delta":"d"}\n\ndata: {"type":"text-delta","id"')
        assert words(shown(other, session)) == ["abcd"]
        recorder.feed_sse(':"t","delta":"e"}\n')
        assert words(shown(other, session)) == ["abcde"]


def test_what_is_refused_keeps_nothing_else_from_being_recorded(store: Any, session: str) -> None:
    bad = {"type": "text-delta", "id": "t", "delta": 5}
    first, second, *rest = text("a", "b", "c")
    block = sse(first, second) + "data: nonsense\n\n" + sse(rest[0], bad) + "field\n" + sse(*rest[1:])
    with store.record(session) as recorder:
        with pytest.raises(InvalidValue, match="nonsense"):
            recorder.feed_sse(block)
        with pytest.raises(InvalidValue, match=r"text-delta\.delta"):
            recorder.feed_sse(sse(bad) + sse(*text("d", id="u")[:2]))
        recorder.feed_sse(sse(*text("e", id="u")[1:]))
    assert [(part["text"], part["state"]) for part in shown(store, session)[0]["parts"]] == [("abc", "done"), ("de", "done")]


def test_parts_that_are_too_large_together_are_told_apart(open_store: Any) -> None:
    store = open_store(settings=Settings(max_json_bytes=1_000))
    session = create(store)
    call = {"type": "tool-input-available", "toolCallId": "c", "toolName": "bash", "input": "x" * 600}
    large = {"type": "tool-output-available", "toolCallId": "c", "output": "y" * 600}
    with store.record(session) as recorder, pytest.raises(PayloadTooLarge):
        recorder.feed_sse(sse(*text("a"), call, large, *text("b", id="u")))
    assert [part.get("text", part.get("state")) for part in shown(store, session)[0]["parts"]] == ["a", "input-available", "b"]


def test_a_frame_out_of_sequence_ends_the_recording(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        with pytest.raises(StreamProtocolError):
            recorder.feed_sse(sse(*text("a"), {"type": "text-end", "id": "nobody"}, *text("lost")))
        with pytest.raises(Closed):
            recorder.feed_sse(sse(*text("b")))
        recorder.feed_sse("data: [DONE]\n\n: nothing to record\n")
    assert words(shown(store, session)) == ["a"]


def test_a_frame_over_the_limit_is_refused_and_not_held(open_store: Any) -> None:
    store = open_store(settings=Settings(max_json_bytes=1_000))
    session = create(store)
    with store.record(session) as recorder:
        recorder.feed_sse(sse(*text("a")[:2]) + 'data: {"type":"text-delta","id":"t","delta":"')
        for _ in range(7):
            recorder.feed_sse(b"x" * 500)
        with pytest.raises(PayloadTooLarge) as refusal:
            recorder.feed_sse(b"x" * 500)
        assert refusal.value.limit == 4_000
        for _ in range(7):
            recorder.feed_sse(b"x" * 500)
        recorder.feed_sse('"}\n\n' + sse(*text("b")[1:]))
    assert words(shown(store, session)) == ["ab"]


@each("rest", ['data: {"type":"text-del', "data: {\n", b'data: {"type":"\xc3'])
def test_a_stream_that_breaks_off_is_told_once_and_nothing_is_lost(store: Any, rest: str | bytes) -> None:
    session = create(store)
    recorder = store.record(session)
    recorder.feed_sse(sse(*text("kept")))
    recorder.feed_sse(rest)
    with pytest.raises(InvalidValue, match="ended in the middle of a frame"):
        recorder.close()
    recorder.close()
    assert words(shown(store, session)) == ["kept"]
    with store.record(session) as again:  # the turn was given up
        again.feed_sse(sse(*turn(*text("more"))))


def test_an_exception_is_not_hidden_by_the_frame_that_it_cut(store: Any, session: str) -> None:
    def broken() -> None:
        with store.record(session) as recorder:
            recorder.feed_sse(sse(*text("kept")) + 'data: {"ty')
            raise ConnectionError

    with pytest.raises(ConnectionError):
        broken()
    assert words(shown(store, session)) == ["kept"]


def test_the_last_frame_may_lack_its_blank_line(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_sse(sse(*text("a")) + 'data: {"type":')
        recorder.feed_sse('"finish"}')
    with store.record(session) as recorder:
        recorder.feed_sse(sse(*text("b"))[:-12])
        recorder.feed_sse(sse(*text("b"))[-12:].strip())
    assert words(shown(store, session)) == ["a", "b"]
    assert shown(store, session)[1]["parts"][0]["state"] == "done"


@pytest.mark.parametrize("again", [True, False], ids=["the same call again", "the next call"])
def test_a_call_that_failed_may_be_made_again(store: Any, session: str, again: bool) -> None:
    block, rest = sse(*text("a", "b"))[:-9], sse(*text("a", "b"))[-9:] + sse(*text("c"))
    with store.record(session) as recorder:
        with store.begin(), pytest.raises(TransactionOpen):
            recorder.feed_sse(block)
        if again:
            recorder.feed_sse(block)
        recorder.feed_sse(rest)
    assert words(shown(store, session)) == ["abc"]


def test_a_busy_file_loses_and_doubles_nothing(sqlite_url: str, open_raw: Any) -> None:
    with Store.open(sqlite_url, settings=Settings(busy_timeout_ms=10)) as store:
        session = create(store)
        raw: Raw = open_raw(sqlite_url)
        with store.record(session) as recorder:
            recorder.feed_sse(sse(*text("a")[:2]))
            raw.rows("BEGIN IMMEDIATE")
            block = sse(*text("b", "c")[1:]) + 'data: {"type"'
            for _ in range(3):
                with pytest.raises(StoreBusy):
                    recorder.feed_sse(block)
            raw.rows("ROLLBACK")
            recorder.feed_sse(block)
            recorder.feed_sse(':"finish"}\n\n')
        assert words(shown(store, session)) == ["abc"]
