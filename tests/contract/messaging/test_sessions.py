"""What is done to one session: reading, finding, touching, ending, naming its agent session."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.messaging.scenes import NOWHERE, THREADS, end, found, plant, stored, talk, touch

HALF_HOUR = timedelta(minutes=30)


@pytest.mark.parametrize("thread", THREADS)
def test_the_active_session_of_a_thread_is_found(store: Any, thread: str | None) -> None:
    assert found(store, thread_id=thread) is None
    made = talk(store, thread_id=thread)
    assert found(store, thread_id=thread) == made.id
    assert store.messaging.sessions.find_active(platform="slack", channel_id="C1", thread_id=thread) == made


def test_a_thread_is_not_its_channel(store: Any) -> None:
    channel, thread = talk(store).id, talk(store, thread_id="T1").id
    assert found(store) == channel
    assert found(store, thread_id="T1") == thread
    assert found(store, thread_id="T2") is None
    assert found(store, channel_id="C2") is None
    assert found(store, platform="discord") is None


@pytest.mark.parametrize("thread", THREADS)
def test_the_latest_of_several_people_is_found(store: Any, clock: Any, thread: str | None) -> None:
    first = talk(store, thread_id=thread, user_id="U1").id
    clock.advance(seconds=1)
    second = talk(store, thread_id=thread, user_id="U2").id
    assert found(store, thread_id=thread) == second
    clock.advance(seconds=1)
    touch(store, first)
    assert found(store, thread_id=thread) == first
    touch(store, second)  # in the same instant the newer session counts
    assert found(store, thread_id=thread) == second


@pytest.mark.parametrize("thread", THREADS)
def test_a_stale_session_is_found_only_on_request(store: Any, clock: Any, thread: str | None) -> None:
    made = talk(store, thread_id=thread)
    clock.advance(delta=timedelta(hours=1))
    assert found(store, thread_id=thread) is None
    assert found(store, thread_id=thread, include_stale=True) == made.id


def test_a_session_is_not_stale_at_thirty_minutes_exactly(store: Any, clock: Any) -> None:
    made = talk(store)
    clock.advance(delta=HALF_HOUR)
    assert found(store) == made.id
    clock.advance(delta=timedelta(milliseconds=1))
    assert found(store) is None


@pytest.mark.parametrize("stale", [False, True])
def test_an_ended_session_is_never_found(store: Any, stale: bool) -> None:
    end(store, talk(store).id)
    assert found(store, include_stale=stale) is None


def test_a_row_that_is_neither_active_nor_inactive_is_never_found(store: Any, clock: Any, raw: Raw) -> None:
    plant(raw, "mse_unknown", at=clock(), active=None)
    assert found(store, include_stale=True) is None


def test_a_touch_counts_a_message_and_is_activity(store: Any, clock: Any) -> None:
    made = talk(store)
    at = clock.advance(seconds=5)
    assert touch(store, made.id) is True
    assert stored(store, made.id) == made.model_copy(update={"message_count": 1, "last_activity_at": at})
    assert touch(store, made.id) is True
    assert stored(store, made.id).message_count == 2


def test_a_touch_counts_from_nothing_where_there_was_no_count(store: Any, clock: Any, raw: Raw) -> None:
    id = plant(raw, "mse_uncounted", at=clock(), active=True, count=None)
    assert stored(store, id).message_count is None
    touch(store, id)
    assert stored(store, id).message_count == 1


def test_touching_an_ended_session_does_not_revive_it(store: Any, clock: Any) -> None:
    made = talk(store)
    end(store, made.id)
    at = clock.advance(seconds=1)
    assert touch(store, made.id) is True
    assert stored(store, made.id) == made.model_copy(update={"active": False, "message_count": 1, "last_activity_at": at})


def test_a_session_ends_once(store: Any, clock: Any) -> None:
    made = talk(store)
    clock.advance(seconds=1)
    assert [end(store, made.id), end(store, made.id)] == [True, False]
    assert stored(store, made.id) == made.model_copy(update={"active": False})


def test_a_row_that_is_neither_active_nor_inactive_cannot_be_ended(store: Any, clock: Any, raw: Raw) -> None:
    id = plant(raw, "mse_unknown", at=clock(), active=None)
    assert end(store, id) is False
    assert stored(store, id).active is None


def test_the_agent_session_is_named_and_forgotten(store: Any, clock: Any) -> None:
    made = talk(store)
    clock.advance(seconds=1)
    for agent in ("ses_1", "ses_2", None, None):
        assert store.messaging.sessions.set_agent_session(made.id, agent) is True
        assert stored(store, made.id) == made.model_copy(update={"agent_session_id": agent})


@each(("verb", "more"), [("touch", ()), ("deactivate", ()), ("set_agent_session", ("ses_1",))])
def test_an_unknown_session_is_false_and_others_stay(store: Any, verb: str, more: tuple[str, ...]) -> None:
    made = talk(store)
    with store.begin() as tx:
        assert getattr(tx.messaging.sessions, verb)(NOWHERE, *more) is False
        with pytest.raises(InvalidValue) as refused:
            getattr(tx.messaging.sessions, verb)("", *more)
        assert refused.value.path == "id"
    assert stored(store, made.id) == made


@pytest.mark.parametrize("thread", THREADS)
def test_looking_up_a_key_uses_the_index_of_active_sessions(
    sqlite_url: str, statements: list[str], open_raw: Callable[[str], Raw], thread: str | None
) -> None:
    """Ended sessions of a busy channel are many, and cost it nothing."""
    with Store.open(sqlite_url) as store:
        talk(store, thread_id=thread)
        statements.clear()
        talk(store, thread_id=thread)
        found(store, thread_id=thread)
        found(store, thread_id=thread, include_stale=True)
    asked = [statement for statement in statements if statement.startswith("SELECT")]
    assert len(asked) == 3
    raw = open_raw(sqlite_url)
    for statement in asked:
        plan = str(raw.rows(f"EXPLAIN QUERY PLAN {statement}"))
        assert "idx_msg_sessions_one_active" in plan
