"""Services of Google ADK over each face on each database, and the event loop that they are called on."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.integrations.google_adk import PersistArtifactService, PersistMemoryService, PersistSessionService
from tests.subprocesses import Spawn, spawning

Do = Callable[[Awaitable[Any]], Any]


@pytest.fixture
def store(database_url: str, face: str, do: Do) -> Iterator[Store | AsyncStore]:
    """A Store, or an AsyncStore on the loop of `do`."""
    if face == "sync":
        with Store.open(database_url) as store:
            yield store
        return
    other = do(AsyncStore.open(database_url))
    yield other
    do(other.close())


@pytest.fixture
def sessions(store: Store | AsyncStore) -> PersistSessionService:
    return PersistSessionService(store)


@pytest.fixture
def artifacts(store: Store | AsyncStore) -> PersistArtifactService:
    return PersistArtifactService(store)


@pytest.fixture
def memories(store: Store | AsyncStore) -> PersistMemoryService:
    return PersistMemoryService(store)


@pytest.fixture
def spawn(database_url: str) -> Iterator[Spawn]:
    """`spawn(command, *arguments)` starts the worker of this folder on the test's database; none outlives the test."""
    with spawning("tests.integrations.google_adk.worker", database_url) as start:
        yield start
