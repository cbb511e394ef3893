"""Buffered text: written by size, by time, and with every structural chunk, also when the stream stalls."""

from typing import Any

import pytest

from persist.settings import Settings
from tests.cases import each
from tests.contract.chat.scenes import call, create, eventually, shown, text, words
from tests.contract.conftest import Raw

DAY = 86_400_000


def durable(other: Any, session: str) -> str:
    return "".join(words(shown(other, session)))


def delta(piece: str) -> dict[str, Any]:
    return {"type": "text-delta", "id": "t", "delta": piece}


def test_a_stalled_stream_is_flushed_by_the_timer(store: Any, other: Any, session: str) -> None:
    """The store's own clock stands still meanwhile."""
    with store.record(session, buffer_ms=50) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        recorder.feed(delta("no further chunk comes"))
        assert eventually(lambda: durable(other, session) == "no further chunk comes")
        recorder.feed(delta(", until it does"))
        assert eventually(lambda: durable(other, session).endswith("does"))


def test_the_byte_limit_flushes(store: Any, other: Any, session: str) -> None:
    with store.record(session, buffer_bytes=10, buffer_ms=DAY) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        recorder.feed(delta("12345"))
        recorder.feed(delta("6789"))
        assert durable(other, session) == ""
        recorder.feed(delta("0"))
        assert durable(other, session) == "1234567890"
        recorder.feed(delta("üüüü"))  # eight bytes
        assert durable(other, session) == "1234567890"
        recorder.feed(delta("üü"))
        assert durable(other, session) == "1234567890üüüüüü"


@each(
    "structural",
    [
        {"type": "text-end", "id": "t"},
        {"type": "text-start", "id": "u"},
        call("bash", "c"),
        {"type": "start-step"},
        {"type": "finish-step"},
        {"type": "data-x", "data": 1},
        {"type": "message-metadata", "messageMetadata": {"k": 1}},
        {"type": "finish"},
        {"type": "abort"},
        {"type": "error", "errorText": "e"},
    ],
    ids=lambda chunk: chunk["type"],
)
def test_a_structural_chunk_flushes_at_once(store: Any, other: Any, structural: dict[str, Any]) -> None:
    session = create(store)
    with store.record(session, buffer_bytes=1_000_000, buffer_ms=DAY) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        recorder.feed(delta("waits"))
        assert durable(other, session) == ""
        recorder.feed(structural)
        assert durable(other, session) == "waits"


@pytest.mark.parametrize("options", [{"buffer_ms": DAY}, {"save_on": "step"}], ids=["buffered", "by step"])
def test_a_fold_takes_only_what_is_stored(open_store: Any, other: Any, raw: Raw, options: dict[str, Any]) -> None:
    """What still waits is written later, once: it is neither ahead of its time nor there twice."""
    store = open_store(settings=Settings(fold_ms=50))
    session = create(store)
    with store.record(session, **options) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        recorder.flush()
        for stored, waiting in (("a", "b"), ("c", "d"), ("e", "f")):
            before = durable(other, session)
            recorder.feed(delta(stored))
            recorder.flush()
            recorder.feed(delta(waiting))
            assert eventually(lambda: raw.count("chat_part_deltas") == 0)
            assert durable(other, session) == before + stored
            recorder.flush()
            assert durable(other, session) == before + stored + waiting
    assert durable(other, session) == "abcdef"


def test_zero_disables_a_trigger_and_both_zero_is_no_buffer(store: Any, other: Any) -> None:
    for options, after_one in (({"buffer_bytes": 3, "buffer_ms": 0}, ""), ({"buffer_bytes": 0, "buffer_ms": 0}, "a")):
        session = create(store)
        with store.record(session, **options) as recorder:
            recorder.feed({"type": "text-start", "id": "t"})
            recorder.feed(delta("a"))
            assert durable(other, session) == after_one
            recorder.feed(delta("bc"))
            assert durable(other, session) == "abc"


def test_buffering_changes_no_row(store: Any, session: str) -> None:
    pieces = [str(number) for number in range(200)]
    sessions = [session, create(store), create(store)]
    for id, options in zip(sessions, ({}, {"buffer_bytes": 64}, {"buffer_bytes": 7, "buffer_ms": 1}), strict=True):
        with store.record(id, **options) as recorder:
            for chunk in text(*pieces):
                recorder.feed(chunk)
    assert [shown(store, id)[0]["parts"] for id in sessions] == [[{"type": "text", "text": "".join(pieces), "state": "done"}]] * 3


def test_the_store_writes_what_waits_when_it_is_closed(open_store: Any) -> None:
    store, other = open_store(), open_store()
    session = create(store)
    recorder = store.record(session, save_on="turn")
    recorder.__enter__()
    recorder.feed_many(text("waits")[:-1])
    store.close()
    assert durable(other, session) == "waits"
    assert shown(other, session)[0]["parts"][0]["state"] == "streaming"
    store.close()
