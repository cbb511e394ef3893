"""Real threads and processes, on SQLite and on Postgres; the asynchronous face has tests of its own."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from tests.contract.tenants.conftest import empty_server, server_url  # noqa: F401  # fixtures
from tests.distributed_server import is_cluster
from tests.subprocesses import Spawn, spawning


def _on_cluster() -> bool:
    url = os.environ.get("PERSIST_TEST_POSTGRES_URL")
    if url is None:
        return False
    with psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://", 1)) as connection:
        return is_cluster(connection)


collect_ignore = [] if _on_cluster() else ["test_moving_tenants.py"]


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
