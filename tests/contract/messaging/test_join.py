"""The verbs of messaging inside the caller's own transaction, on the caller's own connection."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

from persist import Store
from persist.errors import InvalidValue, NotFound
from persist.messaging.schemas import MessagingRole
from tests.contract.messaging.scenes import KEY, NOWHERE, THREADS, add, end, history, stored, talk, words


@pytest.fixture
def face() -> str:
    """AsyncStore.join runs the same verbs through SQLAlchemy's own bridge, which is tested where the two faces are."""
    return "sync"


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


def test_the_callers_rollback_takes_it(store: Store, host: Engine) -> None:
    kept = talk(store, user_id="U2").id
    with host.connect() as connection:
        messaging = store.join(connection).messaging
        made = messaging.sessions.get_or_create(**KEY)
        messaging.messages.add(kept, role="user", content="lost")
        connection.rollback()
    assert history(store, kept) == []
    with pytest.raises(NotFound):
        stored(store, made.id)


def test_a_refused_verb_leaves_the_callers_transaction_as_it_was(store: Store, host: Engine) -> None:
    session = talk(store).id
    with host.begin() as connection:
        messaging = store.join(connection).messaging
        messaging.messages.add(session, role="user", content="kept")
        with pytest.raises(NotFound):
            messaging.messages.add(NOWHERE, role="user", content="lost")
        with pytest.raises(InvalidValue):
            messaging.sessions.get_or_create(**{**KEY, "platform": ""})
    assert words(history(store, session)) == ["kept"]
    assert end(store, session)
    assert add(store, session).content == "hi"
