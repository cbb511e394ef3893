"""Sessions of a Postgres server that outlive what they began with: nothing stays read-only, or of former columns.

A server takes no writes for a while at a full disk, or after a failover.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, make_url

from persist import Store, Tenants
from persist.errors import ReadOnlyTransaction, Unavailable
from tests.contract.chat.scenes import MODEL, create

_WIDTH = 9
"""More connections than there are attempts of `transact`."""
_HOSTS_WIDTH = 2
_START = {"type": "start", "messageId": "m"}


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    engine = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"), pool_size=_HOSTS_WIDTH)
    yield engine
    engine.dispose()


@contextmanager
def taking_no_writes(url: str) -> Iterator[None]:
    """Sessions that begin inside read only, and would for ever: as those of a managed server at a full disk."""
    with psycopg.connect(url, autocommit=True) as connection:
        of_database = f'ALTER DATABASE "{make_url(url).database}"'
        connection.execute(f"{of_database} SET default_transaction_read_only = on".encode())
        try:
            yield
        finally:
            connection.execute(f"{of_database} RESET default_transaction_read_only".encode())


def fill_pool(store: Store) -> None:
    """Let the store have idle connections that begin now."""
    with ExitStack() as stack:
        for _ in range(_WIDTH):
            stack.enter_context(store.read()).chat.sessions.list(limit=1)


def refused(store: Store, session: str) -> None:
    """What writes is told so; what reads goes on."""
    with pytest.raises(Unavailable, match="takes no writes") as told, store.begin() as tx:
        tx.chat.sessions.create(agent="build", model=MODEL)
    assert told.value.outcome == "rolled back"
    with pytest.raises(Unavailable) as told, store.record(session) as recorder:
        recorder.feed(_START)
    assert told.value.outcome == "rolled back"
    with pytest.raises(Unavailable):
        store.chat.sessions.delete(session)
    assert store.chat.sessions.get(session).id == session


def accepted(store: Store, session: str) -> None:
    """Whatever writes does it again, after one attempt at most that met a session from before."""
    retries = store.runtime.counters.retries
    before = retries.total()
    store.transact(lambda tx: tx.chat.sessions.create(agent="build", model=MODEL))
    assert retries.total() <= before + 1
    with store.record(session) as recorder:
        recorder.feed(_START)
    create(store)
    assert retries.total() <= before + 1


def test_a_store_replaces_sessions_that_began_while_the_server_took_no_writes(postgres_url: str) -> None:
    with Store.open(postgres_url) as before:
        session = create(before)
    with taking_no_writes(postgres_url):
        store = Store.open(postgres_url)
        fill_pool(store)
        refused(store, session)
        fill_pool(store)
    with store:
        accepted(store, session)


def test_tenants_replace_the_sessions_that_they_share(empty_postgres_url: str) -> None:
    with Tenants(empty_postgres_url) as before:
        before.create("acme")
        with before.open("acme") as store:
            session = create(store)
    with Tenants(empty_postgres_url) as tenants:
        with taking_no_writes(empty_postgres_url), tenants.open("acme") as store:
            fill_pool(store)
            refused(store, session)
            fill_pool(store)
        with tenants.open("acme") as store:
            accepted(store, session)


def test_a_store_over_an_engine_gives_no_session_back_that_refused_to_write(postgres_url: str, engine: Engine) -> None:
    """Which of the host's other sessions are from before only their next writes tell: each refuses once."""
    with Store.open(postgres_url) as before:
        session = create(before)
    with taking_no_writes(postgres_url):
        store = Store.from_engine(engine)
        refused(store, session)
    with store:
        for _ in range(_HOSTS_WIDTH):
            with suppress(Unavailable), store.record(session) as recorder:
                recorder.feed(_START)
            store.transact(lambda tx: tx.chat.sessions.create(agent="build", model=MODEL))
        accepted(store, session)


def test_what_was_begun_for_reading_stays_so(postgres_url: str, engine: Engine) -> None:
    with Store.open(postgres_url) as store, Store.open(postgres_url, read_only=True) as reader:
        with pytest.raises(ReadOnlyTransaction):
            reader.begin().__enter__()
        session = create(store)
        with engine.connect().execution_options(postgresql_readonly=True) as connection, connection.begin():
            with pytest.raises(ReadOnlyTransaction):
                store.join(connection).chat.sessions.delete(session)
            assert store.join(connection).chat.sessions.get(session).id == session


def test_a_store_replaces_sessions_whose_statements_are_of_former_columns(postgres_url: str) -> None:
    with Store.open(postgres_url) as store:
        session = create(store)
        for _ in range(20):
            assert store.chat.sessions.get(session).agent == "build"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("ALTER TABLE persist.chat_sessions ALTER COLUMN agent TYPE varchar(255)")
        with pytest.raises(Unavailable, match="cached plan") as told:
            store.chat.sessions.get(session)
        assert told.value.outcome == "rolled back"
        for _ in range(20):
            assert store.chat.sessions.get(session).agent == "build"
        accepted(store, session)
