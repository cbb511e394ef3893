"""Databases that hold something already, for the tests that would fill one alike.

Each kind is made once in a test session, as a file and as a database of the server, and every test gets a copy of its own, or
one that another test gave back: copying takes a fifth of the time that filling does, and bringing one back a twentieth.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from persist import Store
from tests.database_pool import Databases

Fill = Callable[[str], object]


@cache
def new_file() -> bytes:
    """What a file holds that a store made and closed; writing it takes a tenth of the time of making it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        Store.open(f"sqlite:///{path.as_posix()}").close()
        return path.read_bytes()


class Prepared:
    """A kind is known by the function that makes it of a migrated database, `fill(url)`."""

    def __init__(self, folder: Path, databases: Callable[[], Databases]) -> None:
        self._folder, self._databases = folder, databases
        self._files: dict[Fill, Path] = {}

    @contextmanager
    def lend(self, fill: Fill, backend: str, folder: Path) -> Iterator[str]:
        """The URL of one, as long as the block lasts; a file is in the folder."""
        if backend == "sqlite":
            yield self._copied(fill, folder / "state.db")
            return
        databases = self._databases().filled(fill)
        url = databases.lend()
        try:
            yield url
        finally:
            databases.give_back(url)

    def _copied(self, fill: Fill, path: Path) -> str:
        if fill not in self._files:
            made = self._files[fill] = self._folder / f"{len(self._files)}.db"
            fill(f"sqlite:///{made.as_posix()}")
        shutil.copyfile(self._files[fill], path)
        return f"sqlite:///{path.as_posix()}"
