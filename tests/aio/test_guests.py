"""As a guest of an application: verbs inside its own transaction on an async connection, and stores over its engine."""

import asyncio

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from persist import AsyncStore, NotFound, Store
from tests.aio.conftest import new_session


def async_engine(url: str) -> AsyncEngine:
    """The host's own async engine on the same database."""
    return create_async_engine(url.replace("sqlite://", "sqlite+aiosqlite://").replace("postgresql://", "postgresql+psycopg://"))


@pytest.fixture
def prepared_url(database_url: str) -> str:
    Store.open(database_url).close()
    return database_url


@pytest.mark.parametrize("commits", [True, False])
def test_join_leaves_commit_and_rollback_to_the_host(prepared_url: str, commits: bool) -> None:
    async def body() -> None:
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

    asyncio.run(body())


def test_a_store_over_the_hosts_engine_leaves_it_open(prepared_url: str) -> None:
    engine = create_engine(prepared_url.replace("postgresql://", "postgresql+psycopg://"))

    async def body() -> None:
        async with AsyncStore.from_engine(engine) as store:
            session_id = await new_session(store)
            async with store.record(session_id) as recorder:
                await recorder.feed({"type": "start"})
                await recorder.feed({"type": "text-start", "id": "t"})

    asyncio.run(body())
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()
