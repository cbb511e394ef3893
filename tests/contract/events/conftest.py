"""A store whose database keeps the log of events."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def logging_store(open_store: Callable[..., Any]) -> Any:
    """On from the start."""
    return open_store(events=True)


@pytest.fixture
def raw_of(open_raw: Callable[[str], Any], database_url: str) -> Callable[[], Any]:
    """A raw connection, opened when asked for, since the store makes the database."""
    return lambda: open_raw(database_url)
