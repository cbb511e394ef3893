"""Cleaning up: inactive sessions that nobody used for long go, with their messages; everything else stays."""

import re
from datetime import timedelta
from typing import Any

import pytest

from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
from tests.contract.messaging.scenes import KEY, THREADS, add, end, history, plant, stored, talk, words

WEEK = timedelta(days=7)
MILLISECOND = timedelta(milliseconds=1)


def clean(store: Any, *age: timedelta) -> int:
    return int(store.messaging.sessions.cleanup_stale(*age))


def ended(store: Any, user: str, *said: str) -> str:
    id = talk(store, user_id=user).id
    for text in said:
        add(store, id, text)
    end(store, id)
    return id


def ids(raw: Raw) -> list[str]:
    return [id for (id,) in raw.rows("SELECT id FROM messaging_sessions ORDER BY id")]


def test_old_inactive_sessions_go_with_their_messages(store: Any, clock: Any, raw: Raw) -> None:
    """Sessions are counted, not messages, and the second time there is nothing left."""
    ended(store, "U1", "a", "b", "c")
    ended(store, "U2")
    clock.advance(delta=WEEK + MILLISECOND)
    recent = ended(store, "U3", "stays")
    assert clean(store) == 2
    assert clean(store) == 0
    assert ids(raw) == [recent]
    assert words(history(store, recent)) == ["stays"]
    assert raw.count("messaging_messages") == 1


def test_an_active_session_stays_however_old(store: Any, clock: Any, raw: Raw) -> None:
    made = talk(store)
    add(store, made.id, "stays")
    clock.advance(delta=timedelta(days=1000))
    assert clean(store, timedelta()) == 0
    assert stored(store, made.id) == made
    assert words(history(store, made.id)) == ["stays"]


def test_a_row_that_is_neither_active_nor_inactive_stays(store: Any, clock: Any, raw: Raw) -> None:
    unknown = plant(raw, "mse_unknown", at=clock(), active=None)
    add(store, unknown, "stays")
    gone = ended(store, "U2", "goes")
    clock.advance(delta=timedelta(days=1000))
    assert clean(store) == 1
    assert ids(raw) == [unknown]
    assert gone != unknown
    assert words(history(store, unknown)) == ["stays"]


def test_a_session_goes_when_it_is_older_than_the_age(store: Any, clock: Any, raw: Raw) -> None:
    ended(store, "U1", "hi")
    clock.advance(delta=WEEK)
    assert clean(store) == 0
    clock.advance(delta=MILLISECOND)
    assert clean(store) == 1


def test_activity_counts_and_not_the_beginning(store: Any, clock: Any) -> None:
    id = ended(store, "U1")
    clock.advance(delta=timedelta(days=6))
    store.messaging.sessions.touch(id)
    clock.advance(delta=timedelta(days=6))
    assert clean(store) == 0
    clock.advance(delta=timedelta(days=2))
    assert clean(store) == 1


def test_the_age_is_the_callers(store: Any, clock: Any, raw: Raw) -> None:
    first = ended(store, "U1", "hi")
    clock.advance(seconds=60)
    second = ended(store, "U2", "hi")
    assert clean(store, timedelta.max) == 0
    assert clean(store, timedelta(seconds=60)) == 0
    assert ids(raw) == sorted([first, second])
    assert clean(store, timedelta(seconds=60) - timedelta(microseconds=1)) == 1  # columns keep milliseconds
    assert ids(raw) == [second]
    clock.advance(delta=MILLISECOND)
    assert clean(store, timedelta()) == 1


@on_one_face
def test_thousands_go_at_once(store: Any, clock: Any, raw: Raw) -> None:
    at = clock()
    raw.rows("BEGIN")
    for number in range(3000):
        plant(raw, f"mse_{number}", at=at, active=False)
    raw.rows("COMMIT")
    clock.advance(delta=WEEK * 2)
    assert clean(store) == 3000
    assert raw.count("messaging_sessions") == 0


# The verbs of messaging inside the caller's own transaction, on the caller's own connection.


# One active session for each person in a channel or thread: reused while they talk, replaced when they come back.


HALF_HOUR = timedelta(minutes=30)


def active_rows(raw: Raw) -> list[str]:
    return [id for (id,) in raw.rows(f"SELECT id FROM messaging_sessions WHERE active{' = 1' if raw.is_sqlite else ''}")]


def test_a_new_session_has_every_published_column(store: Any, clock: Any, raw: Raw) -> None:
    made = talk(store, thread_id="T1")
    assert re.fullmatch(r"mse_[0-9a-f]{14}[0-9A-Za-z]{12}", made.id)
    assert (made.platform, made.channel_id, made.thread_id, made.user_id) == ("slack", "C1", "T1", "U1")
    assert (made.agent_session_id, made.message_count, made.active) == (None, 0, True)
    assert made.created_at == made.last_activity_at == clock()
    assert stored(store, made.id) == made
    if raw.is_sqlite:
        row = raw.rows("SELECT created_at, last_activity_at, message_count, active FROM messaging_sessions")
        assert row == [("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.678Z", 0, 1)]


