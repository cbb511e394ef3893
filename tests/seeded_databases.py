"""Databases that hold something already, for the tests that would fill one alike.

Each kind is made once in a test session, as a file and as a database of the server, and every test gets a copy of its own, or
one that another test gave back: copying takes a fifth of the time that filling does, and bringing one back a twentieth.
"""

import shutil
import tempfile
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

import psycopg
from psycopg import sql

from persist import Store
from persist.testing import FrozenClock
from tests.database_cleaning import SCHEMA, cleaner, order
from tests.database_pool import Databases

Fill = Callable[[str], object]


@cache
def new_file() -> bytes:
    """What a file holds that a store made and closed; writing it takes a tenth of the time of making it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        Store.open(f"sqlite:///{path.as_posix()}").close()
        return path.read_bytes()


def with_file(url: str) -> str:
    """The URL: if it is a file's, the file is there now, as a store makes it."""
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).write_bytes(new_file())
    return url


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


def fill_once(url: str, clock: FrozenClock, what: Hashable, fill: Fill) -> None:
    """Do `fill(url)` to a new database, or put there what an earlier call in this process with the same `what` made.

    The clock then stands where it stood after the filling.
    """
    on_server = url.startswith("postgresql")
    path = Path(url.removeprefix("sqlite:///"))
    if not on_server and path.exists():  # a test has begun it otherwise
        fill(url)
        return
    known = (what, on_server, clock())
    if known in _MADE:
        made = _MADE[known]
        if isinstance(made.content, Rows):
            made.content.put(url)
        else:
            path.write_bytes(made.content)
        clock.set(made.until)
        return
    fill(url)
    _MADE[known] = _Made(Rows(url) if on_server else path.read_bytes(), clock())


class Rows:
    """The rows and the sequences of a Postgres database, as they are when this is made."""

    def __init__(self, url: str) -> None:
        self._tables: dict[str, bytes] = {}
        with psycopg.connect(url) as connection:
            names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (SCHEMA,)).fetchall()
            for (name,) in names:
                with connection.cursor().copy(sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(_table(name))) as copied:
                    self._tables[name] = b"".join(bytes(block) for block in copied)
            query = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = %s AND last_value IS NOT NULL"
            self._sequences = connection.execute(query, (SCHEMA,)).fetchall()

    def put(self, url: str) -> None:
        """Replace by them what a migrated database has."""
        with cleaner(url) as connection, connection.transaction():
            names = sorted(self._tables, key=order)
            for name in reversed(names):
                connection.execute(sql.SQL("DELETE FROM {}").format(_table(name)))
            for name in names:
                with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(_table(name))) as copied:
                    copied.write(self._tables[name])
            for name, last in self._sequences:
                connection.execute("SELECT setval(%s::regclass, %s)", (_table(name).as_string(connection), last))


def _table(name: str) -> sql.Identifier:
    return sql.Identifier(SCHEMA, name)


@dataclass(frozen=True)
class _Made:
    """What a database held after it was filled, and when its clock said that it was."""

    content: bytes | Rows
    until: datetime


_MADE: dict[Hashable, _Made] = {}
