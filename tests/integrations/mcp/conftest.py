"""What these tests share beside the store: the event stores over it."""

import pytest

from persist import AsyncStore, Store
from persist.integrations.mcp import PersistEventStore


@pytest.fixture
def events(store: Store | AsyncStore) -> PersistEventStore:
    return PersistEventStore(store)
