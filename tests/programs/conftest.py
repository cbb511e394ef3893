"""A run file, and raw looks at it."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.programs import create_run_file
from persist.programs.storage import attachments
from persist.programs.storage.attachments import Folder
from persist.testing import FrozenClock
from tests.programs.bound import MB


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


SYSTEMS = ["held", "without /proc", "without O_PATH", "without handles"]


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the operating system can do: each has its own way to look at a file before it is opened."""
    if request.param == "without /proc":
        monkeypatch.setattr(attachments, "_HELD", "/nowhere")
    elif request.param == "without O_PATH":
        monkeypatch.delattr(os, "O_PATH")
    elif request.param == "without handles":
        monkeypatch.setattr(attachments, "_HANDLES", False)
    return str(request.param)


@pytest.fixture
def folder(file: Path) -> Path:
    """The run's attachments."""
    path = file.parent / "attachments"
    path.mkdir()
    return path


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A text that is nobody's business."""
    path = tmp_path / "secret.md"
    path.write_text("secret")
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file that was written a while ago."""
    path = tmp_path / "source.bin"
    path.write_bytes(b"\xff\x00 as it was" + b"x" * 3 * MB)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have something done when the first megabyte was copied."""
    really = Folder.write

    def arrange(deed: Callable[[], object]) -> None:
        def write(folder: Folder, name: str, content: Any) -> None:
            def told() -> Iterator[bytes]:
                for number, piece in enumerate(content):
                    if number == 1:
                        deed()
                    yield piece

            really(folder, name, told())

        monkeypatch.setattr(Folder, "write", write)

    return arrange
