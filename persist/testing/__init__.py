"""For the tests of programs that use persist: ready stores, synchronous and not, and a clock that stands still.

Name the module in the top-level `conftest.py`, and ask for the fixtures:

    pytest_plugins = ["persist.testing"]

    def test_greeting(persist_store, persist_clock):
        with persist_store.begin() as tx:
            session = tx.chat.sessions.create(agent="build", model={})
        persist_clock.advance(seconds=30)
        with persist_store.read() as tx:
            assert tx.chat.sessions.get(session.id).created_at == datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)

`persist_async_store` is the AsyncStore on such a file. `persist_postgres_store` and `persist_async_postgres_store` have a new
schema of a server for each test; PERSIST_TEST_POSTGRES_URL names the server. Any plugin may run the asynchronous tests.

Only this module imports pytest; nothing else of persist imports it but the checks in `persist.testing.conformance`.
"""

import asyncio
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock

import pytest

from persist.errors import InvalidValue
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.tenants.tenants import Tenants

START = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


class FrozenClock:
    """A clock for `Store.open(clock=…)` that moves only when told to; it may be told so from any thread."""

    def __init__(self, now: datetime = START) -> None:
        self._lock = Lock()
        self.set(now)

    def __call__(self) -> datetime:
        with self._lock:
            return self._now

    def set(self, now: datetime) -> None:
        """Jump to an instant, which may lie in the past."""
        if now.utcoffset() is None:
            raise InvalidValue("now", "an aware datetime is required.")
        with self._lock:
            self._now = now.astimezone(UTC)

    def advance(self, *, seconds: float = 0, delta: timedelta = timedelta()) -> datetime:
        """Move by seconds, or by a timedelta, and return the new instant; negative amounts turn the clock back."""
        with self._lock:
            self._now += timedelta(seconds=seconds) + delta
            return self._now


@pytest.fixture
def persist_clock() -> FrozenClock:
    """The clock of `persist_store`."""
    return FrozenClock()


@pytest.fixture
def persist_store(tmp_path: Path, persist_clock: FrozenClock) -> Iterator[Store]:
    """A store on a new SQLite file that is removed with the test's temporary directory."""
    with Store.open(tmp_path / "persist.db", clock=persist_clock) as store:
        yield store


@pytest.fixture
def persist_async_store(tmp_path: Path, persist_clock: FrozenClock) -> Iterator[AsyncStore]:
    """An AsyncStore on a new SQLite file; it is closed after the test, whose loop need not run any more."""
    with _closed_after(Store.open(tmp_path / "persist-async.db", clock=persist_clock)) as store:
        yield store


@pytest.fixture(scope="session")
def persist_postgres_url() -> str:
    """The server of PERSIST_TEST_POSTGRES_URL. Override the fixture in a conftest.py to name another one."""
    url = os.environ.get("PERSIST_TEST_POSTGRES_URL")
    if url is None:
        pytest.fail("Set PERSIST_TEST_POSTGRES_URL to a server such as postgresql://user@host/database.", pytrace=False)
    return url


@pytest.fixture
def persist_postgres_schema(persist_postgres_url: str) -> Iterator[str]:
    """The name of a new schema with persist's tables, which is dropped after the test. The role must be allowed to make one."""
    name = f"test_{secrets.token_hex(8)}"
    with Tenants(persist_postgres_url) as tenants:
        tenants.create(name)
        try:
            yield name
        finally:
            tenants.drop(name, confirm=name)


@pytest.fixture
def persist_postgres_store(
    persist_postgres_url: str, persist_postgres_schema: str, persist_clock: FrozenClock
) -> Iterator[Store]:
    """A store on a new schema of the Postgres server."""
    with Store.open(persist_postgres_url, schema=persist_postgres_schema, clock=persist_clock) as store:
        yield store


@pytest.fixture
def persist_async_postgres_store(
    persist_postgres_url: str, persist_postgres_schema: str, persist_clock: FrozenClock
) -> Iterator[AsyncStore]:
    """An AsyncStore on a new schema of the Postgres server."""
    with _closed_after(Store.open(persist_postgres_url, schema=persist_postgres_schema, clock=persist_clock)) as store:
        yield store


@contextmanager
def _closed_after(opened: Store) -> Iterator[AsyncStore]:
    store = AsyncStore(opened)
    try:
        yield store
    finally:
        asyncio.run(store.close())
