"""SQLite files that go from test to test: emptied, as databases of a server are, where a store over them stays open below."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from persist.db.dialects.sqlite.raw_writes import mark_connection

_MAX_PAGES = 1024
"""A file that a test made larger goes."""


class KeptFiles:
    """Files that begin as `content`, each in a folder of its own. `drop(url)` is called before one is removed."""

    def __init__(self, folder: Path, content: bytes, drop: Callable[[str], object]) -> None:
        self._folder, self._content, self._drop = folder, content, drop
        self._idle: list[_File] = []
        self._lent: dict[str, _File] = {}
        self._made = 0

    def lend(self) -> str:
        """The URL of a file that is as a store made it."""
        if not self._idle:
            self._made += 1
            path = self._folder / str(self._made) / "state.db"
            path.parent.mkdir()
            path.write_bytes(self._content)
            self._idle.append(_File(path))
        file = self._idle.pop()
        url = f"sqlite:///{file.path.as_posix()}"
        self._lent[url] = file
        return url

    def give_back(self, url: str) -> None:
        """Take it back after a test; one that cannot be cleaned is removed."""
        file = self._lent.pop(url)
        if file.restore():
            self._idle.append(file)
        else:
            self._drop(url)
            file.remove()

    def close(self) -> None:
        """Remove what was given back."""
        for file in self._idle:
            file.remove()


class _File:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode = path.stat().st_ino
        self._sql = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
        mark_connection(self._sql)  # or triggers would note what is cleaned
        self._sql.execute("PRAGMA synchronous=OFF")
        tables = self._rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'sqlite_sequence'")
        self._names = [name for (name,) in tables]
        self._probes = " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM \"{name}\")" for name in self._names)
        self._marks = self._seen()
        self._seeds = {name: self._all(name) for (name,) in self._rows(self._probes)}

    def restore(self) -> bool:
        """Whether the file is now as a new one is."""
        try:
            if [path.name for path in self.path.parent.iterdir() if not path.name.startswith(self.path.name)]:
                return False  # a test has put something beside it
            if self.path.stat().st_ino != self._inode or self._seen() != self._marks:
                return False
            if self._rows("PRAGMA page_count")[0][0] > _MAX_PAGES:
                return False
            self._empty()
            busy = self._rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
        except (sqlite3.Error, OSError):  # in use, spoilt, or gone
            return False
        return not busy

    def remove(self) -> None:
        self._sql.close()
        shutil.rmtree(self.path.parent)

    def _empty(self) -> None:
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            for (name,) in self._rows(self._probes):
                if self._seeds.get(name) != self._all(name):
                    self._sql.execute(f'DELETE FROM "{name}"')
            for name, rows in self._seeds.items():
                if self._all(name) != rows:
                    places = ", ".join("?" * len(rows[0]))
                    self._sql.executemany(f'INSERT INTO "{name}" VALUES ({places})', rows)
            self._sql.execute("DELETE FROM sqlite_sequence")
        except BaseException:
            self._sql.execute("ROLLBACK")
            raise
        self._sql.execute("COMMIT")

    def _seen(self) -> list[Any]:
        """What a test could leave behind besides rows: a change of the structure, marks of the file, another journal."""
        names = ["schema_version", "user_version", "application_id", "journal_mode", "auto_vacuum", "page_size"]
        return [self._rows(f"PRAGMA {name}") for name in names] + [self.path.stat().st_mode]

    def _all(self, name: str) -> list[tuple[Any, ...]]:
        return self._rows(f'SELECT * FROM "{name}" ORDER BY 1')

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self._sql.execute(statement).fetchall()
