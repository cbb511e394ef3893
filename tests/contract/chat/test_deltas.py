"""Growing text waits in rows of its own: readers of the API see all of it, a raw reader lags by at most that tail."""

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.settings import Settings
from tests.contract.chat.scenes import create, eventually, record, shown, text, words
from tests.contract.conftest import Raw


def delta(piece: str) -> dict[str, Any]:
    return {"type": "text-delta", "id": "t", "delta": piece}


def base(raw: Raw) -> str:
    """What somebody who knows nothing of tails reads."""
    return str(raw.json("SELECT data_json FROM chat_parts WHERE type = 'text'")["text"])


def tail(raw: Raw) -> str:
    return "".join(piece for (piece,) in raw.rows("SELECT delta FROM chat_part_deltas ORDER BY part_id, seq"))


@pytest.fixture
def slow_store(open_store: Any) -> Any:
    """Folds only when told to, or by size."""
    return open_store(settings=Settings(fold_ms=3_600_000))


@pytest.fixture
def slow(slow_store: Any, open_raw: Any, database_url: str) -> tuple[Any, Raw, str]:
    return slow_store, open_raw(database_url), create(slow_store)


def test_a_raw_reader_lags_by_the_tail_and_no_other_reader_does(slow: tuple[Any, Raw, str], open_store: Any) -> None:
    store, raw, session = slow
    other = open_store()
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        for piece in ("a", "b", "c"):
            recorder.feed(delta(piece))
        assert (base(raw), tail(raw)) == ("", "abc")
        assert words(shown(other, session)) == ["abc"]
        assert json.loads(other.chat.messages.list_json(session)) == other.chat.messages.list(session)
        recorder.feed({"type": "text-end", "id": "t"})
        assert (base(raw), tail(raw)) == ("abc", "")


def test_a_tail_is_folded_at_its_size(slow: tuple[Any, Raw, str]) -> None:
    store, raw, session = slow
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        for _ in range(10):
            recorder.feed(delta("x" * 1000))
            assert len(tail(raw)) < 4096
            assert len(base(raw) + tail(raw)) == len(words(shown(store, session))[0])
        assert len(base(raw)) >= 4096


def test_a_stalled_stream_is_folded_by_the_timer(store: Any, raw: Raw, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        recorder.feed(delta("a"))
        assert eventually(lambda: base(raw) == "a" and tail(raw) == "")
        recorder.feed(delta("b"))
        assert words(shown(store, session)) == ["ab"]
        assert eventually(lambda: base(raw) == "ab" and tail(raw) == "")


@pytest.mark.parametrize("ending", ["finish", "abort", "close"])
def test_nothing_is_left_unfolded_at_the_end(slow: tuple[Any, Raw, str], ending: str) -> None:
    store, raw, session = slow
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        recorder.feed({"type": "text-start", "id": "u"})
        recorder.feed(delta("a"))
        recorder.feed({"type": "text-delta", "id": "u", "delta": "b"})
        recorder.feed_many([] if ending == "close" else [{"type": ending}])
    assert raw.count("chat_part_deltas") == 0
    assert [part["text"] for part in shown(store, session)[0]["parts"]] == ["a", "b"]


def test_a_fold_does_not_touch_updated_at(slow: tuple[Any, Raw, str], clock: Any) -> None:
    store, raw, session = slow
    stamps = "SELECT updated_at FROM chat_parts"
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        before = raw.rows(stamps)
        clock.advance(seconds=1)
        recorder.feed(delta("a"))
        recorder.feed({"type": "start-step"})
        assert base(raw) == "a"
        assert raw.rows(f"{stamps} WHERE type = 'text'") == before


def fold_elsewhere(raw: Raw) -> None:
    """What any process may do at any time."""
    for part_id, seq, piece in raw.rows("SELECT part_id, seq, delta FROM chat_part_deltas ORDER BY part_id, seq"):
        data = raw.json("SELECT data_json FROM chat_parts WHERE id = ?", part_id)
        data["text"] += piece
        raw.rows("UPDATE chat_parts SET data_json = ? WHERE id = ?", json.dumps(data), part_id)
        raw.rows("DELETE FROM chat_part_deltas WHERE part_id = ? AND seq = ?", part_id, seq)


def test_another_process_may_fold_while_the_recorder_goes_on(slow: tuple[Any, Raw, str]) -> None:
    store, raw, session = slow
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        expected = ""
        for piece in "abcdef":
            recorder.feed(delta(piece))
            expected += piece
            if piece in "bde":
                fold_elsewhere(raw)
            assert words(shown(store, session)) == [expected]
        recorder.feed({"type": "text-end", "id": "t"})
    assert words(shown(store, session)) == ["abcdef"]
    assert raw.count("chat_part_deltas") == 0


def test_a_tool_inputs_tail_belongs_to_its_raw_input(slow: tuple[Any, Raw, str]) -> None:
    store, raw, session = slow
    with store.record(session) as recorder:
        recorder.feed({"type": "tool-input-start", "toolCallId": "c", "toolName": "bash"})
        for piece in ('{"a":', "[1,2", ',"x'):
            recorder.feed({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": piece})
        assert raw.count("chat_part_deltas") > 0
        (part,) = shown(store, session)[0]["parts"]
        assert (part["rawInput"], part["input"]) == ('{"a":[1,2,"x', {"a": [1, 2, "x"]})
    stored = raw.json("SELECT data_json FROM chat_parts")
    assert stored == part


@pytest.fixture
def crashed(sqlite_url: str, clock: Any, tmp_path: Path) -> tuple[str, str]:
    """The files of a store whose process died in mid-stream -> their URL, the session."""
    url = f"sqlite:///{tmp_path / 'crashed.db'}"
    with Store.open(sqlite_url, clock=clock, settings=Settings(fold_ms=3_600_000)) as store:
        session = create(store)
        with store.record(session) as recorder:
            recorder.feed_many([{"type": "start", "messageId": "m"}, {"type": "text-start", "id": "t"}])
            for piece in ("a", "\ud83d", "\ude00"):
                recorder.feed(delta(piece))
            for suffix in ("", "-wal"):
                shutil.copy(f"{sqlite_url.removeprefix('sqlite:///')}{suffix}", f"{tmp_path / 'crashed.db'}{suffix}")
    return url, session


@pytest.mark.parametrize(("seconds", "left"), [(4, 3), (6, 0)])
def test_opening_a_file_folds_what_a_dead_process_left(
    crashed: tuple[str, str], clock: Any, open_raw: Any, seconds: int, left: int
) -> None:
    url, session = crashed
    clock.advance(seconds=seconds)
    with Store.open(url, clock=clock) as store:
        assert words(shown(store, session)) == ["a😀"]
        assert open_raw(url).count("chat_part_deltas") == left


def test_opening_a_file_to_read_folds_nothing(crashed: tuple[str, str], clock: Any, open_raw: Any) -> None:
    url, session = crashed
    clock.advance(delta=timedelta(hours=1))
    with Store.open(url, clock=clock, read_only=True) as store:
        assert words(shown(store, session)) == ["a😀"]
        assert open_raw(url).count("chat_part_deltas") == 3


def test_resuming_after_a_crash_folds_first(crashed: tuple[str, str], clock: Any, open_raw: Any) -> None:
    url, session = crashed
    with Store.open(url, clock=clock) as store:
        record(store, session, [{"type": "start", "messageId": "m"}, *text("b")], takeover=True)
        assert words(shown(store, session)) == ["a😀b"]
        assert open_raw(url).count("chat_part_deltas") == 0
