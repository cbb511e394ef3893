"""Killed at any moment, a file is as it was, and adopting it again works."""

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.adopt.files import Foreign
from tests.adopt.shapes import FIRST_WORKFLOWS, INSTANCE

Make = Callable[..., Foreign]

KILLED = """
import os, signal, sys
from persist.db.dialects.sqlite.foreign_files import ForeignFile
from persist.maintenance import adopt

url, step, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
real, calls = getattr(ForeignFile, step), 0

def until(self, *args, **options):
    global calls
    calls += 1
    result = real(self, *args, **options) if calls < number or step == "copy_to" else None
    if calls == number:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(ForeignFile, step, until)
adopt(url)
"""
MOMENTS = [
    ("back_up", 1, "delete"),
    ("copy_to", 1, "delete"),
    ("copy_to", 1, "wal"),
    ("rebuild_without_unique", 1, "wal"),
    ("run", 3, "delete"),
    ("add_column", 9, "delete"),
    ("add_index", 30, "wal"),
    ("orphans", 2, "delete"),
    ("commit", 1, "delete"),
    ("commit", 1, "wal"),
]
ROWS = "INSERT INTO messaging_sessions VALUES ('s', 'p', 'c', NULL, 'u', '2025', '2025', 0, 1, 'x');"


@pytest.mark.parametrize(("step", "number", "journal"), MOMENTS, ids=["-".join(map(str, moment)) for moment in MOMENTS])
def test_a_kill_leaves_the_file_as_it_was(foreign: Make, step: str, number: int, journal: str) -> None:
    file = foreign(f"PRAGMA journal_mode = {journal};{FIRST_WORKFLOWS}{INSTANCE}{ROWS}")
    schema = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    before = file.rows(schema)
    line = [sys.executable, "-c", KILLED, file.url, step, str(number)]
    killed = subprocess.run(line, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert file.rows(schema) == before
    assert file.rows("PRAGMA integrity_check") == [("ok",)]
    report = file.adopt()
    assert report.adopted
    assert file.rows(schema, report.backup_path) == before
    assert list(file.path.parent.glob("*.partial")) == []


def test_two_at_once_make_one_backup(foreign: Make) -> None:
    file = foreign(FIRST_WORKFLOWS + INSTANCE + ROWS)
    line = [
        sys.executable,
        "-c",
        "import sys; from persist.maintenance import adopt; print(adopt(sys.argv[1]).adopted)",
        file.url,
    ]
    both = [subprocess.Popen(line, stdout=subprocess.PIPE, encoding="utf-8") for _ in range(2)]
    said = sorted(process.communicate(timeout=60)[0].strip() for process in both)
    assert said == ["False", "True"]
    assert len(list(file.path.parent.glob("*before-adopt*"))) == 1
