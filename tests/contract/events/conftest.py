"""A store whose database keeps the log of events."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.testing import FrozenClock
from tests.seeded_databases import Prepared


def switched_on(url: str) -> None:
    """Nothing in it yet but what switching the log on leaves."""
    Store.open(url, clock=FrozenClock(), events=True).close()


@pytest.fixture
def logging_url(backend: str, tmp_path: Path, prepared: Prepared) -> Iterator[str]:
    """A database whose log was switched on when it was empty."""
    with prepared.lend(switched_on, backend, tmp_path) as url:
        yield url


@pytest.fixture
def database_url(backend: str, request: pytest.FixtureRequest) -> str:
    """Of a test that asks for `logging_store`, the one that is its."""
    return str(request.getfixturevalue("logging_url" if "logging_store" in request.fixturenames else f"{backend}_url"))


@pytest.fixture
def logging_store(open_store: Callable[..., Any]) -> Any:
    """On from the start."""
    return open_store(events=True)


@pytest.fixture
def raw_of(open_raw: Callable[[str], Any], database_url: str) -> Callable[[], Any]:
    """A raw connection, opened when asked for, since the store makes the database."""
    return lambda: open_raw(database_url)
