"""A step that is reset leaves the transcript: its parts, their deltas, and what readers and later recorders see of them."""

from collections.abc import Callable
from typing import Any

import pytest

from persist import Store
from persist.chat.reducer import reduce
from persist.chat.reducer.parts import LONG
from persist.errors import Conflict, StoreBusy
from persist.settings import Settings
from tests.cases import each
from tests.contract.chat.scenes import call, create, output, record, rollup, say, shown, step, text, turn, words
from tests.contract.conftest import Raw
from tests.streams.vectors import VECTORS

RESET = {"type": "reset-step"}
FINISH = {"type": "finish"}
ATTEMPT = [*text("a bad", " answer")[:-1], call("bash", "c1", {"cmd": "rm"}), {"type": "data-note", "id": "n", "data": 1}]
GOOD = [{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "good"}, {"type": "text-end", "id": "t"}]


def start(id: str = "m") -> dict[str, Any]:
    return {"type": "start", "messageId": id}


STREAM = [start(), *step(*text("kept")), {"type": "start-step"}, *ATTEMPT, RESET, *GOOD, {"type": "finish-step"}, FINISH]


def indexes(raw: Raw) -> list[int]:
    return [row[0] for row in raw.rows('SELECT "index" FROM chat_parts ORDER BY "index"')]


def test_every_chunk_leaves_what_the_reducer_has(store: Any, other: Any, raw: Raw, session: str) -> None:
    with store.record(session) as recorder:
        for count, chunk in enumerate(STREAM, start=1):
            recorder.feed(chunk)
            if count > 1:
                assert shown(other, session) == [reduce(STREAM[:count])]
                assert indexes(raw) == list(range(len(reduce(STREAM[:count])["parts"])))
    assert words(shown(store, session)) == ["keptgood"]
    assert raw.count("chat_part_deltas") == 0


@pytest.mark.parametrize("policy", ["step", "turn"])
def test_what_was_never_written_is_not_written(store: Any, raw: Raw, session: str, policy: str) -> None:
    record(store, session, STREAM, save_on=policy)
    assert shown(store, session) == [reduce(STREAM)]
    assert indexes(raw) == [0, 1, 2, 3]


def test_one_call_with_several_attempts(store: Any, raw: Raw, session: str) -> None:
    chunks = [start(), {"type": "start-step"}, *ATTEMPT, RESET, *ATTEMPT, RESET, *GOOD, RESET, *GOOD, FINISH]
    with store.record(session) as recorder:
        recorder.feed_many(chunks[:4])
        recorder.feed_many(chunks[4:])
    assert shown(store, session) == [reduce(chunks)]
    assert indexes(raw) == [0, 1]


@pytest.mark.parametrize("buffer", [{"buffer_bytes": 1000}, {"buffer_ms": 3_600_000}], ids=["bytes", "ms"])
def test_buffered_text_of_the_attempt_is_dropped(store: Any, raw: Raw, session: str, buffer: dict[str, int]) -> None:
    with store.record(session, **buffer) as recorder:
        for chunk in STREAM:
            recorder.feed(chunk)
    assert shown(store, session) == [reduce(STREAM)]
    assert raw.count("chat_part_deltas") == 0


@each("died_after", range(3, len(STREAM)))
def test_another_recorder_resets_what_a_dead_one_left(store: Any, other: Any, raw: Raw, died_after: int) -> None:
    """The attempt may be stored whole, half, with unfolded text, or not at all."""
    session = create(store)
    dead = other.record(session)
    for chunk in STREAM[:died_after]:
        dead.feed(chunk)
    again = [start(), RESET, *GOOD, {"type": "finish-step"}, FINISH]
    record(store, session, again, takeover=True)
    assert shown(store, session) == [reduce(again, reduce(STREAM[:died_after]))]
    assert indexes(raw) == list(range(len(shown(store, session)[0]["parts"])))
    assert raw.count("chat_part_deltas") == 0
    with pytest.raises(Conflict):
        dead.feed(RESET)
    assert words(shown(store, session))[0].endswith("good")
    store.chat.sessions.delete(session)


def test_a_recorder_that_lost_its_turn_removes_nothing(store: Any, other: Any, session: str) -> None:
    lost = other.record(session)
    lost.feed_many(STREAM[:8])
    with store.record(session, takeover=True) as recorder:
        recorder.feed(start())
        before = shown(store, session)
        with pytest.raises(Conflict):
            lost.feed(RESET)
        assert shown(store, session) == before


