"""A host whose async engine has the driver asyncpg, as most FastAPI applications with Postgres have it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import uuid4

import httpx
import pytest
from fastapi import Depends, FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

import persist
from persist import AsyncStore, Conflict, InvalidValue, NotFound, Store, StoreBusy, Unavailable, UnsupportedEngine
from persist.store.async_store import AsyncTransaction
from persist.testing import FrozenClock

HI = [{"type": "text", "text": "hi \x00 \ud800 there"}]
Body = Callable[[AsyncStore, AsyncEngine], Awaitable[None]]


@asynccontextmanager
async def host(url: str, **options: Any) -> AsyncIterator[tuple[AsyncStore, AsyncEngine]]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), **options)
    try:
        async with AsyncStore.open(url) as store:
            yield store, engine
    finally:
        await engine.dispose()


@pytest.fixture
def run(postgres_url: str) -> Callable[[Body], None]:
    def run(body: Body) -> None:
        async def main() -> None:
            async with host(postgres_url) as (store, engine):
                await body(store, engine)

        asyncio.run(main())

    return run


async def _fill(tx: AsyncTransaction, connection: AsyncConnection) -> str:
    """Verbs of every domain: text, JSON, instants, numbers, flags and vectors, prepared and not."""
    session = await tx.chat.sessions.create(agent="build", model={"id": "m", "order": [2, 1], "text": "\x00"})
    said = await tx.chat.messages.append(session.id, role="user", parts=HI, metadata={"a": 1.5})
    await tx.chat.messages.record_step_usage(said.id, 0, input_tokens=1, output_tokens=2)
    fork = await tx.chat.sessions.fork(session.id, said.id)
    await tx.chat.sessions.rewind(session.id, said.id)
    await tx.chat.messages.repair_interrupted(session.id)
    assert len(await tx.chat.messages.list(fork.id)) == 1
    run = await tx.workflows.runs.create("triage", trigger_id="t", current_phase="plan", context={"deep": [{}]})
    phase = await tx.workflows.executions.start(trigger_type="cli", trigger_id="t", skill="s", workflow_run_id=run.id)
    await tx.workflows.executions.finish(phase.id, success=True, input_tokens=1, output_tokens=1, cost_usd=0.01)
    assert (await tx.workflows.runs.list(limit=5)).items[0].id == run.id
    kept = await tx.conversations.sessions.create()
    branch = await tx.conversations.branches.create(kept.id)
    message = {"id": str(uuid4()), "created_at": 1.5, "role": "user", "content": {"text": "x"}, "embedding": [0.5, 1.0]}
    await tx.conversations.messages.record(branch.id, message)
    await tx.messaging.sessions.get_or_create(platform="slack", channel_id="C", user_id="U")
    await tx.checkpoints.memories.put(("a",), "k", {"v": 1}, ttl_minutes=5)
    memory = await tx.checkpoints.memories.get(("a",), "k")
    assert memory is not None
    assert memory.value == {"v": 1}
    return session.id


@pytest.mark.parametrize("commits", [True, False])
def test_rows_of_both_stand_or_fall_together(run: Callable[[Body], None], commits: bool) -> None:
    async def body(store: AsyncStore, engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await connection.execute(text("CREATE TABLE host (note TEXT)"))
        async with engine.connect() as connection:
            await connection.execute(text("INSERT INTO host VALUES ('mine')"))
            session_id = await _fill(store.join(connection), connection)
            await (connection.commit() if commits else connection.rollback())
        async with engine.connect() as connection:
            notes = (await connection.execute(text("SELECT note FROM host"))).scalars().all()
        assert notes == (["mine"] if commits else [])
        async with store.read() as tx:
            assert [one.id for one in (await tx.chat.sessions.list(agent="build")).items][-1:] == (
                [session_id] if commits else []
            )

    run(body)


def test_refusals_are_those_of_a_store_and_harm_nothing(run: Callable[[Body], None]) -> None:
    async def body(store: AsyncStore, engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            tx = store.join(connection)
            session = await tx.chat.sessions.create(agent="build", model={})
            said = await tx.chat.messages.append(session.id, role="user", parts=HI)
            with pytest.raises(NotFound):
                await tx.chat.sessions.get("nowhere")
            with pytest.raises(Conflict):
                await tx.chat.sessions.create(agent="build", model={}, id=session.id)
            with pytest.raises(Conflict) as taken:
                await tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "other"}], id=said.id)
            assert taken.value.constraint == "pk_chat_messages"
            with pytest.raises(InvalidValue):
                await tx.chat.messages.append(session.id, role="user", parts=[{}])
            await tx.chat.messages.append(session.id, role="user", parts=HI)
        async with store.read() as tx:
            assert [one["parts"] for one in await tx.chat.messages.list(session.id)] == [HI, HI]

    run(body)


def test_autocommit_and_other_roles_of_the_engine_are_refused(run: Callable[[Body], None]) -> None:
    async def body(store: AsyncStore, engine: AsyncEngine) -> None:
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            with pytest.raises(InvalidValue, match="AUTOCOMMIT"):
                await store.join(connection).chat.prompts.put("x")
        for given in (engine, engine.sync_engine):
            with pytest.raises(UnsupportedEngine, match="open the store by its URL"):
                await AsyncStore.from_engine(given)  # type: ignore[arg-type]  # which is what the test is about
            with pytest.raises(UnsupportedEngine, match="open the store by its URL"):
                Store.from_engine(given)  # type: ignore[arg-type]  # as above
            with pytest.raises(InvalidValue, match=r"engine\.begin"):
                store.join(given)  # type: ignore[arg-type]  # as above
        async with engine.connect() as connection:
            assert connection.sync_connection is not None
            with pytest.raises(InvalidValue, match="synchronous"):
                store.join(connection.sync_connection)  # type: ignore[arg-type]  # as above
            with pytest.raises(InvalidValue, match="run_sync"):
                store._store.join(connection.sync_connection).chat.sessions.list()

    run(body)


@pytest.mark.parametrize("at", [datetime.max, datetime(1, 1, 1, 1), datetime.min])
def test_instants_at_both_ends(postgres_url: str, at: datetime) -> None:
    """The driver itself would make minus infinity of the first one, which nobody could read."""
    clock = FrozenClock(at.replace(tzinfo=UTC))

    async def main() -> None:
        engine = create_async_engine(postgres_url.replace("postgresql://", "postgresql+asyncpg://"))
        async with AsyncStore.open(postgres_url, clock=clock) as store:
            async with engine.begin() as connection:
                tx = store.join(connection)
                await tx.programs.runs.create(id="r")
                run = await tx.workflows.runs.create("triage", trigger_id="t", current_phase="plan")
            async with store.read() as reading:
                assert (await reading.programs.runs.get("r")).started_at == clock().replace(microsecond=0)
                assert await reading.workflows.runs.get(run.id) == run
                assert [one.id for one in (await reading.workflows.runs.list(since=clock())).items] == [run.id]
        await engine.dispose()

    asyncio.run(main())


def test_its_connection_makes_the_tables(empty_postgres_url: str) -> None:
    async def main() -> None:
        engine = create_async_engine(empty_postgres_url.replace("postgresql://", "postgresql+asyncpg://"))
        async with engine.connect() as connection:
            await connection.run_sync(persist.upgrade)
            await connection.rollback()
            assert await connection.run_sync(persist.current) is None
            await connection.run_sync(persist.upgrade)
            await connection.commit()
            await connection.run_sync(persist.check)
        await engine.dispose()

    asyncio.run(main())
    assert persist.current(empty_postgres_url) == persist.schema.metadata.HEAD


def test_the_log_of_events_is_kept(run: Callable[[Body], None]) -> None:
    async def body(store: AsyncStore, engine: AsyncEngine) -> None:
        await store.switch_events(True)
        async with engine.begin() as connection:
            session = await store.join(connection).chat.sessions.create(agent="build", model={})
        async with store.read() as tx:
            assert len(await tx.events.read(session.id)) == 1

    run(body)


def test_a_lost_connection_and_a_lock_are_said_as_such(postgres_url: str) -> None:
    async def main() -> None:
        async with host(postgres_url) as (store, engine), engine.connect() as connection, engine.connect() as other:
            tx = store.join(connection)
            session = await tx.chat.sessions.create(agent="build", model={})
            await connection.commit()
            await tx.chat.sessions.archive(session.id)
            await other.execute(text("SET LOCAL lock_timeout = '10ms'"))
            with pytest.raises(StoreBusy):
                await store.join(other).chat.sessions.archive(session.id)
            await other.rollback()
            pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar()
            await other.execute(text(f"SELECT pg_terminate_backend({pid})"))
            with pytest.raises(Unavailable):
                await tx.chat.sessions.get(session.id)

    asyncio.run(main())


def test_a_fastapi_application_joins_its_own_transaction(postgres_url: str) -> None:
    """Eight clients at once, each request in a transaction of the host's engine."""

    async def main() -> None:
        async with host(postgres_url, pool_size=5, max_overflow=0) as (store, engine):
            app = FastAPI()

            async def connected() -> AsyncIterator[AsyncConnection]:
                async with engine.begin() as connection:
                    yield connection

            @app.post("/orders")
            async def order(connection: Annotated[AsyncConnection, Depends(connected, scope="function")]) -> dict[str, str]:
                tx = store.join(connection)
                session = await tx.chat.sessions.create(agent="orders", model={})
                await tx.chat.messages.append(session.id, role="user", parts=HI)
                await connection.execute(text("INSERT INTO orders VALUES (:id)"), {"id": session.id})
                return {"id": session.id}

            async with engine.begin() as connection:
                await connection.execute(text("CREATE TABLE orders (id TEXT)"))
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://host", timeout=60) as client:

                async def visit() -> list[str]:
                    answers = [await client.post("/orders") for _ in range(5)]
                    assert {answer.status_code for answer in answers} == {200}
                    return [answer.json()["id"] for answer in answers]

                made = {one for ids in await asyncio.gather(*(visit() for _ in range(8))) for one in ids}
            async with engine.connect() as connection:
                assert set((await connection.execute(text("SELECT id FROM orders"))).scalars()) == made
            async with store.read() as tx:
                assert {one.id for one in (await tx.chat.sessions.list(agent="orders", limit=100)).items} == made

    asyncio.run(main())
