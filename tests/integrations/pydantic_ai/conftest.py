"""Conversation stores over the store of each face on each database."""

import pytest

from persist import AsyncStore, Store
from persist.integrations.pydantic_ai import PersistConversationStore


@pytest.fixture
def conversations(store: Store | AsyncStore) -> PersistConversationStore:
    return PersistConversationStore(store)