def test_a_hidden_step_is_not_reset(store: Any, session: str) -> None:
    question = say(store, session, "u1")
    with store.record(session) as recorder:
        recorder.feed_many(STREAM[:8])
        store.chat.sessions.rewind(session, question)
        with pytest.raises(Conflict):
            recorder.feed(RESET)
    assert [len(message["parts"]) for message in shown(store, session, include_hidden=True)] == [1, 4]


def test_calls_of_earlier_steps_are_found_again(store: Any, session: str) -> None:
    chunks = [start(), *step(call("bash", "c", 1)), {"type": "start-step"}, call("bash", "c", 2), RESET, output("c", "first")]
    record(store, session, chunks)
    assert shown(store, session) == [reduce(chunks)]
    assert [part.get("output") for part in shown(store, session)[0]["parts"]] == [None, "first", None]


def test_a_reset_is_no_end_of_the_message(store: Any, session: str) -> None:
    """A message whose only attempt was discarded stays, and is continued."""
    record(store, session, [start(), *text("bad"), RESET])
    assert shown(store, session) == [{"id": "m", "role": "assistant", "parts": []}]
    record(store, session, [start(), *text("good"), FINISH])
    assert words(shown(store, session)) == ["good"]


def test_long_text_is_removed(store: Any, raw: Raw, session: str) -> None:
    pieces = ["x" * (LONG // 4)] * 6
    with store.record(session) as recorder:
        for chunk in [start(), {"type": "start-step"}, *text(*pieces)[:-1], RESET, *GOOD, FINISH]:
            recorder.feed(chunk)
    assert words(shown(store, session)) == ["good"]
    assert (raw.count("chat_parts"), raw.count("chat_part_deltas")) == (2, 0)


def test_counters_begin_again_without_a_removed_compaction(store: Any, session: str) -> None:
    record(store, session, turn(*text("one"), id="a"))
    store.chat.messages.record_step_usage("a", 0, input_tokens=10, output_tokens=0)
    marker = {"type": "data-compaction", "data": {"summary": "s", "tail_start_id": None, "auto": True, "summary_tokens": 3}}
    with store.record(session) as recorder:
        recorder.feed_many([start(), {"type": "start-step"}, marker])
        assert rollup(store, session)[0] == 0
        recorder.feed(RESET)
        assert rollup(store, session)[0] == 10


def test_the_log_names_each_removed_part_and_rebuilds_the_rest(open_store: Callable[..., Any]) -> None:
    store = open_store(events=True)
    session = create(store)
    record(store, session, STREAM)
    events = store.events.read(session)
    (removed,) = [event for event in events if event.type == "part.removed"]
    assert [(change["table"], change["op"]) for change in removed.data["changes"]][-3:] == [("chat_parts", "delete")] * 3


def test_a_busy_file_removes_nothing_and_may_be_asked_again(sqlite_url: str, open_raw: Any) -> None:
    with Store.open(sqlite_url, settings=Settings(busy_timeout_ms=10)) as store:
        session = create(store)
        raw: Raw = open_raw(sqlite_url)
        with store.record(session) as recorder:
            recorder.feed_many(STREAM[:8])
            before = shown(store, session)
            raw.rows("BEGIN IMMEDIATE")
            for _ in range(2):
                with pytest.raises(StoreBusy):
                    recorder.feed_many([RESET, *GOOD])
            raw.rows("ROLLBACK")
            assert shown(store, session) == before
            recorder.feed_many([RESET, *GOOD])
        assert words(shown(store, session)) == ["keptgood"]


@pytest.mark.parametrize("face", ["sync"])
def test_every_vector_with_a_reset_is_resumed_at_every_cut(store: Any, session: str) -> None:
    """What is stored after a crash at any chunk is what the SDK's own reducer continues."""
    chosen = [vector for vector in VECTORS if vector["name"].startswith("reset-") and not vector["fatal"]][::3]
    for vector in chosen:
        for cut in vector["cuts"]:
            if not cut["message"]["parts"] or cut["message"]["id"] != "m1":
                continue
            session = create(store)
            record(store, session, vector["chunks"][: cut["consumed"]])
            goes_on = [start("m1"), RESET, {"type": "start-step"}, *GOOD, FINISH]
            record(store, session, goes_on)
            assert shown(store, session)[-1] == reduce(goes_on, cut["message"]), (vector["name"], cut["consumed"])
            store.chat.sessions.delete(session)
