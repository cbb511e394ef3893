"""Step stores over the store of each face on each database."""

import pytest

from persist import AsyncStore, Store
from persist.integrations.pydantic_ai import PersistStepStore


@pytest.fixture
def steps(store: Store | AsyncStore) -> PersistStepStore:
    return PersistStepStore(store)
