"""As a guest of an application: verbs inside its own transaction on an async connection, and stores over its engine."""

import asyncio
import re
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from persist import AsyncStore, InvalidValue, NotFound, PersistError, Store, StoreBusy, TransactionOpen, UnsupportedEngine
from tests.aio.conftest import new_session


def async_engine(url: str) -> AsyncEngine:
    """The host's own async engine on the same database."""
    return create_async_engine(url.replace("sqlite://", "sqlite+aiosqlite://").replace("postgresql://", "postgresql+psycopg://"))


@pytest.fixture
def prepared_url(database_url: str) -> str:
    Store.open(database_url).close()
    return database_url


@pytest.mark.parametrize("commits", [True, False])
async def test_join_leaves_commit_and_rollback_to_the_host(prepared_url: str, commits: bool) -> None:
    engine = async_engine(prepared_url)
    async with AsyncStore.open(prepared_url) as store:
        async with engine.connect() as connection:
            tx = store.join(connection)
            session = await tx.chat.sessions.create(agent="build", model={})
            with pytest.raises(NotFound):
                await tx.chat.messages.append("ses_nobody", role="user", parts=[])
            await tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "hi"}])
            assert (await connection.execute(text("SELECT 1"))).scalar() == 1
            await (connection.commit() if commits else connection.rollback())
        async with store.read() as reading:
            found = (await reading.chat.sessions.list()).items
        assert [session.id for session in found] == ([session.id] if commits else [])
    await engine.dispose()


async def test_a_store_over_the_hosts_engine_leaves_it_open(prepared_url: str) -> None:
    engine = create_engine(prepared_url.replace("postgresql://", "postgresql+psycopg://"))
    async with AsyncStore.from_engine(engine) as store:
        session_id = await new_session(store)
        async with store.record(session_id) as recorder:
            await recorder.feed({"type": "start"})
            await recorder.feed({"type": "text-start", "id": "t"})
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()


async def test_what_is_no_connection_is_refused_with_advice(prepared_url: str) -> None:
    engine = create_engine(prepared_url.replace("postgresql://", "postgresql+psycopg://"))
    theirs = async_engine(prepared_url)
    async with AsyncStore.open(prepared_url) as store, theirs.connect() as connection, AsyncSession(theirs) as session:
        with engine.connect() as sync_connection, Session(engine) as sync_session:
            wrong: list[tuple[Any, str]] = [
                (theirs, "engine.begin"),
                (engine, "engine.begin"),
                ("text", "expected one of SQLAlchemy, got str"),
                (None, "got NoneType"),
            ]
            asynchronous = [(each, "synchronous") for each in (sync_connection, connection.sync_connection, sync_session)]
            for given, advice in [*wrong, *asynchronous, (theirs.sync_engine, "engine.begin"), (theirs.connect(), "not open")]:
                with pytest.raises(InvalidValue, match=re.escape(advice)):
                    store.join(given)
            for given, advice in [*wrong, (connection, "asynchronous"), (session, "asynchronous")]:
                with pytest.raises(InvalidValue, match=re.escape(advice)):
                    store._store.join(given)
    await theirs.dispose()
    engine.dispose()


async def test_a_connection_of_an_asynchronous_engine_is_used_inside_run_sync_alone(prepared_url: str) -> None:
    theirs = async_engine(prepared_url)
    with Store.open(prepared_url) as store:
        async with theirs.connect() as connection:
            created = await connection.run_sync(lambda inner: store.join(inner).chat.sessions.create(agent="a", model={}).id)
            await connection.commit()
            assert connection.sync_connection is not None
            tx = store.join(connection.sync_connection)
            with pytest.raises(InvalidValue, match="run_sync"):
                tx.chat.sessions.list()
            with pytest.raises(InvalidValue, match="run_sync"):
                tx.chat.prompts.put("x")
        assert store.chat.sessions.get(created).agent == "a"
    await theirs.dispose()


async def test_asynchronous_engines_are_refused_with_advice(prepared_url: str) -> None:
    theirs = async_engine(prepared_url)
    given: Any
    for given in (theirs, theirs.sync_engine):
        with pytest.raises(UnsupportedEngine, match="open the store by its URL"):
            Store.from_engine(given)
        with pytest.raises(UnsupportedEngine, match="open the store by its URL"):
            await AsyncStore.from_engine(given)
    for given in (None, "sqlite://", AsyncSession):
        with pytest.raises(InvalidValue, match="create_engine"):
            Store.from_engine(given)
    await theirs.dispose()


async def test_a_connection_that_was_closed_meanwhile_is_refused(prepared_url: str) -> None:
    theirs = async_engine(prepared_url)
    async with AsyncStore.open(prepared_url) as store:
        async with theirs.connect() as connection:
            tx = store.join(connection)
        with pytest.raises(PersistError):
            await tx.chat.sessions.list()
        with pytest.raises(PersistError):
            await tx.chat.prompts.put("x")
    await theirs.dispose()


@pytest.mark.parametrize(("size", "overflow"), [(5, 10), (1, 1), (1, 0)])
async def test_as_many_transactions_are_let_in_as_the_pool_of_the_host_has_connections(
    prepared_url: str, size: int, overflow: int
) -> None:
    """The pool gives up at once, so that nobody may ask it for more than it has."""
    url = prepared_url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url, pool_size=size, max_overflow=overflow, pool_timeout=0.01)
    async with AsyncStore.from_engine(engine) as store:
        session_id = await new_session(store)

        async def visit() -> None:
            for _ in range(3):
                async with store.begin() as tx:
                    await tx.chat.messages.append(session_id, role="user", parts=[])
                    if size + overflow > 1:
                        async with store.read() as reading:
                            await reading.chat.sessions.get(session_id)
                async with store.read() as reading:
                    await reading.chat.sessions.get(session_id)

        await asyncio.gather(*(visit() for _ in range(16)))
        async with store.read() as reading:
            assert len(await reading.chat.messages.list(session_id)) == 48
    engine.dispose()


def test_an_exhausted_pool_is_said_to_be_one(prepared_url: str) -> None:
    url = prepared_url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url, pool_size=2, max_overflow=0, pool_timeout=0.01)
    with Store.from_engine(engine) as store:
        store.runtime.sleep = lambda seconds: None
        with engine.connect(), engine.connect():
            for open_ in (store.begin, store.read):
                with pytest.raises(StoreBusy, match="every connection of the pool is in use") as busy, open_():
                    raise AssertionError("entered")
                assert busy.value.reason == "every connection of the pool is in use"
    engine.dispose()


def test_a_read_that_would_wait_for_the_one_connection_of_its_own_transaction_is_refused(prepared_url: str) -> None:
    url = prepared_url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url, pool_size=1, max_overflow=0)
    with Store.from_engine(engine) as store:
        for open_ in (store.begin, store.read):
            with open_() as tx:
                with pytest.raises(TransactionOpen), store.read():
                    raise AssertionError("entered")
                tx.chat.sessions.list()
    engine.dispose()
