"""Services of Google ADK over each face on each database, and the event loop that they are called on."""

from collections.abc import Iterator

import pytest

from persist import AsyncStore, Store
from persist.integrations.google_adk import PersistArtifactService, PersistMemoryService, PersistSessionService
from tests.integrations.kits import Do


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
