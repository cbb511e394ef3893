"""A Postgres server that ends connections, loses them, holds what is needed, or does not answer."""

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, make_url

from persist import AsyncStore, Store, Tenants
from persist.db.dialects.postgres import connections as postgres_connections
from persist.db.dialects.postgres import connections as postgres_patience
from persist.errors import NotFound, ReadOnlyTransaction, StoreBusy, Unavailable
from tests.concurrency.following import Follower, append, data
from tests.concurrency.test_watching import wait_for
from tests.contract.chat.scenes import MODEL, create, eventually, shown, text, words
from tests.torture.outage_hosts import Fate, Proxy, nth, passes

_OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture
def backend() -> str:
    return "postgres"


@pytest.fixture
def store(open_store: Callable[..., Store]) -> Store:
    return open_store()


@pytest.fixture
def raw(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    with Proxy(database_url, random.Random(1)) as proxy:
        yield proxy


def end_connections(raw: psycopg.Connection[Any]) -> None:
    """Returns when they are closed: a server's process is not shown any more a moment before it closes its connection."""
    ended = [pid for (pid, _) in raw.execute(f"SELECT pid, pg_terminate_backend(pid) {_OTHERS}")]
    wait_for(raw, _OTHERS, 0)
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ended))


def test_connections_that_the_server_ended_meanwhile_are_replaced_and_nobody_is_told(
    store: Store, raw: psycopg.Connection[Any]
) -> None:
    session = create(store)
    with store.record(session) as recorder:
        for chunk in text("before ", "after")[:2]:
            recorder.feed(chunk)
        end_connections(raw)
        recorder.feed({"type": "text-delta", "id": "t", "delta": "after"})
        end_connections(raw)
        assert words(shown(store, session)) == ["before after"]
        end_connections(raw)
        create(store)


def test_a_snapshot_ends_though_nobody_waits_for_its_end(store: Store, raw: psycopg.Connection[Any]) -> None:
    session = create(store)
    for _ in range(3):
        shown(store, session)
        wait_for(raw, f"{_OTHERS} AND state <> 'idle'", 0)


@pytest.mark.parametrize("rest", [0.0, 60.0], ids=["back in the pool", "kept ready"])
def test_a_connection_that_ended_with_a_snapshot_is_replaced_and_nobody_is_told(
    monkeypatch: pytest.MonkeyPatch,
    open_store: Callable[..., Store],
    raw: psycopg.Connection[Any],
    caplog: pytest.LogCaptureFixture,
    rest: float,
) -> None:
    monkeypatch.setattr(postgres_connections, "_IDLE_SECONDS", rest)
    store = open_store()
    session = create(store)
    for _ in range(3):
        assert shown(store, session) == []
        assert shown(store, session) == []
        end_connections(raw)
    shown(store, session)
    end_connections(raw)
    store.close()
    assert not caplog.records


def test_the_same_of_snapshots_that_begin_on_the_loop(store: Store, database_url: str, raw: psycopg.Connection[Any]) -> None:
    session = create(store)

    async def body() -> None:
        async with AsyncStore.open(database_url) as other:
            for _ in range(3):
                for _ in range(2):
                    async with other.read() as tx:
                        assert await tx.chat.messages.list(session) == []
                end_connections(raw)

    asyncio.run(body())


