"""Real threads and processes, on SQLite and on Postgres; the asynchronous face has tests of its own."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def face() -> str:
    return "sync"


@pytest.fixture
def clock() -> Callable[[], datetime]:
    """The wall clock, which the other processes have too."""
    return lambda: datetime.now(UTC)


@pytest.fixture
def spawn(database_url: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`spawn(command, *arguments)` starts the worker of this folder on the test's database; none outlives the test."""
    with ExitStack() as stack:

        def start(command: str, *arguments: Any) -> subprocess.Popen[str]:
            line = [sys.executable, "-m", "tests.concurrency.worker", command, database_url, *map(str, arguments)]
            process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            stack.callback(_end, process)
            return process

        yield start


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(30)
    if process.stdout is not None:
        process.stdout.close()
