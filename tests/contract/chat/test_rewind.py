"""Rewinding hides what came after a user message; unrewinding shows it again; nothing is deleted."""

from typing import Any

import pytest

from persist.errors import InvalidValue, NotFound
from tests.contract.chat.scenes import create, say, shown, words


@pytest.fixture
def talk(store: Any, session: str) -> list[str]:
    """u1 a1 u2 a2 u3 a3"""
    return [say(store, session, f"{who}{n}", role=role) for n in (1, 2, 3) for who, role in (("u", "user"), ("a", "assistant"))]


def rewind(store: Any, session: str, to: str) -> int:
    return int(store.chat.sessions.rewind(session, to))


def unrewind(store: Any, session: str, after: str) -> int:
    return int(store.chat.sessions.unrewind(session, after))


def test_everything_after_the_anchor_is_hidden(store: Any, clock: Any, session: str, talk: list[str]) -> None:
    at = clock.advance(seconds=1)
    assert rewind(store, session, talk[2]) == 3
    assert words(shown(store, session)) == ["u1", "a1", "u2"]
    hidden = shown(store, session, include_hidden=True)[3:]
    assert [message["metadata"] for message in hidden] == [{"hidden_at": int(at.timestamp() * 1000)}] * 3


def test_rewinding_further_and_back_again(store: Any, session: str, talk: list[str]) -> None:
    assert rewind(store, session, talk[4]) == 1
    assert rewind(store, session, talk[0]) == 4
    assert words(shown(store, session)) == ["u1"]
    rewind(store, session, talk[2])  # what lies before the anchor is shown again
    assert words(shown(store, session)) == ["u1", "a1", "u2"]


def test_unrewinding_shows_what_is_after_the_anchor(store: Any, session: str, talk: list[str]) -> None:
    rewind(store, session, talk[0])
    assert unrewind(store, session, talk[3]) == 2
    assert words(shown(store, session)) == ["u1", "u3", "a3"]
    assert unrewind(store, session, talk[0]) == 3
    assert len(shown(store, session)) == 6
    assert unrewind(store, session, talk[0]) == 0
    assert "metadata" not in shown(store, session)[5]


def test_queued_and_canceled_messages_are_left_alone(store: Any, session: str, talk: list[str]) -> None:
    """Rewind keeps the queue."""
    with store.begin() as tx:
        waits = tx.chat.messages.enqueue(session, parts=[{"type": "text", "text": "waits"}])
        gone = tx.chat.messages.enqueue(session, parts=[{"type": "text", "text": "gone"}])
        assert tx.chat.messages.cancel_queued(gone.id)
    rewind(store, session, talk[0])
    assert [message.id for message in store.chat.messages.queued(session)] == [waits.id]
    tombstone = store.chat.messages.get(gone.id)["metadata"]
    unrewind(store, session, talk[0])
    assert "gone" not in words(shown(store, session))
    with store.begin() as tx:
        assert tx.chat.messages.get(gone.id)["metadata"] == tombstone
        assert tx.chat.messages.claim_queued(session).id == waits.id


def test_the_anchor_of_a_rewind_is_a_user_message_of_the_session(store: Any, session: str, talk: list[str]) -> None:
    stranger = say(store, create(store), "elsewhere")
    with store.begin() as tx:
        queued = tx.chat.messages.enqueue(session, parts=[]).id
        for anchor, error in ((talk[1], InvalidValue), (stranger, NotFound), ("msg_nowhere", NotFound), (queued, InvalidValue)):
            with pytest.raises(error):
                tx.chat.sessions.rewind(session, anchor)
        for anchor in (stranger, "msg_nowhere"):
            with pytest.raises(NotFound):
                tx.chat.sessions.unrewind(session, anchor)
        with pytest.raises(NotFound):
            tx.chat.sessions.rewind("ses_nowhere", talk[0])
    assert len(shown(store, session)) == 6
