"""In the caller's own transaction the verbs write their events at once, and the caller's commit or rollback decides."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event

from persist import Store
from persist.errors import NotFound
from persist.events.schemas import Event
from tests.contract.chat.scenes import MODEL, create
from tests.contract.events.scenes import assert_gapless, events, kinds


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url, events=True) as store:
        yield store


@pytest.fixture
def engine(database_url: str, store: Store) -> Iterator[Engine]:
    """The host's."""
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1))

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        if database_url.startswith("sqlite"):
            connection.execute("PRAGMA foreign_keys=ON")

    yield engine
    engine.dispose()


def test_the_hosts_commit_keeps_the_events(store: Store, engine: Engine) -> None:
    with engine.begin() as connection:
        tx = store.join(connection)
        session = tx.chat.sessions.create(agent="a", model=MODEL).id
        tx.chat.sessions.archive(session)
        given = tx.events.append("mine", "noted", 1)
        assert [found.type for found in tx.events.read("*")] == ["session.created", "session.archived", "noted"]
        assert events(store) == []
    found = events(store)
    assert_gapless(found)
    assert [one.type for one in found] == ["session.created", "session.archived", "noted"]
    assert found[-1] == given


def test_the_hosts_rollback_takes_them(store: Store, engine: Engine) -> None:
    with engine.connect() as connection:
        tx = store.join(connection)
        tx.chat.sessions.create(agent="a", model=MODEL)
        connection.rollback()
    create(store)
    assert_gapless(events(store))
    assert len(events(store)) == 1


def test_a_refused_verb_is_no_event(store: Store, engine: Engine) -> None:
    with engine.begin() as connection:
        tx = store.join(connection)
        session = tx.chat.sessions.create(agent="a", model=MODEL).id
        with pytest.raises(NotFound):
            tx.chat.messages.append("nobody", role="user", parts=[])
        tx.chat.sessions.archive(session)
    assert kinds(store) == ["session.created", "session.archived"]
    assert_gapless(events(store))


def test_it_tells_no_observer_since_the_commit_is_the_hosts(store: Store, engine: Engine) -> None:
    told: list[Event] = []
    store.on_commit(told.extend)
    with engine.begin() as connection:
        store.join(connection).chat.sessions.create(agent="a", model=MODEL)
    mine = create(store)
    assert [one.stream_id for one in told] == [mine]
    assert len(events(store)) == 2


@pytest.mark.one_server
def test_a_store_that_knows_of_no_log_is_refused_once_and_keeps_it_then(database_url: str, engine: Engine, store: Store) -> None:
    store.switch_events(False)
    with Store.open(database_url) as old:
        store.switch_events(True)
        with engine.begin() as connection:
            tx = old.join(connection)
            with pytest.raises(Exception, match="try again"):
                tx.chat.sessions.create(agent="a", model=MODEL)
            session = tx.chat.sessions.create(agent="a", model=MODEL).id
        assert [(one.stream_id, one.type) for one in events(store)] == [(session, "session.created")]


def test_a_store_over_the_hosts_engine_keeps_the_log_too(store: Store, engine: Engine) -> None:
    guest = Store.from_engine(engine)
    assert guest.logs_events
    session = create(guest)
    with guest.record(session) as recorder:
        recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
        recorder.feed({"type": "text-delta", "id": "t", "delta": "a"})
    found = events(store)
    assert_gapless(found)
    assert {"session.created", "message.started", "part.delta"} <= {one.type for one in found}
    assert events(guest) == found
    guest.close()
