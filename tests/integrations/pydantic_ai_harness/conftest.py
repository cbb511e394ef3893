"""A step store of each face on each database, and the event loop that it works on."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.integrations.pydantic_ai import PersistStepStore
from persist.testing import FrozenClock

Do = Callable[[Awaitable[Any]], Any]


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def do(runner: asyncio.Runner) -> Do:
    """Awaits something on the loop of the store."""

    async def awaited(what: Awaitable[Any]) -> Any:
        return await what

    return lambda what: runner.run(awaited(what))


@pytest.fixture
def store(database_url: str, face: str, clock: FrozenClock, do: Do) -> Iterator[Store | AsyncStore]:
    if face == "sync":
        with Store.open(database_url, clock=clock) as store:
            yield store
        return
    other = do(AsyncStore.open(database_url, clock=clock))
    yield other
    do(other.close())


@pytest.fixture
def steps(store: Store | AsyncStore) -> PersistStepStore:
    return PersistStepStore(store)
