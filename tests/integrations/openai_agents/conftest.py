"""What these tests share beside the store: sessions of the framework over it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agents.memory import SQLiteSession

from persist import AsyncStore, Store
from persist.integrations.openai_agents import PersistSession
from persist.testing import FrozenClock

# Older releases of the SDK know no hooks of a session for their compaction.
collect_ignore = [] if hasattr(SQLiteSession, "_get_compaction_snapshot") else ["test_compaction.py"]

Session = Callable[..., Any]
"""A function that gives sessions. Of any type: what they hold need not be what the framework types."""


@pytest.fixture
def session(store: Store | AsyncStore) -> Session:
    """`session("name", …)` makes one over the store."""
    return lambda name="user-1", **options: PersistSession(name, store, **options)


@pytest.fixture
def look(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    """Another store on the same database, for what everybody else sees."""
    with Store.open(database_url, clock=clock) as store:
        yield store
