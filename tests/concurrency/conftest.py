"""Real threads and processes, on SQLite and on Postgres; the asynchronous face has tests of its own."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from tests.subprocesses import Spawn, spawning


@pytest.fixture
def face() -> str:
    return "sync"


@pytest.fixture
def clock() -> Callable[[], datetime]:
    """The wall clock, which the other processes have too."""
    return lambda: datetime.now(UTC)


@pytest.fixture
def spawn(database_url: str) -> Iterator[Spawn]:
    """`spawn(command, *arguments)` starts the worker of this folder on the test's database; none outlives the test."""
    with spawning("tests.concurrency.worker", database_url) as start:
        yield start
