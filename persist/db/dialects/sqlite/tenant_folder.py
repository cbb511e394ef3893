"""A folder in which each tenant has a SQLite file."""

import os
import sqlite3
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from persist.db.dialects.interface import Dialect, TenantServer
from persist.db.dialects.sqlite.dialect import sqlite_dialect
from persist.db.dialects.untrusted_files import remove_file
from persist.db.files import file_uri, typed
from persist.db.schema.base import VERSION_TABLE

if TYPE_CHECKING:
    from persist.settings import Settings

_SUFFIX = ".db"


class SqliteTenants(TenantServer):
    """The files of one folder that hold persist's tables."""

    shares_connections = False

    def __init__(self, folder: Path, settings: "Settings") -> None:
        self._folder, self._settings = folder, settings

    def dialect(self, name: str, *, new: bool = False) -> Dialect:
        return sqlite_dialect(self._path(name), self._settings, must_exist=not new)

    def has(self, name: str) -> bool:
        path = self._path(name)
        if not path.is_file():
            return False
        try:
            with closing(sqlite3.connect(file_uri(path, "mode=ro"), uri=True, timeout=5.0)) as raw:
                return raw.execute(f"SELECT 1 FROM {VERSION_TABLE}").fetchone() is not None
        except sqlite3.OperationalError as error:  # a file whose creation was cut short has no tables yet
            if "no such table" in str(error) or not path.exists():
                return False
            raise self.dialect(name).errors.classify(error) or error from error
        except sqlite3.DatabaseError as error:
            raise self.dialect(name).errors.classify(error) or error from error

    def names(self, after: str, limit: int) -> list[str]:
        try:
            with os.scandir(self._folder) as entries:
                found = [entry.name.removesuffix(_SUFFIX) for entry in entries if entry.name.endswith(_SUFFIX)]
        except OSError as error:
            raise typed(error, self._folder, "folder") from error
        later = sorted(name for name in found if name > after)
        return list(islice((name for name in later if self.has(name)), limit))

    def drop(self, name: str) -> bool:
        if not self.has(name):
            return False
        path = self._path(name)
        remove_file(path)
        return True

    def place(self, name: str) -> tuple[str, str | None]:
        return f"sqlite:///{self._path(name).as_posix()}", None

    def close(self) -> None:
        """Do nothing: each store has connections of its own."""

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"
