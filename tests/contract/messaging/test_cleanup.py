"""Cleaning up: inactive sessions that nobody used for long go, with their messages; everything else stays."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

from persist import Store
from persist.errors import NotFound
from persist.messaging.schemas import MessagingRole
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
    """(d) 29: sessions are counted, not messages, and the second time there is nothing left."""
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


# ----------------------------------------------------------------
# The verbs of messaging inside the caller's own transaction, on the caller's own connection.


@pytest.fixture
def host(store: Store, database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1))
    yield engine
    engine.dispose()


@pytest.mark.parametrize("thread", THREADS)
def test_every_verb_works_and_the_callers_commit_keeps_it(store: Store, clock: Any, host: Engine, thread: str | None) -> None:
    old = talk(store, thread_id=thread)
    clock.advance(delta=timedelta(hours=1))
    with host.begin() as connection:
        sessions, messages = (tx := store.join(connection).messaging).sessions, tx.messages
        made = sessions.get_or_create(**KEY, thread_id=thread)
        assert made.id != old.id
        assert sessions.get_or_create(**KEY, thread_id=thread) == sessions.get(made.id) == made
        assert sessions.find_active(platform="slack", channel_id="C1", thread_id=thread) == made
        said = messages.add(made.id, role="user", content="NUL \x00 and \ud83d")
        assert (said.role, said.content) == (MessagingRole.USER, "NUL \x00 and \ud83d")
        assert messages.history(made.id) == [said]
        assert sessions.touch(made.id)
        assert sessions.set_agent_session(made.id, "ses_1")
        page = sessions.list(platform="slack", active=True, limit=1)
        assert [session.id for session in page.items] == [made.id]
        page = sessions.list(limit=1)
        assert [session.id for session in sessions.list(limit=1, after=page.cursor).items] == [old.id]
        assert sessions.cleanup_stale(timedelta(minutes=59)) == 1
        assert sessions.deactivate(made.id)
        assert not sessions.deactivate(made.id)
    assert history(store, made.id) == [said]
    ended = stored(store, made.id)
    assert (ended.active, ended.message_count, ended.agent_session_id) == (False, 1, "ses_1")
    with pytest.raises(NotFound):
        stored(store, old.id)
