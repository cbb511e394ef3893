"""Step stores over the store of each face on each database."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.integrations.pydantic_ai import PersistStepStore

Do = Callable[[Awaitable[Any]], Any]


@pytest.fixture
def steps(store: Store | AsyncStore) -> PersistStepStore:
    return PersistStepStore(store)