def test_a_connection_that_is_lost_as_a_transaction_begins_is_replaced_and_nobody_is_told(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(proxy.url) as store:
        create(store)
        proxy.judge = nth(1, Fate.CUT_BEFORE)
        with store.begin() as tx:
            tx.chat.sessions.create(agent="build", model={})
    assert not caplog.records


def test_a_lost_connection_is_told_by_us_alone(proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    with Store.open(proxy.url) as store:
        create(store)
        caplog.clear()

        def lost() -> None:
            with store.begin() as tx:
                assert not tx.checkpoints.threads.delete("t")
                proxy.judge = nth(1, Fate.CUT_BEFORE)
                tx.checkpoints.threads.delete("t")

        with pytest.raises(Unavailable):
            lost()
        assert {record.name for record in caplog.records} <= {"persist"}
        create(store)


def test_a_piece_of_text_whose_part_somebody_holds_is_refused_in_time(
    short_lock_waits: None, store: Store, database_url: str
) -> None:
    session = create(store)
    with store.record(session) as recorder, psycopg.connect(database_url) as other:
        for chunk in text("one ", "two")[:2]:
            recorder.feed(chunk)
        other.execute("SELECT FROM persist.chat_parts FOR UPDATE")
        with pytest.raises(StoreBusy):
            recorder.feed({"type": "text-delta", "id": "t", "delta": "two"})
        other.rollback()
        recorder.feed({"type": "text-delta", "id": "t", "delta": "two"})
        assert words(shown(store, session)) == ["one two"]


@pytest.mark.parametrize("fed", [0, 2], ids=["as it begins", "between two pieces"])
def test_a_session_that_is_being_deleted_is_not_found(
    store: Store, database_url: str, raw: psycopg.Connection[Any], fed: int
) -> None:
    session = create(store)
    chunks = text("one ", "two")
    with psycopg.connect(database_url) as other, store.record(session) as recorder, ThreadPoolExecutor(1) as thread:
        for chunk in chunks[:fed]:
            recorder.feed(chunk)
        other.execute("DELETE FROM persist.chat_sessions")
        feeding = thread.submit(recorder.feed, chunks[fed])
        wait_for(raw, f"{_OTHERS} AND wait_event_type = 'Lock'")
        other.commit()
        with pytest.raises(NotFound):
            feeding.result(30)


def test_what_a_recorder_holds_back_can_be_written_when_the_server_is_back(proxy: Proxy, store: Store) -> None:
    session = create(store)
    with Store.open(proxy.url) as away:
        recorder = away.record(session, save_on="turn")
        recorder.feed_many(text("kept"))
        proxy.judge = lambda _: Fate.CUT_BEFORE
        for _ in range(2):
            with pytest.raises(Unavailable) as caught:
                recorder.close()
            assert caught.value.outcome == "rolled back"
        proxy.judge = passes
        recorder.close()
    assert words(shown(store, session)) == ["kept"]


def test_a_cancelled_transaction_ends_though_the_server_does_not_answer(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_patience, "_GRACE", 0.2)

    async def stall(store: AsyncStore) -> None:
        async with store.begin() as tx:
            proxy.judge = lambda _: Fate.STALL
            await tx.chat.sessions.create(agent="build", model={})

    async def go() -> None:
        async with AsyncStore.open(f"{proxy.url}&connect_timeout=2") as store:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stall(store), 0.2)
            proxy.judge = passes
            async with store.begin() as tx:
                await tx.chat.sessions.create(agent="build", model={})

    asyncio.run(asyncio.wait_for(go(), 30))


def test_a_watch_listens_at_the_host_of_several_that_answers(proxy: Proxy, raw: psycopg.Connection[Any]) -> None:
    one = make_url(proxy.url)
    hosts = {"host": ["127.0.0.1:1", f"{one.host}:{one.port}"], "sslmode": "disable", "target_session_attrs": "read-write"}
    url = one.set(host=None, port=None, query=hosts).render_as_string(hide_password=False)
    with Store.open(url, events=True) as store:
        reader = Follower(store, "a")
        append(store, "a", 1)
        assert data(reader.take(1)) == [1]
        wait_for(raw, f"{_OTHERS} AND query LIKE 'LISTEN %'")


def test_connections_are_made_and_found_dead_in_time_unless_the_url_says_otherwise(proxy: Proxy) -> None:
    for url, seconds in ((proxy.url, "10"), (f"{proxy.url}&connect_timeout=3", "3")):
        with Store.open(url) as store:
            pooled = store.runtime.connections.writer.raw_connection()
            driver: Any = pooled.driver_connection
            said = driver.info.get_parameters()
            pooled.close()
        assert (said["connect_timeout"], said["tcp_user_timeout"], said["keepalives_idle"]) == (seconds, "30000", "30")


# Sessions of a Postgres server that outlive what they began with: nothing stays read-only, or of former columns.


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
