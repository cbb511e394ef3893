"""The stop button: any process asks a session's turn to stop, and its recorder's host sees it."""

import time
from typing import Any

import pytest

from persist.errors import NotFound
from tests.contract.chat.scenes import create, text
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
