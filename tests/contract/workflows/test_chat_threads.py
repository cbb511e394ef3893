"""Chats as their executions show them, with and without the messaging session."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from persist.errors import NotFound
from persist.workflows.schemas import ChatThread
from tests.contract.conftest import Raw
from tests.contract.workflows.making import (
    HARD_TEXT,
    NOT_LABELS,
    NOT_LIMITS,
    done,
    plant,
    plant_execution,
    refused,
    refused_at,
    start,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
CHAT: dict[str, Any] = {"skill": "chat", "trigger_type": "chat"}


def thread(store: Any, trigger_id: str) -> ChatThread | None:
    with store.read() as tx:
        found: ChatThread | None = tx.workflows.executions.chat_thread(trigger_id)
    return found


def threads(store: Any, **options: Any) -> list[str]:
    with store.read() as tx:
        return [one.session_id for one in tx.workflows.executions.chat_threads(**options)]


def plant_session(raw: Raw, id: str) -> str:
    who = {"platform": "slack", "channel_id": "C1", "user_id": id}
    return plant(raw, "messaging_sessions", id=id, **who, created_at=NOW, last_activity_at=NOW)


def plant_message(raw: Raw, session_id: str, role: str, content: str, at: datetime) -> None:
    plant(raw, "messaging_messages", session_id=session_id, role=role, content=content, timestamp=at)


def test_a_thread_sums_up_its_turns(store: Any, raw: Raw) -> None:
    """(a)"""
    used = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 1000}
    plant_execution(
        raw, "e2", NOW + 60 * SECOND, trigger_id="mse_1", **CHAT, finished_at=NOW + 70 * SECOND, cost_usd=0.25, **used
    )
    plant_execution(raw, "e1", NOW, trigger_id="mse_1", **CHAT, finished_at=NOW + 500 * SECOND, input_tokens=1, success=False)
    plant_execution(raw, "e3", NOW + 80 * SECOND, trigger_id="mse_1", **CHAT)
    plant_execution(raw, "other", NOW - SECOND, trigger_id="mse_1", skill="build:plan", input_tokens=9)
    expected = ChatThread(
        session_id="mse_1",
        started_at=NOW,
        last_activity_at=NOW + 500 * SECOND,
        turns=3,
        total_tokens=126,
        cost_usd=0.25,
        last_message=None,
    )
    assert thread(store, "mse_1") == expected
    with store.read() as tx:
        assert tx.workflows.executions.chat_threads() == [expected]


def test_a_thread_without_numbers_has_zeros(store: Any) -> None:
    start(store, trigger_id="mse_1", **CHAT)
    found = thread(store, "mse_1")
    assert found is not None
    assert (found.turns, found.total_tokens, found.cost_usd, type(found.cost_usd)) == (1, 0, 0.0, float)
    assert found.started_at == found.last_activity_at == NOW


def test_a_running_turn_is_activity_from_its_start(store: Any, clock: Any) -> None:
    """(a): coalesce(finished, started)"""
    done(store, trigger_id="mse_1", **CHAT)
    later = clock.advance(seconds=60)
    start(store, trigger_id="mse_1", **CHAT)
    found = thread(store, "mse_1")
    assert found is not None
    assert (found.started_at, found.last_activity_at) == (NOW, later)


def test_latest_activity_first_and_ids_break_ties(store: Any, raw: Raw) -> None:
    for id, started, finished in (("old", 0, 900), ("b", 50, None), ("a", 10, 50), ("newest start", 60, None)):
        ended = None if finished is None else NOW + finished * SECOND
        plant_execution(raw, id, NOW + started * SECOND, trigger_id=id, **CHAT, finished_at=ended)
    assert threads(store) == ["old", "newest start", "a", "b"]
    assert threads(store, limit=2) == ["old", "newest start"]


def test_twenty_unless_told(store: Any) -> None:
    for number in range(22):
        start(store, trigger_id=f"mse_{number:02}", **CHAT)
    assert len(threads(store)) == 20
    assert len(threads(store, limit=1000)) == 22


def test_the_newest_words_of_the_assistant_are_shown(store: Any, raw: Raw) -> None:
    """(a)"""
    for session in ("mse_1", "mse_2"):
        start(store, trigger_id=plant_session(raw, session), **CHAT)
        assert thread(store, session) is not None
    plant_message(raw, "mse_1", "assistant", "newest", NOW + 2 * SECOND)
    plant_message(raw, "mse_1", "assistant", "inserted later, said earlier", NOW)
    plant_message(raw, "mse_1", "user", "a question", NOW + 3 * SECOND)
    plant_message(raw, "mse_2", "user", "no answer yet", NOW)
    with store.read() as tx:
        shown = {one.session_id: one.last_message for one in tx.workflows.executions.chat_threads()}
    assert shown == {"mse_1": "newest", "mse_2": None}
    plant_message(raw, "mse_1", "assistant", "newest of the same instant", NOW + 2 * SECOND)
    found = thread(store, "mse_1")
    assert found is not None
    assert (found.last_message, found.turns) == ("newest of the same instant", 1)


def test_what_the_assistant_said_is_any_text(store: Any) -> None:
    with store.begin() as tx:
        session = tx.messaging.sessions.get_or_create(platform="slack", channel_id="C1", user_id="U1")
        tx.messaging.messages.add(session.id, role="assistant", content=HARD_TEXT)
    start(store, trigger_id=session.id, **CHAT)
    found = thread(store, session.id)
    assert found is not None
    assert found.last_message == HARD_TEXT


def test_a_thread_outlives_its_messaging_session(store: Any, raw: Raw) -> None:
    """(a): works when the session row is gone"""
    start(store, trigger_id=plant_session(raw, "mse_1"), **CHAT)
    plant_message(raw, "mse_1", "assistant", "hello", NOW)
    raw.rows("DELETE FROM messaging_messages")
    raw.rows("DELETE FROM messaging_sessions")
    found = thread(store, "mse_1")
    assert found is not None
    assert (found.turns, found.last_message) == (1, None)


def test_a_session_without_turns_is_no_thread(store: Any, raw: Raw) -> None:
    start(store, trigger_id=plant_session(raw, "mse_1"), skill="chat:x")
    assert thread(store, "mse_1") is None
    assert thread(store, "unknown") is None
    assert threads(store) == []


def test_threads_refuse_what_they_cannot_mean(store: Any) -> None:
    with store.read() as tx:
        verbs = tx.workflows.executions
        refused_at(verbs.chat_thread, 0, "trigger_id", [*NOT_LABELS, None], "t")
        refused(verbs.chat_threads, "limit", [*NOT_LIMITS, 1001])
        assert verbs.chat_threads() == []


def test_older_threads_follow_the_last_one_that_was_shown(store: Any, raw: Raw) -> None:
    for number in range(7):
        plant_execution(raw, f"e{number}", NOW + (number // 2) * SECOND, trigger_id=f"mse_{number}", **CHAT)
    everything = threads(store)
    assert len(everything) == 7
    found: list[str] = []
    while page := threads(store, limit=3, before=found[-1] if found else None):
        found += page
    assert found == everything
    with store.read() as tx, pytest.raises(NotFound):
        tx.workflows.executions.chat_threads(before="mse_unknown")
