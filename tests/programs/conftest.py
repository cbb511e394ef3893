"""A run file, and raw looks at it."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from persist.programs import create_run_file
from persist.store import Store
from persist.testing import FrozenClock


@pytest.fixture
def run_file(tmp_path: Path, clock: FrozenClock) -> Iterator[Store]:
    """The store of a new run below tmp_path."""
    with create_run_file(tmp_path, program_path="demo.prose", program_source="session 'hi'", clock=clock) as store:
        yield store


@pytest.fixture
def run(run_file: Store) -> str:
    """Its id."""
    assert run_file.run_id is not None
    return run_file.run_id


@pytest.fixture
def file(run_file: Store) -> Path:
    """Its path."""
    assert run_file.path is not None
    return run_file.path


@pytest.fixture
def raw(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection that knows nothing of persist."""
    connection = sqlite3.connect(file, isolation_level=None, timeout=30)
    yield connection
    connection.close()
