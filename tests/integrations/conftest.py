"""What the tests of every framework need: an event loop, and a store of each face on each database that works on it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.testing import FrozenClock


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def do(runner: asyncio.Runner) -> Callable[[Awaitable[Any]], Any]:
    """Awaits something on the loop of the store."""

    async def awaited(what: Awaitable[Any]) -> Any:
        return await what

    return lambda what: runner.run(awaited(what))


@pytest.fixture
def store(database_url: str, face: str, clock: FrozenClock, do: Callable[[Awaitable[Any]], Any]) -> Iterator[Store | AsyncStore]:
    """A Store, or an AsyncStore on the loop of `do`."""
    if face == "sync":
        with Store.open(database_url, clock=clock) as store:
            yield store
        return
    other = do(AsyncStore.open(database_url, clock=clock))
    yield other
    do(other.close())