@pytest.mark.parametrize("thread", THREADS)
def test_a_session_is_reused_for_thirty_minutes(store: Any, clock: Any, raw: Raw, thread: str | None) -> None:
    """At 30:00 exactly it is the same session, and nothing of it changes."""
    made = talk(store, thread_id=thread)
    clock.advance(delta=HALF_HOUR)
    assert talk(store, thread_id=thread) == made
    assert raw.count("messaging_sessions") == 1


@pytest.mark.parametrize("thread", THREADS)
def test_a_stale_session_is_replaced_and_kept(store: Any, clock: Any, raw: Raw, thread: str | None) -> None:
    """At 30:00.001 there is a new one; the old row is inactive."""
    old = talk(store, thread_id=thread)
    clock.advance(delta=HALF_HOUR + MILLISECOND)
    new = talk(store, thread_id=thread)
    assert new.id != old.id
    assert stored(store, old.id) == old.model_copy(update={"active": False})
    assert active_rows(raw) == [new.id]
    assert talk(store, thread_id=thread) == new


def test_a_clock_that_was_turned_back_keeps_a_session(store: Any, clock: Any) -> None:
    made = talk(store)
    clock.advance(delta=-timedelta(days=1))
    assert talk(store) == made


def test_idle_says_how_long(store: Any, clock: Any) -> None:
    made = talk(store)
    clock.advance(delta=timedelta(hours=2))
    assert talk(store, idle=timedelta(hours=2)) == made
    assert talk(store, idle=timedelta.max) == made  # longer than the calendar: for ever
    assert talk(store, idle=timedelta(hours=2) - timedelta(microseconds=1)).id != made.id


def test_each_part_of_the_key_tells_sessions_apart(store: Any) -> None:
    keys: list[dict[str, Any]] = [
        {},
        {"platform": "discord"},
        {"channel_id": "C2"},
        {"user_id": "U2"},
        {"thread_id": "T1"},
        {"thread_id": "T2"},
    ]
    made = [talk(store, **key).id for key in keys]
    assert len(set(made)) == len(keys)
    assert [talk(store, **key).id for key in keys] == made


def test_a_stale_session_of_another_key_stays_active(store: Any, clock: Any, raw: Raw) -> None:
    others = [talk(store, **key).id for key in ({"user_id": "U2"}, {"thread_id": "T1"}, {"channel_id": "C2"})]
    old = talk(store)
    clock.advance(delta=timedelta(hours=1))
    new = talk(store)
    assert sorted(active_rows(raw)) == sorted([*others, new.id])
    assert stored(store, old.id).active is False


@pytest.mark.parametrize("thread", THREADS)
def test_a_second_active_row_of_a_key_violates_the_index(store: Any, clock: Any, raw: Raw, thread: str | None) -> None:
    """Without a thread too, where a plain unique index would let it pass."""
    talk(store, thread_id=thread)
    with pytest.raises(Exception, match=r"(?i)unique"):
        plant(raw, "mse_second", at=clock(), active=True, thread_id=thread)
    for active in (False, None):
        plant(raw, f"mse_{active}", at=clock(), active=active, thread_id=thread)
    assert raw.count("messaging_sessions") == 3


def test_every_active_row_is_replaced_where_there_is_no_index(store: Any, clock: Any, raw: Raw) -> None:
    """Rows that came before the index did."""
    raw.rows("DROP INDEX idx_msg_sessions_one_active")
    for number in range(3):
        plant(raw, f"mse_{number}", at=clock(), active=True)
    unknown = plant(raw, "mse_unknown", at=clock(), active=None)
    assert talk(store).id == "mse_2"
    clock.advance(delta=timedelta(hours=1))
    made = talk(store)
    assert active_rows(raw) == [made.id]
    assert stored(store, unknown).active is None


def test_a_row_that_is_neither_active_nor_inactive_is_not_reused(store: Any, clock: Any, raw: Raw) -> None:
    unknown = plant(raw, "mse_unknown", at=clock(), active=None)
    assert talk(store).id != unknown
    assert stored(store, unknown).active is None


def test_an_empty_thread_of_another_program_is_the_channel_itself(store: Any, clock: Any, raw: Raw) -> None:
    """For the index they are one key, so they are one here."""
    theirs = plant(raw, "mse_theirs", at=clock(), active=True, thread_id="")
    assert talk(store).id == theirs


def test_a_session_of_this_very_transaction_is_reused(store: Any, clock: Any, raw: Raw) -> None:
    with store.begin() as tx:
        made = tx.messaging.sessions.get_or_create(**KEY)
        assert tx.messaging.sessions.get_or_create(**KEY) == made
        clock.advance(delta=timedelta(hours=1))
        new = tx.messaging.sessions.get_or_create(**KEY)
    assert active_rows(raw) == [new.id]


def test_reuse_is_one_statement_on_sqlite_and_takes_no_lock(counted_store: Any, statements: list[str], database_url: str) -> None:
    talk(counted_store)
    statements.clear()
    talk(counted_store)
    used = [statement.lstrip() for statement in statements if "messaging_sessions" in statement]
    # on Postgres these travel together, and the first two find nothing to write
    first = [] if database_url.startswith("sqlite") else ["UPDATE", "INSERT"]
    assert [statement.split()[0] for statement in used] == [*first, "SELECT"]
    assert not any("FOR UPDATE" in statement for statement in used)
