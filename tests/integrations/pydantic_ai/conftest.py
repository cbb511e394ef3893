"""Conversation stores over the store of each face on each database."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.integrations.pydantic_ai import PersistConversationStore

Do = Callable[[Awaitable[Any]], Any]


@pytest.fixture
def conversations(store: Store | AsyncStore) -> PersistConversationStore:
    return PersistConversationStore(store)
