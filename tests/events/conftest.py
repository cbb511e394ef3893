"""The log, and what can be made from it. These tests look at databases from outside, so one face is enough."""

import pytest

from persist.testing import FrozenClock


@pytest.fixture
def face() -> str:
    return "sync"


@pytest.fixture
def other_kind(backend: str, request: pytest.FixtureRequest) -> str:
    """A new database of the other kind."""
    return str(request.getfixturevalue("sqlite_url" if backend == "postgres" else "postgres_url"))


@pytest.fixture
def clock() -> FrozenClock:
    """Stands still until it is advanced."""
    return FrozenClock()
