"""What only the async face does: tests that need a loop of their own, on both databases."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from persist import AsyncStore
from tests.aio.loops import ENOUGH, opened


@pytest.fixture
def store(database_url: str) -> Any:
    """An AsyncStore that a test which is a coroutine function is given open."""
    return AsyncStore.open(database_url)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in a loop of its own; the store must be closable at the end."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def main() -> None:
        if "store" in given:
            async with given.pop("store") as store:
                await pyfuncitem.obj(store=store, **given)
        else:
            await pyfuncitem.obj(**given)

    asyncio.run(main())
    return True


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
