"""For the tests of programs that use persist: a ready store and a clock that stands still.

Name the module in the top-level `conftest.py`, and ask for the fixtures:

    pytest_plugins = ["persist.testing"]

    def test_greeting(persist_store, persist_clock):
        with persist_store.begin() as tx:
            session = tx.chat.sessions.create(agent="build", model={})
        persist_clock.advance(seconds=30)
        with persist_store.read() as tx:
            assert tx.chat.sessions.get(session.id).created_at == datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)

Only this module imports pytest; nothing else of persist imports it but the checks in `persist.testing.conformance`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock

import pytest

from persist.errors import InvalidValue
from persist.store.store import Store

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
    with Store.open(f"sqlite:///{(tmp_path / 'persist.db').as_posix()}", clock=persist_clock) as store:
        yield store
