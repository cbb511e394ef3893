"""FastAPI as a host: a transaction for each request, begun, used and ended in whatever threads and tasks the framework takes.

The scope of what writes is the function: FastAPI would otherwise commit after the answer was sent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI

from persist import AsyncStore, Store
from persist.store.async_store import AsyncTransaction
from persist.store.transaction import Transaction
from tests.integrations.serving import served

CLIENTS, ROUNDS = 8, 12
HI = [{"type": "text", "text": "hi"}]


def sync_app(store: Store) -> FastAPI:
    """Dependencies and endpoints that FastAPI runs in its pool of threads, each call in another one."""
    app = FastAPI()

    def writing() -> Iterator[Transaction]:
        with store.begin() as tx:
            yield tx

    def reading() -> Iterator[Transaction]:
        with store.read() as tx:
            yield tx

    @app.post("/sessions")
    def create(tx: Annotated[Transaction, Depends(writing, scope="function")], agent: str) -> dict[str, str]:
        session = tx.chat.sessions.create(agent=agent, model={})
        tx.chat.messages.append(session.id, role="user", parts=HI)
        return {"id": session.id}

    @app.post("/undone")
    def undone(tx: Annotated[Transaction, Depends(writing, scope="function")]) -> None:
        tx.chat.sessions.create(agent="undone", model={})
        raise ZeroDivisionError

    @app.post("/sessions/{session_id}/messages")
    async def append(tx: Annotated[Transaction, Depends(writing, scope="function")], session_id: str) -> dict[str, str]:
        """On the event loop itself, as many hosts have it by mistake."""
        return {"id": tx.chat.messages.append(session_id, role="user", parts=HI).id}

    @app.get("/sessions/{session_id}")
    def show(tx: Annotated[Transaction, Depends(reading)], session_id: str) -> dict[str, int]:
        return {"messages": len(tx.chat.messages.list(session_id))}

    return app


def async_app(store: AsyncStore) -> FastAPI:
    """The same with coroutines."""
    app = FastAPI()

    async def writing() -> AsyncIterator[AsyncTransaction]:
        async with store.begin() as tx:
            yield tx

    async def reading() -> AsyncIterator[AsyncTransaction]:
        async with store.read() as tx:
            yield tx

    @app.post("/sessions")
    async def create(tx: Annotated[AsyncTransaction, Depends(writing, scope="function")], agent: str) -> dict[str, str]:
        session = await tx.chat.sessions.create(agent=agent, model={})
        await tx.chat.messages.append(session.id, role="user", parts=HI)
        return {"id": session.id}

    @app.post("/undone")
    async def undone(tx: Annotated[AsyncTransaction, Depends(writing, scope="function")]) -> None:
        await tx.chat.sessions.create(agent="undone", model={})
        raise ZeroDivisionError

    @app.post("/sessions/{session_id}/messages")
    async def append(tx: Annotated[AsyncTransaction, Depends(writing, scope="function")], session_id: str) -> dict[str, str]:
        return {"id": (await tx.chat.messages.append(session_id, role="user", parts=HI)).id}

    @app.get("/sessions/{session_id}")
    async def show(tx: Annotated[AsyncTransaction, Depends(reading)], session_id: str) -> dict[str, int]:
        return {"messages": len(await tx.chat.messages.list(session_id))}

    return app


async def visit(client: httpx.AsyncClient, number: int) -> None:
    """What one client asks for: everything succeeds, and what it wrote is what it reads."""
    for turn in range(ROUNDS):
        made = await client.post("/sessions", params={"agent": f"{number} {turn}"})
        assert made.status_code == 200, made.text
        path = f"/sessions/{made.json()['id']}"
        assert (await client.post("/undone")).status_code == 500
        added = await client.post(f"{path}/messages")
        assert added.status_code == 200, added.text
        found = await client.get(path)
        assert (found.status_code, found.json()) == (200, {"messages": 2})


async def visit_all(client: httpx.AsyncClient) -> None:
    await asyncio.gather(*(visit(client, number) for number in range(CLIENTS)))


def in_process(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://host", timeout=60)


def check(url: str) -> None:
    with Store.open(url) as store, store.read() as tx:
        page = tx.chat.sessions.list(limit=200)
        assert len(page.items) == CLIENTS * ROUNDS
        assert "undone" not in {session.agent for session in page.items}


def test_synchronous_dependencies(database_url: str) -> None:
    async def main(app: FastAPI) -> None:
        async with in_process(app) as client:
            await visit_all(client)

    with Store.open(database_url) as store:
        asyncio.run(main(sync_app(store)))
    check(database_url)


def test_asynchronous_dependencies(database_url: str) -> None:
    async def main() -> None:
        async with AsyncStore.open(database_url) as store, in_process(async_app(store)) as client:
            await visit_all(client)

    asyncio.run(main())
    check(database_url)


@pytest.mark.parametrize("made", [sync_app, async_app], ids=["sync", "async"])
def test_behind_a_server(database_url: str, made: Callable[[Any], FastAPI]) -> None:
    async def main(address: str) -> None:
        one_each = httpx.Limits(max_keepalive_connections=0)  # the server closes one after an error, as another request is sent
        async with httpx.AsyncClient(base_url=address, timeout=60, limits=one_each) as client:
            await visit_all(client)

    store: Any = Store.open(database_url) if made is sync_app else asyncio.run(_opened(database_url))
    with served(made(store)) as address:
        asyncio.run(main(address))
    store.close() if made is sync_app else asyncio.run(store.close())
    check(database_url)


async def _opened(url: str) -> AsyncStore:
    return await AsyncStore.open(url)
