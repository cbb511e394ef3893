"""The stop button: any process asks a session's turn to stop, and its recorder's host sees it."""

import time
from typing import Any

import pytest

from persist.errors import NotFound
from tests.contract.chat.scenes import create, shown, text
from tests.contract.faces import every_way

pytestmark = every_way

LONG = 60.0


def sees_stop(recorder: Any) -> bool:
    """Whether the recorder sees a request within a long time."""
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        if asked(recorder):
            return True
        time.sleep(0.01)
    return False


def asked(recorder: Any) -> bool:
    found = recorder.stop_requested
    return found if isinstance(found, bool) else bool(found._target)


def test_a_running_turn_is_asked_to_stop(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "m"}, *text("a")])
        assert not asked(recorder)
        assert other.chat.sessions.request_stop(session) is True
        assert other.chat.sessions.turn(session).stop_requested
        assert sees_stop(recorder)
        assert other.chat.sessions.request_stop(session) is True  # a second press changes nothing
        recorder.feed_many([*text("the host decides when", id="u"), {"type": "abort"}])
    assert len(store.chat.messages.get("m")["parts"]) == 2


def test_without_a_turn_nobody_can_be_asked(store: Any, session: str) -> None:
    assert store.chat.sessions.request_stop(session) is False
    with pytest.raises(NotFound):
        store.chat.sessions.request_stop("nowhere")


def test_the_next_turn_is_not_asked(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "m"}, *text("a")])
        store.chat.sessions.request_stop(session)
        assert sees_stop(recorder)
        recorder.feed({"type": "finish"})
        recorder.feed_many([{"type": "start", "messageId": "n"}, *text("a")])
        assert not store.chat.sessions.turn(session).stop_requested
        assert not asked(recorder)


def test_a_recorder_that_takes_over_is_not_asked(store: Any, other: Any, session: str) -> None:
    with store.record(session) as first:
        first.feed_many([{"type": "start", "messageId": "m"}, *text("a")])
        store.chat.sessions.request_stop(session)
        with other.record(session, takeover=True) as second:
            second.feed_many([{"type": "start", "messageId": "m"}, *text("b")])
            assert not store.chat.sessions.turn(session).stop_requested
            assert not asked(second)


def test_another_session_is_not_asked(store: Any, session: str) -> None:
    elsewhere = create(store)
    with store.record(session) as one, store.record(elsewhere) as two:
        one.feed_many([{"type": "start"}, *text("a")])
        two.feed_many([{"type": "start"}, *text("a")])
        store.chat.sessions.request_stop(session)
        assert sees_stop(one)
        assert not asked(two)


def test_an_answer_that_was_stopped_is_stored_so_until_it_is_continued(store: Any, other: Any, clock: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "m"}, {"type": "text-start", "id": "t"}])
        recorder.feed({"type": "tool-input-available", "toolCallId": "c", "toolName": "bash", "input": {}})
        cursor = other.chat.messages.cursor(session, "m")
        at = clock.advance(seconds=1)
        recorder.feed({"type": "abort"})
    (stopped,) = shown(other, session)
    assert stopped["metadata"] == {"stopped_at": int(at.timestamp() * 1000)}
    assert [part["state"] for part in stopped["parts"]] == ["streaming", "input-available"]
    assert other.chat.messages.replay("m")[-1] == {"type": "abort"}
    assert list(other.follow(session, cursor))[-1] == {"type": "abort"}
    assert store.chat.messages.repair_interrupted(session) == 1
    (repaired,) = shown(other, session)
    assert repaired["parts"][1]["errorText"] == "the answer was stopped"
    assert (repaired["parts"][0], repaired["metadata"]) == (stopped["parts"][0], stopped["metadata"])
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "m", "messageMetadata": {"a": 1}}, *text("more", id="u")])
        assert shown(other, session)[0]["metadata"] == {"a": 1}
    assert shown(other, session)[0]["metadata"] == {"a": 1}  # a recorder that is closed, or dies, stops nothing
    assert other.chat.messages.replay("m")[-1] == {"type": "finish"}
