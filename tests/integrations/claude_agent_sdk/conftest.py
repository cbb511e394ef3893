"""What these tests share beside the store: a session store of the framework over it."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.integrations.claude_agent_sdk import PersistSessionStore
from persist.testing import FrozenClock
from tests.subprocesses import Spawn, spawning

Do = Callable[[Awaitable[Any]], Any]


@pytest.fixture
def sessions(store: Store | AsyncStore) -> Any:
    """Of any type: what entries hold need not be what the framework types."""
    return PersistSessionStore(store)


@pytest.fixture
def look(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    """Another store on the same database, for what everybody else sees."""
    with Store.open(database_url, clock=clock) as store:
        yield store


@pytest.fixture
def spawn(database_url: str) -> Iterator[Spawn]:
    """`spawn(command, *arguments)` starts the worker of this folder on the test's database; none outlives the test."""
    with spawning("tests.integrations.claude_agent_sdk.worker", database_url) as start:
        yield start
