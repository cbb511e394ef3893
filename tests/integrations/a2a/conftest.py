"""What these tests share beside the store: the task store over it."""

import pytest

from persist import AsyncStore, Store
from persist.integrations.a2a import PersistTaskStore


@pytest.fixture
def tasks(store: Store | AsyncStore) -> PersistTaskStore:
    return PersistTaskStore(store)
