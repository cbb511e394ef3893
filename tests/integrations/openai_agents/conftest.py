"""What these tests share beside the store: sessions of the framework over it."""

from collections.abc import Callable
from typing import Any

import pytest
from agents.memory import SQLiteSession

from persist import AsyncStore, Store
from persist.integrations.openai_agents import PersistSession

# Older releases of the SDK know no hooks of a session for their compaction.
collect_ignore = [] if hasattr(SQLiteSession, "_get_compaction_snapshot") else ["test_compaction.py"]

Session = Callable[..., Any]
"""A function that gives sessions. Of any type: what they hold need not be what the framework types."""


@pytest.fixture
def session(store: Store | AsyncStore) -> Session:
    """`session("name", …)` makes one over the store."""
    return lambda name="user-1", **options: PersistSession(name, store, **options)
