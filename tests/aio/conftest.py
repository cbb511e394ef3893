"""What only the async face does: tests that need a loop of their own, on both databases."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from persist import AsyncStore
from tests.aio.loops import ENOUGH, opened

T = TypeVar("T")
WithStore = Callable[[Callable[[AsyncStore], Awaitable[T]]], T]


@pytest.fixture
def with_store(database_url: str) -> WithStore[object]:
    """Run a coroutine function with an open AsyncStore, in a loop of its own; the store must be closable at the end."""

    def run(body: Callable[[AsyncStore], Awaitable[object]]) -> object:
        async def main() -> object:
            async with AsyncStore.open(database_url) as store:
                return await body(store)

        return asyncio.run(main())

    return run


async def new_session(store: AsyncStore) -> str:
    """The id of a new session."""
    async with store.begin() as tx:
        session = await tx.chat.sessions.create(agent="build", model={"model_id": "m"})
    return session.id


async def text_of(store: AsyncStore, session_id: str) -> str:
    """All text of the session's messages."""
    async with store.read() as tx:
        messages = await tx.chat.messages.list(session_id)
    return "".join(part.get("text", "") for message in messages for part in message["parts"])


@pytest.fixture
def shared(database_url: str) -> Iterator[AsyncStore]:
    """A store that a loop opened which is closed already, and that yet another one closes."""
    store = asyncio.run(opened(database_url))
    yield store
    asyncio.run(asyncio.wait_for(store.close(), ENOUGH))
