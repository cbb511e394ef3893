"""What these tests share beside the store: a session store of the framework over it."""

from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.integrations.claude_agent_sdk import PersistSessionStore


@pytest.fixture
def sessions(store: Store | AsyncStore) -> Any:
    """Of any type: what entries hold need not be what the framework types."""
    return PersistSessionStore(store)
