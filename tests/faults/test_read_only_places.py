"""What SQLite and the system say of places that cannot be read or written, in our words. The places are in tests/torture."""

import errno
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.db.dialects.sqlite import connections
from persist.db.dialects.sqlite.errors import translate_error
from persist.errors import NotPermitted, ReadOnlyTransaction
from persist.maintenance import export
from persist.sessionlog import SessionLogWriter


def said(name: str, text: str = "attempt to write a readonly database") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error


def test_a_folder_where_no_log_can_be_made() -> None:
    """The file is only looked at, and nobody's statement wrote anything."""
    assert isinstance(translate_error(said("SQLITE_READONLY_DIRECTORY"), "x.db", 0.0, read_only=True), NotPermitted)
    assert isinstance(translate_error(said("SQLITE_READONLY"), "x.db", 0.0, read_only=True), ReadOnlyTransaction)
    assert isinstance(translate_error(said("SQLITE_READONLY"), "x.db", 0.0, read_only=False), NotPermitted)


def test_a_place_that_nobody_may_look_at(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Any, **_: Any) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with Store.open(sqlite_url) as store:
        monkeypatch.setattr(os, "lstat", refuse)
        with pytest.raises(NotPermitted):
            export(store, tmp_path / "out.jsonl")
        with pytest.raises(NotPermitted):
            Store.open(f"sqlite:///{tmp_path / 'other.db'}")
        SessionLogWriter(tmp_path, "-app").close()  # it says so when it writes, and fails nobody


def test_a_file_that_stays_busy_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look may wait for the busy timeout: two hundred of them were a quarter of an hour."""
    asked = []

    class Busy:
        def execute(self, statement: str) -> None:
            asked.append(statement)
            raise said("SQLITE_BUSY", "database is locked")

    monkeypatch.setattr(connections, "_PATIENCE_FOR_WAL", -1.0)
    connection: Any = Busy()
    with pytest.raises(sqlite3.OperationalError):
        connections.use_wal(connection, tmp_path / "state.db")
    assert len(asked) == 1
