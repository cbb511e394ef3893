"""A store of each face on each database, its own event loop, and sessions of the framework over it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from agents.memory import SQLiteSession

from persist import AsyncStore, Store
from persist.integrations.openai_agents import PersistSession
from persist.testing import FrozenClock

# Older releases of the SDK know no hooks of a session for their compaction.
collect_ignore = [] if hasattr(SQLiteSession, "_get_compaction_snapshot") else ["test_compaction.py"]

Session = Callable[..., Any]
"""A function that gives sessions. Of any type: what they hold need not be what the framework types."""


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
    if face == "sync":
        with Store.open(database_url, clock=clock) as store:
            yield store
        return
    other = do(AsyncStore.open(database_url, clock=clock))
    yield other
    do(other.close())


@pytest.fixture
def session(store: Store | AsyncStore) -> Session:
    """`session("name", …)` makes one over the store."""
    return lambda name="user-1", **options: PersistSession(name, store, **options)


@pytest.fixture
def look(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    """Another store on the same database, for what everybody else sees."""
    with Store.open(database_url, clock=clock) as store:
        yield store
